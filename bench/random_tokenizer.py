"""A tokenizer for random models, made without a corpus: a byte-level BPE that is a prefix tree.

Every merge appends one letter to a token that begins with a space. So a word is merged from its
first letter on, as far as the tree goes, and no two merges compete. All prefixes of the words in
``WORDS`` are in the tree, so each of these words is exactly one token. The rest of the vocabulary
is filled with further prefixes, short ones first: a space and three or four letters, about as
long as the tokens of real models.
"""

from __future__ import annotations

import string
from collections.abc import Iterator
from itertools import count, product
from pathlib import Path
from typing import Any

import msgspec

from bench.words import WORDS

END_OF_TEXT, TURN_START, TURN_END = SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")

SPACE = "\u0120"
"""A space in byte-level BPE."""

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def write_tokenizer(
    directory: Path, *, vocab_size: int, eos_token: str, context: int
) -> dict[str, int]:
    """Write ``tokenizer.json`` and its configuration; return the ids of the special tokens."""
    from tokenizers import (  # noqa: PLC0415 - slow to import
        AddedToken,
        Tokenizer,
        decoders,
        models,
        pre_tokenizers,
    )

    vocab, merges = _tree(sorted(pre_tokenizers.ByteLevel.alphabet()), vocab_size - len(SPECIAL))
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    # the stubs of tokenizers declare these attributes as read-only
    settable: Any = tokenizer
    settable.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    settable.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, normalized=False) for text in SPECIAL])
    tokenizer.save(str(directory / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": END_OF_TEXT,
        "eos_token": eos_token,
        "pad_token": END_OF_TEXT,
        "model_max_length": context,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    (directory / "tokenizer_config.json").write_bytes(msgspec.json.encode(config))
    return {text: vocab_size - len(SPECIAL) + i for i, text in enumerate(SPECIAL)}


def silent_token_ids(vocab_size: int) -> list[int]:
    """Return the ids that must never be generated: all but printable ASCII and merged tokens."""
    from tokenizers import pre_tokenizers  # noqa: PLC0415 - slow to import

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    shown = {SPACE, *string.ascii_letters, *string.digits, *string.punctuation}
    special = range(vocab_size - len(SPECIAL), vocab_size)
    return [i for i, character in enumerate(alphabet) if character not in shown] + [*special]


def _tree(alphabet: list[str], size: int) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Return a vocabulary of exactly ``size`` tokens and its merges."""
    vocab = {character: i for i, character in enumerate(alphabet)}
    merges: list[tuple[str, str]] = []
    for token in _prefixes():
        if len(vocab) == size:
            return vocab, merges
        if token not in vocab:
            vocab[token] = len(vocab)
            merges.append((token[:-1], token[-1]))
    raise AssertionError("the prefixes are endless")


def _prefixes() -> Iterator[str]:
    """Yield every prefix of the words, then all strings of letters, short ones first."""
    for word in WORDS:
        for end in range(1, len(word) + 1):
            yield SPACE + word[:end]
    for length in count(1):
        for letters in product(string.ascii_lowercase, repeat=length):
            yield SPACE + "".join(letters)
