"""The text of benchmarks/quality.py: our documentation and generated stories, facts and sums."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from core.text.tokenizer import Tokenizer
from training.corpus import held_out_examples
from training.corpus.chat import Document

WINDOW = 512
"""Tokens of a sequence."""

DOCS = Path(__file__).parents[1] / "docs"


def text_parts() -> Iterator[str]:
    """Documentation and generated text in turns."""
    drawn = (e.text for e in held_out_examples(1, 4_000) if isinstance(e, Document))
    for page in sorted(DOCS.glob("*.md")):
        text = page.read_text("utf-8")
        for at in range(0, len(text), 4_000):
            piece, generated = text[at : at + 4_000], ""
            while len(generated) < len(piece):
                generated += next(drawn) + "\n\n"
            yield piece + "\n\n" + generated


def windows(tokenizer: Tokenizer, num_tokens: int) -> Iterator[list[int]]:
    """Sequences of WINDOW tokens, with the tokens that the tokenizer puts before a text."""
    before = tokenizer.encode("", add_special_tokens=True)
    size = WINDOW - len(before)
    ids: list[int] = []
    parts = text_parts()
    for _ in range(-(-num_tokens // WINDOW)):
        while len(ids) < size:
            ids += tokenizer.encode(next(parts), add_special_tokens=False)
        yield before + ids[:size]
        ids = ids[size:]
