"""What a step in one call of the kernel measures of itself."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch

from bench.in_process.stage_times import StageTimes
from core.batch.logits import Logits
from core.batch.model_input import ModelInput
from core.kernels.cpu.bindings import Kernels
from core.kernels.cpu.library import kernels
from core.kernels.cpu.linear import padded_rows
from core.run.forward import EagerForward, ForwardPass
from tests.support.checkpoints import VOCAB_SIZE, tiny_model
from tests.support.described import executor_of, wrapped
from tests.support.each import each
from tests.support.mixtures import MIXTURES
from tests.support.threads import num_threads
from tests.support.tiny_engine import request, run

pytestmark = pytest.mark.skipif(kernels() is None, reason="no C++ compiler")

OF_ALL_MODELS = {
    "start and end of threads",
    "embedding",
    "norms, rounding of their result",
    "queries, keys and values",
    "RoPE, writing keys and values",
    "attention of one token",
    "attention of several tokens",
    "output projection",
    "gate, up, activation",
    "down",
    "last norm",
    "output layer",
    "best tokens",
}
OF_MIXTURES = {"rounding", "router", "shared expert", "sum of experts"}
PRODUCTS = ("queries, keys and values", "output projection", "gate, up, activation", "down")


class Clocked:
    """A forward pass that keeps its logits, and surrounds the call of all layers with a clock."""

    def __init__(self, family: str, *, is_measured: bool, max_num_tokens: int = 256) -> None:
        library = kernels()
        assert library is not None
        self.logits: list[torch.Tensor] = []
        self.sizes: list[tuple[int, int, int]] = []
        self.stages = StageTimes(library)
        self.nanoseconds = 0
        self.library: Kernels = library
        executor = executor_of(family)
        if is_measured:
            executor.times = self
        self._engine = wrapped(executor, self._wrap, max_num_batched_tokens=max_num_tokens)

    def run(self, *lengths: int) -> None:
        """Prompts of so many tokens, which have no prefix in common."""
        run(self._engine, [request(str(n), [*range(3 + n % 7, 3 + n % 7 + n)], 4) for n in lengths])

    def __enter__(self) -> int:
        self.nanoseconds -= time.perf_counter_ns()
        return self.stages.address

    def __exit__(self, *_: object) -> None:
        self.nanoseconds += time.perf_counter_ns()

    def _wrap(self, eager: EagerForward) -> ForwardPass:
        self.eager = eager
        return self

    def __call__(self, batch: ModelInput) -> Logits:
        logits = self.eager(batch)
        self.logits.append(logits.values.clone())
        self.sizes.append((*batch.sizes, int(batch.num_seqs)))
        return logits

    @property
    def names(self) -> set[str]:
        """Of the stages that took any time."""
        spent = self.stages.sums[1:].sum((0, 2)).tolist()
        return {name for name, each in zip(self.stages.names, spent, strict=True) if each}

    def work(self, name: str) -> list[int]:
        """Multiplications and bytes."""
        numbers: list[int] = self.stages.sums[0, self.stages.names.index(name)].tolist()
        return numbers


@each("family", ["gpt2", "qwen3", "qwen2_moe"])
@each("count", [1, 2])
def test_every_stage_of_a_model_is_named(family: str, count: int) -> None:
    """Steps of a prompt, of a prompt beside a stream, and of streams."""
    with num_threads(count):
        clocked = Clocked(family, is_measured=True)
        clocked.run(90, 60)
    assert clocked.sizes[0][0] == 90
    assert (61, 2, 2) in clocked.sizes
    assert clocked.names == OF_ALL_MODELS | (OF_MIXTURES if family in MIXTURES else set())


@each("count", [1, 2])
def test_the_stages_of_each_thread_add_up_to_the_calls(count: int) -> None:
    with num_threads(count):
        clocked = Clocked("qwen3", is_measured=True)
        clocked.run(90, 60)
    of_threads = clocked.stages.sums[1:].sum((1, 2)).tolist()
    assert len(of_threads) == count
    assert len(set(of_threads)) == 1
    assert 0 < of_threads[0] <= clocked.nanoseconds
    assert clocked.stages.sums.min() >= 0


@each("family", ["gpt2", "qwen2_moe"])
def test_steps_that_are_measured_have_the_same_bits(family: str) -> None:
    found = []
    with num_threads(2):
        for is_measured in (False, True):
            clocked = Clocked(family, is_measured=is_measured)
            clocked.run(90, 60, 5)
            found.append(clocked)
    plain, measured = found
    assert not plain.names
    assert measured.names
    assert len(plain.logits) == len(measured.logits) > 4
    assert all(map(torch.equal, plain.logits, measured.logits))


def test_products_count_their_work() -> None:
    """After attention, the last layer has rows of the tokens that get logits alone."""
    clocked = Clocked("gpt2", is_measured=True)
    clocked.run(90)
    model: Any = tiny_model("gpt2")
    layers, hidden = model.config.num_hidden_layers, model.config.hidden_size
    num_tokens, num_logits, _ = map(sum, zip(*clocked.sizes, strict=True))
    assert (num_tokens, num_logits) == (93, 4)
    shapes = (3 * hidden, hidden), (hidden, hidden), (4 * hidden, hidden), (hidden, 4 * hidden)
    for name, (rows, columns) in zip(PRODUCTS, shapes, strict=True):
        num_multiplications, num_bytes = clocked.work(name)
        num_last = num_tokens if name == PRODUCTS[0] else num_logits
        assert num_multiplications == rows * columns * ((layers - 1) * num_tokens + num_last)
        padded = padded_rows(clocked.library, rows)
        assert num_bytes == 4 * padded * columns * layers * len(clocked.sizes)


def test_the_output_layer_counts_its_work() -> None:
    """It is read in steps with logits alone, and multiplied with the tokens that get some."""
    clocked = Clocked("gpt2", is_measured=True, max_num_tokens=64)
    clocked.run(150, 5)
    num_logits = [count for _, count, _ in clocked.sizes]
    assert min(num_logits) == 0
    assert max(num_logits) == 2
    size = VOCAB_SIZE * tiny_model("gpt2").config.hidden_size
    padded = padded_rows(clocked.library, VOCAB_SIZE)
    num_bytes = 4 * padded * size // VOCAB_SIZE * sum(map(bool, num_logits))
    assert clocked.work("output layer") == [size * sum(num_logits), num_bytes]


def test_attention_counts_its_work() -> None:
    """A prompt of 90 tokens, then a token at each of three places behind it; a float32 cache.

    The last layer attends for the last token of the prompt alone.
    """
    clocked = Clocked("gpt2", is_measured=True)
    clocked.run(90)
    model: Any = tiny_model("gpt2")
    layers, hidden = model.config.num_hidden_layers, model.config.hidden_size
    keys = layers * (91 + 92 + 93) + 90
    assert clocked.work("attention of one token") == [2 * hidden * keys, 8 * hidden * keys]
    pairs = (layers - 1) * sum(range(1, 91))
    assert clocked.work("attention of several tokens")[0] == 2 * hidden * pairs
