"""The byte-level BPE tokenizer; it encodes and decodes every Unicode string without loss."""

from collections.abc import Iterable
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

VOCABULARY = 2048
END_OF_TEXT = "<|endoftext|>"
TURN_START = "<|im_start|>"
TURN_END = "<|im_end|>"
SPECIAL = (END_OF_TEXT, TURN_START, TURN_END)
VISIBLE = (
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
)
"""Markup with one token each. It stays in the decoded text, for the parsers of the server."""

CONTEXT = 2048
SPLIT = r" ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
"""Words with their leading space, single digits, punctuation, runs of whitespace."""

TEMPLATE = Path(__file__).with_name("chat_template.jinja")


def train_tokenizer(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """Learn the merges from ``texts``."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(VISIBLE),
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer)
    backend.add_tokens([AddedToken(mark, normalized=False, special=False) for mark in VISIBLE])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token=TURN_END,
        pad_token=END_OF_TEXT,
        clean_up_tokenization_spaces=False,
        model_max_length=CONTEXT,
        chat_template=TEMPLATE.read_text(encoding="utf-8").rstrip("\n"),
    )
