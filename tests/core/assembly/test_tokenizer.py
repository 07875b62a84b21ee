"""Tokenizers of files: byte-level, SentencePiece and unigram."""

from __future__ import annotations

import numpy as np
import pytest

from core.contract.errors import ModelLoadError
from core.gguf.file import GgufFile
from core.gguf.vocabulary.merges import merges_of
from core.gguf.vocabulary.pre_tokenizers import PRE_TOKENIZERS
from core.gguf.vocabulary.tokenizer import tokenizer_of
from core.text.tokenizer import Tokenizer
from tests.support.gguf_files import byte_vocabulary, write_gguf

SPACE = "\N{LOWER ONE EIGHTH BLOCK}"


def sentencepiece(**changes):
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256))]
    pieces = [SPACE, "h", "e", "l", "o", "he", "ll", "llo", "hello", f"{SPACE}hello", "<tool>"]
    scores = [0.0] * len(tokens) + [-float(i) for i in range(100, 100 + len(pieces))]
    scores[-3] = -1.0  # hello is better than its parts
    types = [2, 3, 3, *[6] * 256, *[1] * (len(pieces) - 1), 4]
    return {
        "general.architecture": "llama",
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens + pieces,
        "tokenizer.ggml.scores": np.array(scores, np.float32),
        "tokenizer.ggml.token_type": np.array(types, np.int32),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    } | changes


def unigram(**changes):
    tokens = ["<pad>", "</s>", "<unk>", SPACE, f"{SPACE}a", "ab", "b", f"{SPACE}ab"]
    scores = [0.0, 0.0, 0.0, -3.0, -2.0, -2.5, -2.0, -5.0]
    return {
        "general.architecture": "llama",
        "tokenizer.ggml.model": "t5",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": np.array(scores, np.float32),
        "tokenizer.ggml.token_type": np.array([3, 3, 2, 1, 1, 1, 1, 1], np.int32),
    } | changes


def nested(count: int):
    """A vocabulary of runs of one letter, each of which has all shorter ones."""
    return sentencepiece() | {
        "tokenizer.ggml.tokens": ["a" * n for n in range(1, count + 1)],
        "tokenizer.ggml.scores": np.zeros(count, np.float32),
        "tokenizer.ggml.token_type": np.ones(count, np.int32),
    }


def few(count: int):
    """Changes of ``unigram`` to a vocabulary that lacks the ids of older files."""
    return {
        "tokenizer.ggml.tokens": [str(i) for i in range(count)],
        "tokenizer.ggml.scores": np.zeros(count, np.float32),
        "tokenizer.ggml.token_type": np.ones(count, np.int32),
    }


def load(tmp_path, values) -> Tokenizer:
    return Tokenizer.load(write_gguf(tmp_path / "t.gguf", values, {}))


def pieces(tokenizer: Tokenizer, text: str) -> list[str]:
    ids = tokenizer.encode(text, add_special_tokens=False)
    return [tokenizer.token_text(i) for i in ids]


def byte_level(**changes):
    return {"general.architecture": "llama"} | byte_vocabulary(300) | changes


def without_pre():
    values = byte_level()
    del values["tokenizer.ggml.pre"]
    return values


def test_bytes_are_tokens_and_control_tokens_are_special(tmp_path):
    tokenizer = load(tmp_path, byte_level())
    ids = tokenizer.encode("naïve</s>", add_special_tokens=True)
    assert ids[-1] == 2
    assert 1 not in ids
    assert tokenizer.decode(ids) == "naïve"
    assert tokenizer.decode(ids, skip_special_tokens=False) == "naïve</s>"
    assert tokenizer.vocabulary.is_exact
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id) == (1, 2)


def test_bos_is_added_where_the_file_says_so(tmp_path):
    for adds, expected in ((True, True), (False, False), (None, False)):
        changes = {} if adds is None else {"tokenizer.ggml.add_bos_token": adds}
        tokenizer = load(tmp_path, byte_level(**changes))
        assert (tokenizer.encode("a", add_special_tokens=True)[0] == 1) is expected
    eos = load(tmp_path, byte_level(**{"tokenizer.ggml.add_eos_token": True}))
    assert eos.encode("a", add_special_tokens=True)[-1] == 2
    llama3 = load(tmp_path, byte_level(**{"tokenizer.ggml.pre": "llama-bpe"}))
    assert llama3.encode("a", add_special_tokens=True)[0] == 1


@pytest.mark.parametrize(
    ("pre", "expected"),
    [
        ("gpt-2", ["it", "'s", " 1234", "\n\n", " x"]),
        ("smollm", ["it", "'s", " ", "1", "2", "3", "4", "\n\n", " x"]),
        ("llama-bpe", ["it", "'s", " ", "123", "4", "\n\n", " x"]),
        ("qwen2", ["it", "'s", " ", "1", "2", "3", "4", "\n\n", " x"]),
        ("gpt-4o", ["it's", " ", "123", "4", "\n\n", " x"]),
        ("tekken", ["it", "'s", " ", "1", "2", "3", "4", "\n\n", " x"]),
        ("falcon", ["it", "'", "s", " ", "123", "4", "\n\n", " x"]),
    ],
)
def test_text_is_split_as_the_pre_tokenizer_says(tmp_path, pre, expected):
    tokenizer = load(tmp_path, byte_level(**{"tokenizer.ggml.pre": pre}))
    split = tokenizer._backend.pre_tokenizer.pre_tokenize_str("it's 1234\n\n x")
    alphabet = {
        "\N{LATIN CAPITAL LETTER G WITH DOT ABOVE}": " ",
        "\N{LATIN CAPITAL LETTER C WITH DOT ABOVE}": "\n",
    }
    table = str.maketrans(alphabet)
    assert [piece.translate(table) for piece, _ in split] == expected


def test_every_pre_tokenizer_can_be_built(tmp_path):
    for name in PRE_TOKENIZERS:
        tokenizer = load(tmp_path, byte_level(**{"tokenizer.ggml.pre": name}))
        text = "Hello, wörld 42!\n\tx"
        assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text


def test_sentencepiece_joins_by_score_and_falls_back_to_bytes(tmp_path):
    tokenizer = load(tmp_path, sentencepiece())
    assert tokenizer.encode("hello", add_special_tokens=True)[0] == 1
    assert len(tokenizer.encode("hello hello", add_special_tokens=False)) == 2
    assert tokenizer.decode(tokenizer.encode("hello é", add_special_tokens=False)) == "hello é"
    assert tokenizer.vocabulary.is_exact


def test_better_scores_are_joined_first(tmp_path):
    tokens = ["<unk>", "<s>", "</s>", "a", "b", "c", "ab", "bc"]
    for scores, expected in (([-1.0, -2.0], ["ab", "c"]), ([-2.0, -1.0], ["a", "bc"])):
        values = sentencepiece() | {
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.scores": np.array([0.0] * 6 + scores, np.float32),
            "tokenizer.ggml.token_type": np.array([2, 3, 3] + [1] * 5, np.int32),
            "tokenizer.ggml.add_space_prefix": False,
        }
        assert pieces(load(tmp_path, values), "abc") == expected


def test_user_defined_tokens_are_found_in_text_but_are_not_special(tmp_path):
    tokenizer = load(tmp_path, sentencepiece())
    assert "<tool>" in pieces(tokenizer, "hello<tool>hello")
    assert "<tool>" in tokenizer.decode(tokenizer.encode("<tool>", add_special_tokens=False))


def test_runs_of_spaces_of_gemma_are_tokens(tmp_path):
    values = sentencepiece(**{"general.architecture": "gemma3"})
    values["tokenizer.ggml.tokens"] = [*values["tokenizer.ggml.tokens"], "  "]
    values["tokenizer.ggml.token_type"] = np.append(values["tokenizer.ggml.token_type"], 1).astype(
        "i4"
    )
    values["tokenizer.ggml.add_space_prefix"] = False
    assert pieces(load(tmp_path, values), "h  h") == ["h", "  ", "h"]


def test_pairs_are_bounded_and_share_the_vocabularys_strings():
    tokens = ["a" * n for n in range(1, 257)]
    pairs = merges_of(tokens, {t: i for i, t in enumerate(tokens)}, np.arange(256))
    own = set(map(id, tokens))
    assert len(pairs) == 256 * 255 // 2
    assert all(id(left) in own and id(right) in own for left, right in pairs)
    tokens = ["a" * i + "b" * j for i in range(128) for j in range(1, 128 - i)]
    with pytest.raises(ModelLoadError, match="its vocabulary has more than"):
        merges_of(tokens, {t: i for i, t in enumerate(tokens)}, np.arange(len(tokens)))


def test_unigram_takes_the_best_segmentation(tmp_path):
    tokenizer = load(tmp_path, unigram())
    assert pieces(tokenizer, "ab") == [" a", "b"]  # -4 is better than -5 and -5.5
    assert pieces(tokenizer, "a   b")[-2:] == [" ", "b"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (byte_level(**{"tokenizer.ggml.model": "rwkv"}), "its tokenizer 'rwkv' is not supported"),
        (byte_level(**{"tokenizer.ggml.pre": "new"}), "its pre-tokenizer 'new' is not known"),
        (without_pre(), "its metadata lacks tokenizer.ggml.pre"),
        (
            byte_level(**{"tokenizer.ggml.pre": "default"}),
            "its pre-tokenizer 'default' is not known",
        ),
        (byte_level(**{"tokenizer.ggml.merges": ["ab"]}), "the merge 'ab' has no space"),
        (byte_level(**{"tokenizer.ggml.merges": ["a zz"]}), "its tokenizer cannot be built"),
        (
            byte_level(**{"tokenizer.ggml.bos_token_id": 300}),
            "bos_token_id is 300, not in 0 to 299",
        ),
        (byte_level(**{"tokenizer.ggml.tokens": ["a", "a", "b"]}), "has the token 'a' twice"),
        (
            byte_level(**{"tokenizer.ggml.token_type": np.array([1], np.int32)}),
            "has 1 types for 300 tokens",
        ),
        (sentencepiece(**{"tokenizer.ggml.scores": np.zeros(3, np.float32)}), "has 3 scores for"),
        (
            unigram(**{"tokenizer.ggml.scores": np.full(8, np.nan, np.float32)}),
            "no finite score for every token",
        ),
        (nested(257), "its token 256, 'aaaaaaaaaaaaaaaa'..., has 257 characters, more than 256"),
        (unigram(**few(2)), "no unk_token 2"),
        (
            unigram(**{"tokenizer.ggml.precompiled_charsmap": np.zeros(4, np.uint8)}),
            "its tokenizer cannot be built",  # a table without entries panics when it is used
        ),
        (
            unigram(**{"tokenizer.ggml.precompiled_charsmap": np.array([1, 2], np.uint8)}),
            "its tokenizer cannot be built",
        ),
    ],
)
def test_what_is_wrong_is_refused_by_name(tmp_path, values, message):
    path = write_gguf(tmp_path / "t.gguf", values, {})
    with pytest.raises(ModelLoadError) as raised:
        tokenizer_of(GgufFile.open(path).metadata)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
    with pytest.raises(ModelLoadError) as raised:
        Tokenizer.load(path)
    assert str(raised.value).startswith(f"The tokenizer of {path} cannot be loaded: ")
    assert str(raised.value).endswith("; name the model's own with --tokenizer")


def test_a_file_that_is_not_there_is_no_matter_of_its_tokenizer(tmp_path):
    with pytest.raises(ModelLoadError) as raised:
        Tokenizer.load(tmp_path / "missing.gguf")
    assert str(raised.value) == f"there is no file {tmp_path / 'missing.gguf'}"


def test_the_chat_template_is_the_files(tmp_path):
    template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    tokenizer = load(tmp_path, byte_level(**{"tokenizer.chat_template": template}))
    assert tokenizer.render_chat([{"role": "user", "content": "hi"}]) == "hi"
    assert load(tmp_path, byte_level()).chat_template is None
