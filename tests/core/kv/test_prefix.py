import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from core.kv.block_pool import DIGEST_SIZE, block_hash, content_of, root_hash


def chain(tokens, *, size=2, salt=""):
    parent = root_hash(salt)
    for start in range(0, len(tokens), size):
        parent = block_hash(parent, tokens[start : start + size])
    return parent


def test_a_hash_has_a_fixed_size_and_is_repeatable():
    assert chain([1, 2]) == chain([1, 2])
    assert len(chain([1, 2])) == len(root_hash("")) == 2 * DIGEST_SIZE


def test_a_hash_depends_on_every_token_before_it():
    tokens = [1, 2, 3, 4, 5, 6]
    addresses = {chain(tokens)}
    for position in range(len(tokens)):
        changed = tokens.copy()
        changed[position] += 1
        addresses.add(chain(changed))
    assert len(addresses) == len(tokens) + 1


def test_a_hash_depends_on_the_order_of_tokens():
    assert len({chain(list(p)) for p in itertools.permutations([1, 2, 3, 4])}) == 24


def test_token_ids_of_any_size_have_different_hashes():
    assert len({chain([token, 0]) for token in (0, 1, 256, 65_536, 2**24, 2**31 - 1)}) == 6


def test_different_salts_give_different_hashes():
    assert len({chain([1, 2, 3, 4], salt=salt) for salt in ("", "a", "b", "a ", "ä")}) == 5


def test_the_content_of_a_hash_does_not_depend_on_the_salt():
    tokens = [1, 2, 3, 4]
    assert len({content_of(chain(tokens, salt=salt)) for salt in ("", "a", "b")}) == 1
    assert content_of(chain([1, 2, 3, 5])) != content_of(chain(tokens))


@given(
    st.lists(st.integers(0, 3), min_size=2, max_size=8).filter(lambda x: len(x) % 2 == 0),
    st.lists(st.integers(0, 3), min_size=2, max_size=8).filter(lambda x: len(x) % 2 == 0),
)
@settings(deadline=None)
def test_hashes_are_equal_exactly_if_tokens_are(one, other):
    assert (chain(one) == chain(other)) == (one == other)
