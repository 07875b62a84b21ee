"""Generates the training text of the built-in model."""

from training.corpus.chat import Conversation, Document
from training.corpus.mixture import example
from training.corpus.source import HeldOutSource, Source

HELD_OUT = 2_000


def training_examples(seed: int, count: int) -> list[Conversation | Document]:
    source = Source(seed)
    return [example(source) for _ in range(count)]


def held_out_examples(seed: int, count: int = HELD_OUT) -> list[Conversation | Document]:
    """Examples with phrasings, sums and tools that the training examples never contain."""
    source = HeldOutSource(seed + 1_000_003)
    return [example(source) for _ in range(count)]
