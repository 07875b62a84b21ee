"""Tokenizers as metadata, and back."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
from tokenizers import Regex, decoders, normalizers
from tokenizers import pre_tokenizers as pre

from core.contract.errors import ModelLoadError
from core.export.vocabulary import describe_tokenizer
from core.export.writer import header
from core.gguf.metadata import Metadata
from core.gguf.reader import read_header
from core.gguf.vocabulary.pre_tokenizers import PRE_TOKENIZERS
from core.gguf.vocabulary.tokenizer import splitter, tokenizer_of
from core.text.fast_tokenizer import FastTokenizer
from tests.support.tokenizers import TEXTS, byte_fallback, byte_level

KINDS = {replace(kind, adds_bos=False): name for name, kind in reversed(PRE_TOKENIZERS.items())}
"""The first name of every way to split. Files say themselves whether BOS is added."""


def changed(**parts):
    """A byte-level tokenizer with other parts."""
    tokenizer = copy.deepcopy(byte_level())
    for name, part in parts.items():
        setattr(tokenizer.backend_tokenizer, name, part)
    return tokenizer


def again(keys):
    data = np.frombuffer(header({"general.architecture": "llama", **keys}, ()), np.uint8)
    backend, named, template = tokenizer_of(Metadata(read_header(data).metadata))
    return FastTokenizer(backend, named, chat_template=template)


@pytest.mark.parametrize("kind", KINDS, ids=KINDS.values())
def test_a_pre_tokenizer_gets_its_name(kind):
    tokenizer = changed(pre_tokenizer=splitter(kind))
    if kind.is_nfc:
        tokenizer.backend_tokenizer.normalizer = normalizers.NFC()
    tokenizer.backend_tokenizer.model.ignore_merges = kind.ignores_merges
    keys = describe_tokenizer(tokenizer, "llama", 512, [])
    assert keys["tokenizer.ggml.pre"] == KINDS[kind]


def test_digits_before_bytes_are_smollms():
    both = pre.Sequence([pre.Digits(individual_digits=True), pre.ByteLevel(add_prefix_space=False)])
    keys = describe_tokenizer(changed(pre_tokenizer=both), "llama", 512, [])
    assert keys["tokenizer.ggml.pre"] == "smollm"


@pytest.mark.parametrize("make", [byte_level, byte_fallback])
def test_a_tokenizer_is_read_as_it_was_written(make):
    tokenizer = make()
    size = len(tokenizer) + 7
    keys = describe_tokenizer(tokenizer, "llama", size, [])
    found = again(keys)
    assert keys["tokenizer.ggml.tokens"][-1] == f"[PAD{size - 1}]"
    assert keys["tokenizer.ggml.token_type"][-1] == 5
    for text in (*TEXTS, f"a{tokenizer.eos_token}b"):
        ids = tokenizer(text).input_ids
        assert found.backend_tokenizer.encode(text).ids == ids
        assert found.backend_tokenizer.decode(ids) == tokenizer.backend_tokenizer.decode(ids)
    assert found.special_tokens_map == tokenizer.special_tokens_map
    assert found.chat_template == tokenizer.chat_template


def test_sentencepiece_gets_scores_in_the_order_of_merges():
    keys = describe_tokenizer(byte_fallback(), "llama", len(byte_fallback()), [])
    tokens = keys["tokenizer.ggml.tokens"]
    scores = dict(zip(tokens, keys["tokenizer.ggml.scores"].tolist(), strict=True))
    assert scores["▁t"] > scores["he"] > scores["▁the"] > scores["▁▁"] > scores["a"]
    types = dict(zip(tokens, keys["tokenizer.ggml.token_type"].tolist(), strict=True))
    assert (types["<unk>"], types["</s>"], types["<0x0A>"], types["he"]) == (2, 3, 6, 1)


def test_tokenizers_that_a_file_cannot_hold_are_refused():
    odd = pre.Sequence([pre.Split(Regex("[aeiou]"), "isolated"), pre.ByteLevel(use_regex=False)])
    upper = normalizers.Lowercase()
    padded = changed()
    padded.add_tokens(["[PAD511]"])
    for tokenizer, size, message in (
        (changed(pre_tokenizer=odd), 512, "splits text as none of the pre-tokenizers"),
        (changed(normalizer=upper), 512, "would read 'Hello world' otherwise"),
        (changed(decoder=decoders.Fuse()), 512, "would read"),
        (byte_level(), 300, "beyond 300 rows of embeddings"),
        (padded, 512, "a token that looks like padding"),
        (object(), 300, "object has no fast tokenizer"),
    ):
        with pytest.raises(ModelLoadError, match=message):
            describe_tokenizer(tokenizer, "llama", size, [])
