"""Buffers of steps beside weights: angles and logits."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest
import torch
from transformers import Phi3Config

from core.executors.angles import AngleTable
from core.executors.buffers import LEAST_ROWS, LogitsBuffer
from core.kernels.cpu.library import kernels
from core.kernels.cpu.structures import ANGLES
from tests.core.models.twins import compiled_run
from tests.support.checkpoints import DECODER, random_model
from tests.support.described import assembled, executor_of, loaded
from tests.support.each import each
from tests.support.tiny_engine import assert_generated, run_prompts

LENGTH = 32
"""Up to this context LongRoPE has its short factors."""

LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 1e4,
    "short_factor": [1.0, 1.1, 1.2, 1.3],
    "long_factor": [1.0, 2.0, 4.0, 8.0],
}


@each("sizes", [[1, 2, 300], [700], [255, 256, 257, 512, 513]])
def test_angles_are_those_of_their_positions(sizes: list[int]) -> None:
    def angles_of(positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        angles = positions[..., None] * torch.tensor([1.0, 0.1, 0.01])
        return angles.cos(), angles.sin()

    table = AngleTable(angles_of)
    for size in sizes:
        table.cover(size)
        assert size <= table.num_positions < size + ANGLES or table.num_positions == max(sizes)
        expected = angles_of(torch.arange(size)[None])
        for address, wanted in zip(table.addresses, expected, strict=True):
            runs = (ctypes.c_void_p * (table.num_positions // ANGLES)).from_address(address)
            rows = [(ctypes.c_float * (ANGLES * 3)).from_address(run) for run in runs]
            known = torch.cat([torch.tensor(list(row)).view(-1, 3) for row in rows])
            assert torch.equal(known[:size], wanted[0])


@pytest.mark.skipif(kernels() is None, reason="no C++ compiler")
def test_another_length_has_angles_of_its_own(tmp_path: Path) -> None:
    """The angles of a served context do not depend on an earlier one."""
    first = {"original_max_position_embeddings": LENGTH}
    model = random_model(Phi3Config(**DECODER, **first, rope_parameters=LONGROPE | first))
    model.save_pretrained(tmp_path)
    described, prompt = loaded(tmp_path), [*range(3, 20)]
    executor = executor_of(tmp_path)
    found = []
    for length, given in ((LENGTH, prompt), (2 * LENGTH, 2 * prompt), (LENGTH, prompt)):
        engine = assembled(described, max_model_len=length).engine
        assert_generated(model, [given], run_prompts(engine, [given], 12))
        executor.fix_length(length)
        with torch.inference_mode():
            found += compiled_run(executor, 1).whole([torch.tensor(prompt)])
    assert torch.equal(found[0], found[2])
    assert not torch.allclose(found[0], found[1], rtol=1e-2, atol=1e-2)


def test_up_to_eight_rows_of_logits_have_the_same_memory() -> None:
    """Buffers that it has outgrown stay resident as long as their neighbours in memory."""
    buffer = LogitsBuffer(40)
    places = {buffer.of(rows).address for rows in range(1, LEAST_ROWS + 1)}
    assert len(places) == 1
    grown = {buffer.of(rows).address for rows in range(LEAST_ROWS + 1, 17)}
    assert len(grown) == 1
    assert grown != places
    assert buffer.of(0).logits.shape == (0, 40)


@each("rows", [1, 3, 40])
def test_rows_of_logits_start_at_cache_lines(rows: int) -> None:
    """GPT-2's vocabulary has an odd size."""
    room = LogitsBuffer(65).of(rows)
    assert room.logits.shape == (rows, 65)
    starts = [row.data_ptr() for row in room.logits]
    assert starts == [room.address + 4 * room.stride * row for row in range(rows)]
    assert {start % 64 for start in starts} == {0}
