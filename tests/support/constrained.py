"""Constrained generation from random logits, without a model."""

from __future__ import annotations

import functools

import pytest
import torch

from core.contract.errors import InvalidRequest
from core.contract.grammar import Grammar
from core.grammar.compiler import GrammarCompiler
from core.grammar.processor import GrammarProcessor
from core.sampling.processors import default_processors
from core.sampling.sampler import Sampler
from core.state.sequence import Sequence
from core.text.tokenizer import Tokenizer
from tests.support.builders import make_sequence
from tests.support.tokenizers import byte_level

CPU = torch.device("cpu")


@functools.cache
def builtin() -> Tokenizer:
    return Tokenizer.load("core/builtin_model/weights")


@functools.cache
def tiny() -> Tokenizer:
    return Tokenizer(byte_level())


def refusal(decoder: Decoder, grammar: Grammar) -> str:
    """Return the message with which the compiler refuses a grammar."""
    with pytest.raises(InvalidRequest) as refused:
        decoder.compiler.check(grammar, param="response_format")
    assert refused.value.param == "response_format"
    assert len(refused.value.message) < 400
    return refused.value.message


class Decoder:
    """A sampler with a grammar processor, and random logits."""

    def __init__(self, tokenizer: Tokenizer | None = None, *, vocab_size: int | None = None):
        self.tokenizer = tokenizer or builtin()
        self.vocab_size = vocab_size or self.tokenizer.vocab_size
        assert self.tokenizer.eos_token_id is not None
        self.eos = self.tokenizer.eos_token_id
        self.compiler = GrammarCompiler(
            self.tokenizer.vocabulary, [self.eos], vocab_size=self.vocab_size
        )
        self.processor = GrammarProcessor(self.compiler, CPU, max_wait_seconds=60.0)
        self.sampler = Sampler(processors=(self.processor, *default_processors((self.eos,))))

    def sequence(self, grammar: Grammar | None, *, seed: int = 0, **params) -> Sequence:
        if grammar is not None:
            self.compiler.check(grammar, salt=params.get("cache_salt", ""))
        return make_sequence(
            (1, 2, 3),
            grammar=grammar,
            seed=seed,
            **{"max_tokens": 600, "temperature": 1.0, **params},
        )

    def logits(self, sequence: Sequence, favourites: tuple[int, ...] = ()) -> torch.Tensor:
        """Random logits that depend only on the seed and the position."""
        generator = torch.Generator().manual_seed(
            hash((sequence.params.seed, sequence.num_output_tokens))
        )
        logits = torch.randn(self.vocab_size, generator=generator)
        logits[list(favourites)] += 4.0
        return logits

    def step(self, sequences: list[Sequence], favourites: tuple[int, ...] = ()) -> list[bool]:
        """Append a token to each sequence; return which sequences failed."""
        logits = torch.stack([self.logits(sequence, favourites) for sequence in sequences])
        self.sampler.prepare(sequences)
        results = self.sampler(logits, sequences)
        for sequence, result in zip(sequences, results, strict=True):
            sequence.token_ids += result.token_ids
        return [result.failure is not None for result in results]

    def run(self, *sequences: Sequence, favourites: str = '"}]') -> list[str]:
        """Run all to their ends as one batch; return their texts, with "…" where one was cut.

        ``favourites`` are characters that are more likely, so that strings end.
        """
        favourite_ids = tuple(
            token_id
            for character in favourites
            for token_id in self.tokenizer.encode(character, add_special_tokens=False)
        )
        live = list(sequences)
        while live:
            failed = self.step(live, favourite_ids)
            assert not any(failed)
            live = [sequence for sequence in live if not self.is_done(sequence)]
        return [self.text(sequence) for sequence in sequences]

    def is_done(self, sequence: Sequence) -> bool:
        return (
            sequence.token_ids[-1] == self.eos and not sequence.params.ignore_eos
        ) or sequence.num_output_tokens >= sequence.params.max_tokens

    def output_ids(self, sequence: Sequence) -> list[int]:
        return sequence.token_ids[sequence.num_prompt_tokens :]

    def text(self, sequence: Sequence) -> str:
        ids = self.output_ids(sequence)
        is_cut = ids[-1] != self.eos
        return self.tokenizer.decode(
            [token_id for token_id in ids if token_id != self.eos], skip_special_tokens=False
        ) + ("…" if is_cut else "")

    def allowed(self, grammar: Grammar, text: str = "") -> set[int]:
        """The tokens that may follow a text."""
        sequence = self.sequence(grammar)
        sequence.token_ids += self.tokenizer.encode(text, add_special_tokens=False)
        logits = torch.zeros(1, self.vocab_size)
        self.processor.apply(logits, [0], [sequence])
        return set((logits[0] == 0).nonzero()[:, 0].tolist())

    def accepts(self, grammar: Grammar, text: str) -> bool:
        """Whether the text is a complete answer."""
        sequence = self.sequence(grammar)
        for token_id in self.tokenizer.encode(text, add_special_tokens=False):
            logits = torch.zeros(1, self.vocab_size)
            self.processor.apply(logits, [0], [sequence])
            if logits[0, token_id] != 0:
                return False
            sequence.token_ids.append(token_id)
        logits = torch.zeros(1, self.vocab_size)
        self.processor.apply(logits, [0], [sequence])
        return bool(logits[0, self.eos] == 0)
