"""Edits in the kernel are those of torch, bit by bit."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest
import torch

from core.kernels.cpu.library import kernels
from core.sampling.processors import bias, penalties
from core.sampling.processors.bias import Bias
from core.sampling.processors.penalties import Penalties
from core.sampling.processors.protocol import LogitsProcessor
from core.state.sequence import Sequence
from tests.core.sampling.builders import make_logits, make_sequence
from tests.support.each import each

pytestmark = pytest.mark.skipif(kernels() is None, reason="no C++ compiler")

VOCAB_SIZE = 500
ROWS = [0, 2, 3]
"""Of four: those between are other requests'."""


def check(
    monkeypatch: pytest.MonkeyPatch,
    module: ModuleType,
    make: Callable[[], LogitsProcessor],
    sequences: list[Sequence],
) -> None:
    """New processors of ``module`` change logits, with the kernel exactly as without."""
    own = make_logits(4, VOCAB_SIZE)
    expected = own.clone()
    make().apply(own, ROWS, sequences)
    with monkeypatch.context() as patch:
        patch.setattr(module, "kernels", lambda: None)
        make().apply(expected, ROWS, sequences)
    assert torch.equal(own, expected)
    assert not torch.equal(own, make_logits(4, VOCAB_SIZE))


@each("repetition, frequency, presence", [(1.3, 0.7, -0.3), (0.9, 0.0, 0.0), (1.0, -0.1, 1.9)])
def test_penalties(
    monkeypatch: pytest.MonkeyPatch, repetition: float, frequency: float, presence: float
) -> None:
    sequences = [
        make_sequence(
            prompt=tuple(range(3, 300, 7 + row)),
            output=tuple((5 * i * i + row) % 450 for i in range(200)),
            repetition_penalty=repetition,
            frequency_penalty=frequency,
            presence_penalty=presence,
        )
        for row in ROWS
    ]
    check(monkeypatch, penalties, Penalties, sequences)


def test_bias(monkeypatch: pytest.MonkeyPatch) -> None:
    sequences = [
        make_sequence(logit_bias={row: 1.7, 44: -100.0, 499: 0.1, 500: 5.0, 10**12: 5.0})
        for row in ROWS
    ]
    check(monkeypatch, bias, Bias, sequences)
