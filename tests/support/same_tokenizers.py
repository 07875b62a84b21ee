"""Compares a tokenizer that is read without transformers with the one that transformers loads."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from core.text.tokenizer_json import read_tokenizer
from tests.support.tokenizers import TEXTS

ALL_TEXTS = (
    *TEXTS,
    "",
    " ",
    " a<s>b </s> the<unk>",
    "<|im_start|>x <tool_call>y<new> <image>é e\u0301",
)


def check_same(folder: Path) -> None:
    """Compare everything that a tokenizer is with what transformers loads."""
    ours, theirs = read_tokenizer(folder), AutoTokenizer.from_pretrained(str(folder))
    for backend in (ours.backend_tokenizer, theirs.backend_tokenizer):
        backend.no_truncation()
        backend.no_padding()
    assert state_of(ours) == state_of(theirs)
    assert ours.special_tokens_map == theirs.special_tokens_map
    for name in ("bos_token", "unk_token", "chat_template", "model_max_length"):
        assert getattr(ours, name) == getattr(theirs, name)
    for name in ("bos_token_id", "eos_token_id", "pad_token_id", "unk_token_id"):
        assert getattr(ours, name) == getattr(theirs, name)
    assert len(ours) == len(theirs)
    assert ("token_type_ids" in ours.model_input_names) == (
        "token_type_ids" in theirs.model_input_names
    )
    try:
        theirs.encode("".join(ALL_TEXTS))
    except Exception as error:  # noqa: BLE001 - no token for unknown characters
        with pytest.raises(type(error), match=re.escape(str(error))):
            ours.backend_tokenizer.encode("".join(ALL_TEXTS))
        return
    for text in ALL_TEXTS:
        check_text(ours, theirs, text)


def state_of(tokenizer: Any) -> dict[str, Any]:
    state: dict[str, Any] = json.loads(tokenizer.backend_tokenizer.to_str())
    return state


def check_text(ours: Any, theirs: Any, text: str) -> None:
    for adds in (True, False):
        ids = ours.backend_tokenizer.encode(text, add_special_tokens=adds).ids
        assert ids == theirs.encode(text, add_special_tokens=adds)
        pair = ours.backend_tokenizer.encode(text, "the fox", add_special_tokens=adds)
        expected = theirs(text, "the fox", add_special_tokens=adds, return_token_type_ids=True)
        assert (pair.ids, pair.type_ids) == (expected.input_ids, expected.token_type_ids)
        for skips in (True, False):
            assert ours.decode(
                ids, skip_special_tokens=skips, clean_up_tokenization_spaces=False
            ) == theirs.decode(ids, skip_special_tokens=skips, clean_up_tokenization_spaces=False)
