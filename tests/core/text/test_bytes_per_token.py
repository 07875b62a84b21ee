from copy import deepcopy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Backend

from core.text.bytes_per_token import max_bytes_per_token
from core.text.tokenizer import Tokenizer
from tests.support.tokenizers import byte_fallback, byte_level

BUILDERS = {"byte_level": byte_level, "byte_fallback": byte_fallback}


@pytest.mark.parametrize("name", BUILDERS)
@settings(max_examples=60, deadline=None)
@given(text=st.text(max_size=200) | st.text(alphabet=" ▁aé\n\u0301", max_size=200))
def test_no_text_has_more_bytes_for_each_token(name, text):
    tokenizer = Tokenizer(BUILDERS[name]())
    most = tokenizer.max_bytes_per_token
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert len(text.encode()) <= len(ids) * most


def test_the_longest_token_is_the_bound():
    plain = deepcopy(byte_level())
    plain.backend_tokenizer.normalizer = None
    tokenizer = Tokenizer(plain)
    lengths = [len(tokenizer.token_bytes(i)) for i in range(len(tokenizer.vocabulary))]
    assert tokenizer.max_bytes_per_token == max(lengths)


def test_the_bound_keeps_no_tokens_in_memory():
    tokenizer = Tokenizer(deepcopy(byte_level()))
    table = tokenizer.vocabulary.token_bytes.__self__
    num_known = len(table)
    assert tokenizer.max_bytes_per_token
    assert len(table) == num_known < len(tokenizer.vocabulary)


@pytest.mark.parametrize(
    ("normalizer", "factor"),
    [
        (normalizers.NFC(), 4),
        (normalizers.NFKC(), 4),
        (normalizers.Sequence([normalizers.NFC(), normalizers.Prepend("x")]), 4),
        (normalizers.Replace(" ", "▁"), 1),
        (normalizers.Replace("ab", "a"), None),
        (normalizers.Replace(Regex(" +"), " "), None),
        (normalizers.Sequence([normalizers.NFC(), normalizers.Strip()]), None),
        (normalizers.Strip(), None),
    ],
)
def test_a_normalizer_that_may_drop_text_leaves_no_bound(normalizer, factor):
    plain, normalized = deepcopy(byte_level()), deepcopy(byte_level())
    plain.backend_tokenizer.normalizer = None
    normalized.backend_tokenizer.normalizer = normalizer
    longest = Tokenizer(plain).max_bytes_per_token
    assert Tokenizer(normalized).max_bytes_per_token == (factor and factor * longest)


@pytest.mark.parametrize(
    "splitter",
    [
        pre_tokenizers.Whitespace(),
        pre_tokenizers.WhitespaceSplit(),
        pre_tokenizers.Sequence(
            [pre_tokenizers.Punctuation("removed"), pre_tokenizers.ByteLevel()],
        ),
        pre_tokenizers.Sequence(
            [pre_tokenizers.Split(" ", "removed"), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        ),
    ],
)
def test_a_splitter_that_may_drop_text_leaves_no_bound(splitter):
    backend = deepcopy(byte_level())
    backend.backend_tokenizer.pre_tokenizer = splitter
    assert Tokenizer(backend).max_bytes_per_token is None


def test_a_splitter_that_keeps_punctuation_leaves_the_bound():
    backend = backend_of(byte_level())
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Punctuation("isolated"), pre_tokenizers.ByteLevel()]
    )
    assert max_bytes_per_token(backend)


def backend_of(tokenizer):
    """The library's tokenizer, to be changed."""
    return deepcopy(tokenizer).backend_tokenizer


def fallback_model(num_blanks, *, without=()):
    """Tokens of bytes and of up to so many blanks, which are U+2581."""
    names = [f"<0x{byte:02X}>" for byte in range(256)]
    names = [name for name in names if name not in without]
    merges, blanks = [], "▁"
    names.append(blanks)
    while len(blanks) < num_blanks:
        merges.append((blanks, blanks))
        blanks += blanks
        names.append(blanks)
    vocab = {name: index for index, name in enumerate(names)}
    return models.BPE(vocab=vocab, merges=merges, byte_fallback=True)


def test_the_character_that_stands_for_a_blank_has_three_bytes():
    backend = backend_of(byte_fallback())
    backend.model = fallback_model(16)
    text = "▁" * 1024
    ids = backend.encode(text, add_special_tokens=False).ids
    assert len(text.encode()) / len(ids) > 40
    assert len(text.encode()) <= len(ids) * max_bytes_per_token(backend)


def test_an_added_token_of_the_byte_alphabet_has_the_bytes_of_its_text():
    backend = backend_of(byte_level())
    backend.add_tokens([AddedToken("é" * 20, normalized=False)])
    assert len(backend.encode("é" * 20).ids) == 1
    assert max_bytes_per_token(backend) == 40


def test_an_added_token_may_be_longer_when_it_is_normalized():
    backend = backend_of(byte_level())
    backend.normalizer = normalizers.NFKC()
    backend.add_tokens([AddedToken("\ufdfa", normalized=True)])
    text = normalizers.NFKC().normalize_str("\ufdfa")
    assert len(backend.encode(text).ids) == 1
    assert max_bytes_per_token(backend) == 4 * len(text.encode()) > 4 * 14


@pytest.mark.parametrize("side", ["lstrip", "rstrip"])
def test_a_token_that_takes_the_blanks_beside_it_leaves_no_bound(side):
    backend = backend_of(byte_level())
    backend.add_tokens([AddedToken("<mask>", normalized=False, **{side: True})])
    blanks = " " * 1000
    assert len(backend.encode(blanks + "<mask>" + blanks).ids) < 1100
    assert max_bytes_per_token(backend) is None


def test_bytes_that_a_byte_level_vocabulary_lacks_leave_no_bound():
    backend = byte_level_of(models.BPE())
    backend.train_from_iterator(["abc"], trainers.BpeTrainer(show_progress=False))
    assert backend.encode("日" * 1000).ids == []
    assert max_bytes_per_token(backend) is None


def test_a_byte_that_a_vocabulary_with_fallback_lacks_leaves_no_bound():
    backend = backend_of(byte_fallback())
    backend.model = fallback_model(1, without=["<0xC0>", "<0xFF>"])  # no text has these
    assert max_bytes_per_token(backend)
    backend.model = fallback_model(1, without=["<0xE6>"])
    assert len(backend.encode("日" * 1000, add_special_tokens=False).ids) == 1  # "▁" before it
    assert max_bytes_per_token(backend) is None


ALPHABET = {name: index for index, name in enumerate(pre_tokenizers.ByteLevel.alphabet())}


@pytest.mark.parametrize(
    "model",
    [
        models.WordLevel(ALPHABET | {"<unk>": 256}, unk_token="<unk>"),
        models.BPE(vocab=ALPHABET, merges=[], end_of_word_suffix="</w>"),
        models.BPE(vocab=ALPHABET, merges=[], continuing_subword_prefix="##"),
    ],
)
def test_words_that_may_be_unknown_leave_no_bound(model):
    assert max_bytes_per_token(byte_level_of(model)) is None


@pytest.mark.parametrize(("step", "longest"), [(1, 1), (2, None)])
def test_a_vocabulary_with_unused_ids_leaves_no_bound(step, longest):
    vocab = {name: step * index for name, index in ALPHABET.items()}
    assert max_bytes_per_token(byte_level_of(models.BPE(vocab=vocab, merges=[]))) == longest


def byte_level_of(model):
    backend = Backend(model)
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return backend
