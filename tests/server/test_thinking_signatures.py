import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.thinking_signatures import SHOWN, signature_of, thinking_in


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_signature_carries_the_thinking(thinking):
    assert thinking_in(signature_of(thinking)) == thinking


@pytest.mark.parametrize(
    "signature",
    ["", SHOWN, "EqQBCkYIBRgCIkDx", "roseinfer:", "roseinfer:é", "roseinfer:abc", "roseinfer:AAAA"],
)
def test_other_signatures_carry_none(signature):
    assert thinking_in(signature) == ""


def test_what_a_signature_unpacks_to_has_a_limit(monkeypatch):
    monkeypatch.setattr("server.thinking_signatures.MAX_TEXT", 100)
    assert len(thinking_in(signature_of("x" * 10_000))) == 100
