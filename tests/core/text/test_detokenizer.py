from __future__ import annotations

import codecs
import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.text.detokenizer import ByteDetokenizer, detokenizer_for
from core.text.vocabulary import Vocabulary
from tests.support.tokenizers import byte_fallback, byte_level, metaspace, pure_python, word_piece

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
BYTE_TOKENS = [bytes([value]) for value in range(256)]


def run(detokenizer, ids):
    return [*map(detokenizer.feed, ids), detokenizer.finish()]


def over_bytes(**kwargs):
    return ByteDetokenizer(BYTE_TOKENS.__getitem__, **kwargs)


def unfinished(data):
    """The bytes of an unfinished character at the end of ``data``."""
    for size in (3, 2, 1):
        decoder = codecs.getincrementaldecoder("utf-8")()
        with contextlib.suppress(UnicodeDecodeError):
            if decoder.decode(data[-size:]) == "" and len(data) >= size:
                return data[-size:]
    return b""


@given(data=st.one_of(st.binary(max_size=40), st.text(max_size=20).map(str.encode)))
@settings(max_examples=200, deadline=None)
def test_joined_pieces_equal_the_decoded_bytes(data):
    assert "".join(run(over_bytes(), data)) == data.decode(errors="replace")


@given(text=st.text(max_size=20))
@settings(max_examples=200, deadline=None)
def test_valid_text_is_never_split_inside_a_character(text):
    pieces = run(over_bytes(), text.encode())
    assert "".join(pieces) == text
    assert all(len(piece) <= 1 for piece in pieces)


@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("build", [byte_level, byte_fallback])
def test_any_ids_give_the_text_of_their_visible_bytes(build, skip):
    tokenizer = build()
    vocabulary = Vocabulary.of(tokenizer, size=len(tokenizer) + 5)
    hidden = vocabulary.special_ids if skip else frozenset()
    id_lists = st.lists(st.integers(0, len(vocabulary) - 1), max_size=25)

    @given(prompt=id_lists, ids=id_lists)
    @settings(max_examples=150, deadline=None)
    def check(prompt, ids):
        detokenizer = detokenizer_for(vocabulary, prompt_token_ids=prompt, skip_special_tokens=skip)
        text = "".join(run(detokenizer, ids))
        before, after = (
            b"".join(vocabulary.token_bytes(i) for i in part if i not in hidden)
            for part in (prompt, ids)
        )
        if not before and vocabulary.strips_leading_space:
            after = after.removeprefix(b" ")
        elif after and after[0] & 0xC0 == 0x80:
            after = unfinished(before) + after
        assert text == after.decode(errors="replace")

    check()


@pytest.mark.parametrize("character", ["é", "€", "🙂"])
def test_a_character_that_the_prompt_began_is_completed(character):
    vocabulary = Vocabulary.of(byte_fallback())
    ids = [3 + byte for byte in character.encode()]
    for cut in range(1, len(ids)):
        detokenizer = detokenizer_for(
            vocabulary, prompt_token_ids=[1, 260, *ids[:cut]], skip_special_tokens=True
        )
        assert "".join(run(detokenizer, ids[cut:])) == character


def test_an_unfinished_character_of_the_prompt_is_dropped():
    assert run(over_bytes(prompt_tail=b"\xe2\x82"), b"a") == ["a", ""]
    assert run(over_bytes(prompt_tail=b"\xe2\x82"), b"") == [""]


def test_an_unfinished_character_at_the_end_is_one_replacement():
    assert run(over_bytes(), b"a\xf0\x9f\x99") == ["a", "", "", "", REPLACEMENT]


def test_special_tokens_are_hidden_or_shown():
    tokenizer = byte_level()
    vocabulary = Vocabulary.of(tokenizer)
    ids = tokenizer.encode("hi<|im_end|>🙂<tool_call>")
    texts = [
        "".join(
            run(
                detokenizer_for(vocabulary, prompt_token_ids=(), skip_special_tokens=skip),
                ids,
            )
        )
        for skip in (True, False)
    ]
    assert texts == ["hi🙂<tool_call>", "hi<|im_end|>🙂<tool_call>"]


@pytest.mark.parametrize(
    ("prompt", "text"), [([], "the the"), ([1], "the the"), ([260], " the the")]
)
def test_only_the_first_space_of_a_whole_text_is_stripped(prompt, text):
    tokenizer = byte_fallback()
    the = tokenizer.convert_tokens_to_ids("▁the")
    detokenizer = detokenizer_for(
        Vocabulary.of(tokenizer), prompt_token_ids=prompt, skip_special_tokens=True
    )
    assert "".join(run(detokenizer, [the, the])) == text


def test_metaspace_pieces_are_joined():
    tokenizer = metaspace()
    detokenizer = detokenizer_for(
        Vocabulary.of(tokenizer), prompt_token_ids=(), skip_special_tokens=True
    )
    assert "".join(run(detokenizer, tokenizer.encode("the fox the"))) == "the fox the"


@given(text=st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=20))
@settings(max_examples=100, deadline=None)
def test_a_tokenizer_without_a_byte_table_matches_its_own_decoding(text):
    tokenizer = pure_python()
    vocabulary = Vocabulary.of(tokenizer)
    ids = tokenizer.encode(text, add_special_tokens=False)
    detokenizer = detokenizer_for(vocabulary, prompt_token_ids=(), skip_special_tokens=True)
    assert "".join(run(detokenizer, ids)) == tokenizer.decode(ids, skip_special_tokens=True)


def test_the_window_keeps_spaces_between_pieces():
    tokenizer = word_piece()
    vocabulary = Vocabulary.of(tokenizer)
    id_lists = st.lists(st.integers(0, len(tokenizer) - 1), max_size=20)

    @given(ids=id_lists)
    @settings(max_examples=100, deadline=None)
    def check(ids):
        detokenizer = detokenizer_for(vocabulary, prompt_token_ids=(), skip_special_tokens=True)
        expected = tokenizer.decode(ids, skip_special_tokens=True)
        assert "".join(run(detokenizer, ids)) == expected

    check()


def test_the_window_continues_from_the_prompt():
    tokenizer = word_piece()
    walk, ing = tokenizer.convert_tokens_to_ids(["walk", "##ing"])
    detokenizer = detokenizer_for(
        Vocabulary.of(tokenizer), prompt_token_ids=[walk], skip_special_tokens=True
    )
    assert run(detokenizer, [ing, walk]) == ["ing", " walk", ""]


def test_the_window_stays_small_when_tokens_give_no_text():
    decoded = []

    def decode(ids):
        decoded.append(len(ids))
        return REPLACEMENT * len(ids)

    vocabulary = Vocabulary(
        size=10,
        special_ids=frozenset(),
        token_bytes=lambda _: b"",
        decode=decode,
        is_exact=False,
        strips_leading_space=False,
    )
    detokenizer = detokenizer_for(vocabulary, prompt_token_ids=(), skip_special_tokens=True)
    assert "".join(run(detokenizer, [1] * 100)) == REPLACEMENT * 100
    assert max(decoded) < 30
