"""Bits of the compiled executor: they do not depend on the step that a token is computed in."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from core.kernels.cpu.library import kernels
from core.kernels.cpu.linear import Format
from tests.core.models.cases import CASES, Case
from tests.core.models.twins import Twin, batch_of

KERNELS = kernels()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(KERNELS is None, reason="no C++ compiler"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.family)
def test_a_token_has_the_same_bits_in_every_step(case: Case, tmp_path: Path) -> None:
    """Alone, beside others, after a cached part, and where only last tokens get logits."""
    assert KERNELS is not None
    twin = Twin(case, tmp_path)
    for fmt in (Format.FLOAT32, Format.BFLOAT16, Format.INT8):
        run, prompts = twin.compiled(KERNELS, fmt), twin.prompts
        alone = run.whole(prompts)
        expected = torch.stack([logits[-1] for logits in alone])
        assert torch.isfinite(expected).all()
        together = batch_of([(i, prompt, 0) for i, prompt in enumerate(prompts)])
        every = replace(together, logits_indices=torch.arange(len(together.token_ids)))
        assert torch.equal(run.step(every).values, torch.cat(alone))
        assert torch.equal(run.step(together).values, expected)
        assert run.step(replace(together, wants_best=True)).best == expected.argmax(-1).tolist()
        run.step(batch_of([(i, prompt[:-1], 0) for i, prompt in enumerate(prompts)]))
        last = batch_of([(i, prompt[-1:], len(prompt) - 1) for i, prompt in enumerate(prompts)])
        assert torch.equal(run.step(last).values, expected)
