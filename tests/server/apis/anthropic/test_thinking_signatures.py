import zlib
from base64 import urlsafe_b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.contract.errors import InvalidRequest
from server.apis.anthropic.thinking import SHOWN, Unpacker, signature_of


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_signature_carries_the_thinking(thinking):
    assert Unpacker().thinking_in(signature_of(thinking), "p") == thinking


@pytest.mark.parametrize(
    "signature",
    ["", SHOWN, "EqQBCkYIBRgCIkDx", "roseinfer:", "roseinfer:é", "roseinfer:abc", "roseinfer:AAAA"],
)
def test_other_signatures_carry_none(signature):
    assert Unpacker().thinking_in(signature, "p") == ""


class TestLimit:
    """What the signatures of one request unpack to has a limit."""

    @pytest.fixture(autouse=True)
    def limit(self, monkeypatch):
        monkeypatch.setattr("server.apis.anthropic.thinking.MAX_UNPACKED", 100)

    def test_one_signature(self):
        assert Unpacker().thinking_in(signature_of("x" * 100), "p") == "x" * 100
        with pytest.raises(InvalidRequest):
            Unpacker().thinking_in(signature_of("x" * 101), "p")

    def test_several_signatures(self):
        unpacker = Unpacker()
        for text in ("x" * 60, "", "y" * 40, ""):
            assert unpacker.thinking_in(signature_of(text), "p") == text
        for _ in range(2):
            with pytest.raises(InvalidRequest):
                unpacker.thinking_in(signature_of("z"), "p")

    def test_nothing_is_unpacked_beyond_it(self, monkeypatch):
        sizes = []
        inflate = zlib.decompressobj

        class Noting:
            def decompress(self, packed, most):
                data = inflate().decompress(packed, most)
                sizes.append(len(data))
                return data

        monkeypatch.setattr(zlib, "decompressobj", Noting)
        unpacker, bomb = Unpacker(), signature_of("a" * 2**20)
        for _ in range(3):
            with pytest.raises(InvalidRequest):
                unpacker.thinking_in(bomb, "p")
        assert sizes == [101]

    def test_what_ends_with_an_error_counts_too(self):
        packed = zlib.compress(b"x" * 80)[:-4] + b"oops"
        broken = "roseinfer:" + urlsafe_b64encode(packed).decode()
        unpacker = Unpacker()
        assert unpacker.thinking_in(broken, "p") == ""
        with pytest.raises(InvalidRequest):
            unpacker.thinking_in(signature_of("x" * 30), "p")
