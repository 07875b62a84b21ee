"""A token's logits depend on its sequence alone: not on batch, chunks, threads or other tokens."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch

from core.kernels.cpu.library import kernels
from tests.core.models.twins import compiled_run
from tests.support.described import FAMILIES, FLOAT32, INT8, WEIGHTS, edited, executor_of
from tests.support.each import each
from tests.support.mixtures import mixture
from tests.support.threads import num_threads

pytestmark = pytest.mark.skipif(kernels() is None, reason="no C++ compiler")

PROMPTS = [torch.arange(3, 3 + length) for length in (90, 5, 33)]


def logits(source: str | Path, weights: tuple[str, str], count: int, *, in_chunks: bool) -> bytes:
    """The logits of all tokens as bytes, computed by ``count`` threads."""
    with num_threads(count), torch.inference_mode():
        run = compiled_run(executor_of(source, weights), len(PROMPTS))
        found = run.in_chunks(PROMPTS) if in_chunks else run.whole(PROMPTS)
    assert not torch.cat(found).isnan().any()
    return torch.cat(found).numpy().tobytes()


@pytest.mark.slow
@each("family, weights", product(FAMILIES, WEIGHTS))
def test_chunks_in_batches_have_the_bits_of_whole_prompts(
    family: str, weights: tuple[str, str]
) -> None:
    alone = logits(family, weights, 1, in_chunks=False)
    assert logits(family, weights, 2, in_chunks=True) == alone
    assert logits(family, weights, 2, in_chunks=False) == alone


@each("weights", [FLOAT32, INT8])
def test_threads_that_come_late_pass_the_same_stages(
    weights: tuple[str, str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Late threads would otherwise read the number of rows of an expert of a later layer."""
    folder = tmp_path_factory.mktemp("deep")
    sizes = {"hidden_size": 128, "num_experts": 16, "moe_intermediate_size": 64}
    mixture("qwen3_moe", num_hidden_layers=8, **sizes).save_pretrained(folder)
    found = {logits(folder, weights, count, in_chunks=True) for count in (1, 12)}
    assert len(found) == 1


ODD = 210
"""A token whose embedding has a value that is no number."""


@each("family", ["llama", "qwen3_moe", "gpt_oss", "phi", "olmo2"])
@each("value", [torch.nan, torch.inf, -torch.nan])
def test_a_token_that_is_not_a_number_spoils_no_other(
    family: str, value: float, tmp_path: Path
) -> None:
    """Other sequences keep their logits, and its router chooses experts that exist."""

    def spoil(model: Any) -> None:
        model.get_input_embeddings().weight[ODD, 7] = value

    expected = compiled_run(executor_of(family), len(PROMPTS)).whole(PROMPTS)
    spoilt = [torch.cat([PROMPTS[0][:60], torch.tensor([ODD, 9])]), *PROMPTS[1:]]
    executor = executor_of(edited(family, spoil, tmp_path))
    found = compiled_run(executor, len(PROMPTS)).in_chunks(spoilt)
    assert found[0][60].isnan().all()
    assert all(map(torch.equal, found[1:], expected[1:]))
