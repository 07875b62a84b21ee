import pytest

from server.settings.key_file import ApiKey
from server.tenants.tenant import LOCAL, UNKNOWN, Keys, Tenant, tenant_at, tenant_of, token_in


def test_without_a_salt_the_requests_own_is_used():
    for cache_salt in (None, "", "mine"):
        assert Tenant("a").salted(cache_salt) == (cache_salt or "")


def test_salts_of_tenants_and_requests_do_not_collide():
    tenants = [Tenant("a", "00"), Tenant("b", "0011")]
    salts = [None, "x", "00", "0011", "11"]
    combined = {tenant.salted(salt) for tenant in tenants for salt in salts}
    assert len(combined) == len(tenants) * len(salts)
    assert not combined & set(salts)


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("::1", "::/64"),
        ("2001:db8:0:1::7", "2001:db8:0:1::/64"),
        ("2001:0DB8:0:1:ffff::", "2001:db8:0:1::/64"),
    ],
)
def test_a_client_without_a_key_is_its_address(host, name):
    assert tenant_at((host, 80)) == tenant_at((host, 81)) == Tenant(name)


@pytest.mark.parametrize("host", ["", "x\ny", "unix:", "1.2.3", "192.0.2.7:80", "a" * 10_000])
def test_an_address_that_is_none_is_not_a_name(host):
    assert tenant_at((host, 80)) is UNKNOWN


def test_a_unix_socket_is_one_tenant():
    assert tenant_at(None) is LOCAL


def keys(*texts, **options):
    return Keys([ApiKey(text) for text in texts], **options)


def test_each_key_is_a_tenant_with_a_secret_salt():
    found = keys("one", "two", "one")
    one, two = found.find(b"one"), found.find(b"two")
    assert (one.name, two.name) == ("key#1", "key#2")
    assert one.has_key
    assert len({one.salt, two.salt, ""}) == 3
    assert keys("one").find(b"one").salt != one.salt  # of another process


def test_a_shared_prefix_cache_has_one_salt():
    found = keys("one", "two", share_prefix_cache=True)
    assert {found.find(b"one").salt, found.find(b"two").salt} == {""}


def test_keys_of_one_name_are_one_tenant():
    old, new, other = ApiKey("old", "alice"), ApiKey("new", "alice"), ApiKey("other", "bob")
    found = Keys([old, new, other, ApiKey("alice")])
    alice = found.find(b"old")
    assert alice == found.find(b"new")
    assert alice.name == "alice"
    assert found.find(b"alice").name == "key#1"
    assert len({found.find(key).salt for key in (b"old", b"other", b"alice")}) == 3


def test_replaced_keys_keep_the_salt_of_those_that_stay():
    found = keys("gone", "kept")
    salt = found.find(b"kept").salt
    found.replace([ApiKey("kept"), ApiKey("new")])
    assert found.find(b"gone") is None
    assert found.find(b"kept").salt == salt
    assert found.find(b"new").salt != salt


def test_a_name_never_passes_to_another_key():
    """Budgets, rates and stored responses go by it."""
    found = keys("gone", "kept")
    found.replace([ApiKey("kept"), ApiKey("new")])
    assert (found.find(b"kept").name, found.find(b"new").name) == ("key#2", "key#3")
    found.replace([ApiKey("new"), ApiKey("gone"), ApiKey("kept")])
    assert found.find(b"kept").name == "key#2"
    assert found.find(b"new").name == "key#3"
    assert found.find(b"gone").name == "key#1"


@pytest.mark.parametrize("token", [b"", b"on", b"one ", b"One", "oné".encode("latin-1")])
def test_a_wrong_key_has_no_tenant(token):
    assert keys("one", "oné", "").find(token) is None


def test_no_keys_are_false():
    assert not Keys()
    assert keys("x")


@pytest.mark.parametrize(
    ("header", "token"),
    [
        (b"Bearer key", b"key"),
        (b"bEARER   key ", b"key"),
        (b"Bearer a b", b"a b"),
        (b"Bearer", b""),
        (b"Basic key", b""),
        (b"key", b""),
        (b"", b""),
    ],
)
def test_bearer_tokens(header, token):
    assert token_in(b"authorization", header) == token


def test_a_scope_that_was_not_seen_has_no_tenant():
    with pytest.raises(KeyError):
        tenant_of({"state": {}})
