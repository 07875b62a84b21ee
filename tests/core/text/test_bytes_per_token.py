from copy import deepcopy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, normalizers, pre_tokenizers

from core.text.tokenizer import Tokenizer
from tests.support.tokenizers import byte_fallback, byte_level

BUILDERS = {"byte_level": byte_level, "byte_fallback": byte_fallback}


@pytest.mark.parametrize("name", BUILDERS)
@settings(max_examples=60, deadline=None)
@given(text=st.text(max_size=200) | st.text(alphabet=" aé\n\u0301", max_size=200))
def test_no_text_has_more_bytes_for_each_token(name, text):
    tokenizer = Tokenizer(BUILDERS[name]())
    most = tokenizer.max_bytes_per_token
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert len(text.encode()) <= len(ids) * most + 1  # a leading space may be implied


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
            [pre_tokenizers.Split(" ", "removed"), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        ),
    ],
)
def test_a_splitter_that_may_drop_text_leaves_no_bound(splitter):
    backend = deepcopy(byte_level())
    backend.backend_tokenizer.pre_tokenizer = splitter
    assert Tokenizer(backend).max_bytes_per_token is None
