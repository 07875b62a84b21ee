from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from core.text.vocabulary import Vocabulary
from tests.support.tokenizers import byte_fallback, byte_level, metaspace, pure_python, word_piece

EXACT = [byte_level, byte_fallback, metaspace]


@pytest.mark.parametrize("build", EXACT)
def test_supported_decoders_are_exact(build):
    assert Vocabulary.of(build()).is_exact


@pytest.mark.parametrize("build", [word_piece, pure_python])
def test_other_tokenizers_are_not_exact(build):
    vocabulary = Vocabulary.of(build())
    assert not vocabulary.is_exact
    text = vocabulary.decode([5])
    assert vocabulary.token_bytes(5) == text.encode()


def test_byte_level_bytes_match_the_decoder_for_invalid_utf8():
    tokenizer = byte_level()
    vocabulary = Vocabulary.of(tokenizer)

    @given(ids=st.lists(st.integers(0, len(tokenizer) - 1), max_size=20))
    @settings(max_examples=200, deadline=None)
    def check(ids):
        joined = b"".join(map(vocabulary.token_bytes, ids))
        assert joined.decode(errors="replace") == tokenizer.decode(ids)

    check()


@pytest.mark.parametrize("build", EXACT)
@given(text=st.text(alphabet=st.sampled_from("the fox é日.,<0>"), max_size=30))
@settings(max_examples=60, deadline=None)
def test_joined_bytes_of_encoded_text_are_the_text(build, text):
    tokenizer = build()
    vocabulary = Vocabulary.of(tokenizer)
    ids = tokenizer.encode(text, add_special_tokens=False)
    if tokenizer.unk_token_id is not None and tokenizer.unk_token_id in ids:
        return
    joined = b"".join(map(vocabulary.token_bytes, ids)).decode()
    if build is metaspace:  # it has no runs of spaces
        assert joined.split() == text.split()
    else:
        assert joined.removeprefix(" " if vocabulary.strips_leading_space else "") == text


def test_tokens_outside_the_byte_alphabet_are_plain_text():
    tokenizer = byte_level()
    token_id = tokenizer.convert_tokens_to_ids("日本 mark")
    assert Vocabulary.of(tokenizer).token_bytes(token_id) == "日本 mark".encode()


def test_byte_fallback_tokens_are_single_bytes():
    tokenizer = byte_fallback()
    token_id = tokenizer.convert_tokens_to_ids("<0xE2>")
    assert Vocabulary.of(tokenizer).token_bytes(token_id) == b"\xe2"


@pytest.mark.parametrize("build", [*EXACT, word_piece, pure_python])
def test_padding_rows_have_no_bytes(build):
    vocabulary = Vocabulary.of(build(), size=len(build()) + 7)
    assert len(vocabulary) == len(build()) + 7
    assert vocabulary.token_bytes(len(build()) + 3) == b""


def test_ids_need_not_be_dense():
    backend = Tokenizer(models.WordLevel({"a": 0, "b": 700}, unk_token="a"))
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<x>"])
    vocabulary = Vocabulary.of(PreTrainedTokenizerFast(tokenizer_object=backend))
    assert vocabulary.is_exact
    assert vocabulary.token_bytes(700) == b"b"
    assert [vocabulary.token_bytes(token_id) for token_id in vocabulary.special_ids] == [b"<x>"]
    assert vocabulary.token_bytes(5) == b""


def test_special_ids_are_the_special_added_tokens_only():
    tokenizer = byte_level()
    assert Vocabulary.of(tokenizer).special_ids == {0, 1, 2}


@pytest.mark.parametrize(
    "decoder",
    [
        None,
        decoders.CTC(),
        decoders.BPEDecoder(),
        decoders.Sequence([decoders.Replace(Regex("x"), " "), decoders.Fuse()]),
        decoders.Sequence([decoders.Fuse(), decoders.Strip("x", 1, 0)]),
        decoders.Sequence([decoders.Fuse(), decoders.Metaspace()]),
    ],
)
def test_unsupported_decoders_are_not_exact(decoder):
    backend = Tokenizer(models.WordLevel({"a": 0, "▁b": 1, "x": 2}, unk_token="a"))
    if decoder is not None:
        backend.decoder = decoder
    assert not Vocabulary.of(PreTrainedTokenizerFast(tokenizer_object=backend)).is_exact


def test_a_decoder_that_differs_from_its_description_is_not_exact():
    class Shouting(PreTrainedTokenizerFast):
        def _decode(self, *args, **kwargs):
            return super()._decode(*args, **kwargs).upper()

    shouting = Shouting(tokenizer_object=byte_level().backend_tokenizer)
    assert not Vocabulary.of(shouting).is_exact
