"""Every backend equals the oracle on ragged random batches."""

import random

import numpy as np
import pytest
import torch

from benchmarks.attention_batch import shuffled_batch
from benchmarks.fill_cache import fill
from core.attention.base import BackendFactory, backend_factory
from core.batch.model_input import ModelInput
from core.contract.errors import ModelLoadError
from core.kv.layer_spec import LayerSpec
from core.kv.storage import KVStorage
from tests.support.sdpa_attention import SDPABackend

BLOCK_SIZE = 4
NUM_BLOCKS = 120

LAYERS = [
    LayerSpec(6, 2, 16, 16, 0.3, None),
    LayerSpec(6, 2, 16, 16, 0.3, 7),
    LayerSpec(4, 4, 8, 12, 0.5, None),
    LayerSpec(4, 1, 8, 8, 0.5, 1),
    LayerSpec(6, 2, 16, 16, 0.6, None, softcap=1.5),
    LayerSpec(6, 2, 16, 16, 0.3, None, sinks=torch.linspace(-3, 5, 6)),
    LayerSpec(4, 1, 8, 12, 0.9, 7, softcap=2.0, sinks=torch.linspace(5, -3, 4)),
]


def batch_of(shapes: list[tuple[int, int]], rng: random.Random) -> ModelInput:
    return shuffled_batch(shapes, BLOCK_SIZE, NUM_BLOCKS, rng)


def run(
    factory: BackendFactory,
    batch: ModelInput,
    dtype: torch.dtype,
    layer: int,
    states: list[torch.Tensor],
    poisoned: int | None = None,
) -> torch.Tensor:
    storage = KVStorage(
        LAYERS,
        num_blocks=NUM_BLOCKS,
        block_size=BLOCK_SIZE,
        dtype=dtype,
        device=torch.device("cpu"),
    )
    backend = factory(storage, LAYERS)
    fill(backend, storage, LAYERS[layer], layer, seed=1)
    if poisoned is not None:
        for tensor in (storage.keys[layer], storage.values[layer]):
            tensor[poisoned] = float("nan")
    backend.plan(batch)
    return backend.forward(*states, layer)


@pytest.mark.parametrize("name", ["torch", "cpu"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("layer", range(len(LAYERS)))
@pytest.mark.parametrize(
    "shapes",
    [
        [(0, 1)],
        [(13, 1), (0, 1), (40, 1), (3, 1)],
        [(0, 9), (8, 1), (5, 17), (30, 2), (29, 3), (16, 16), (2, 1)],
        "random",
    ],
    ids=["one", "decodes", "mixed", "random"],
)
def test_a_backend_equals_the_oracle(
    shapes: list[tuple[int, int]] | str, layer: int, dtype: torch.dtype, name: str
) -> None:
    rng = random.Random(layer)
    if isinstance(shapes, str):
        shapes = [(rng.randrange(40), rng.choice([1, 1, 1, 5, 20])) for _ in range(12)]
    batch = batch_of(shapes, rng)
    spec, num_tokens = LAYERS[layer], len(batch.slots)
    generator = torch.Generator().manual_seed(2)
    states = [
        torch.randn(num_tokens, heads, dim, generator=generator).to(dtype)
        for heads, dim in (
            (spec.num_heads, spec.head_dim),
            (spec.num_kv_heads, spec.head_dim),
            (spec.num_kv_heads, spec.value_dim),
        )
    ]
    expected = run(SDPABackend, batch, dtype, layer, states)
    actual = run(backend_factory(name), batch, dtype, layer, states)
    assert actual.shape == (num_tokens, spec.num_heads, spec.value_dim)
    tolerance = 1e-5 if dtype == torch.float32 else 3e-2
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", ["torch", "cpu"])
@pytest.mark.parametrize("layer", [1, 3])
def test_blocks_before_every_window_are_not_read(layer: int, name: str) -> None:
    """Their entries may name any block, even one of another sequence that holds NaN."""
    shapes = [(0, 9), (8, 1), (5, 17), (30, 2), (61, 1), (29, 3), (16, 16)]
    batch = batch_of(shapes, random.Random(0))
    spec = LAYERS[layer]
    poisoned = next(iter(set(range(NUM_BLOCKS)) - set(batch.block_tables.flatten().tolist())))
    states = [
        torch.randn(len(batch.slots), heads, dim)
        for heads, dim in (
            (spec.num_heads, spec.head_dim),
            (spec.num_kv_heads, spec.head_dim),
            (spec.num_kv_heads, spec.value_dim),
        )
    ]
    expected = run(backend_factory(name), batch, torch.float32, layer, states)
    num_released = release(batch, spec, poisoned)
    assert num_released > 10

    assert torch.equal(
        run(backend_factory(name), batch, torch.float32, layer, states, poisoned), expected
    )


def release(batch: ModelInput, layer: LayerSpec, block: int) -> int:
    """Put ``block`` in place of those that no query sees; returns how many."""
    assert layer.sliding_window is not None
    first_queries = batch.context_lens - np.diff(batch.query_starts)
    num_hidden = np.maximum(first_queries - layer.sliding_window + 1, 0) // BLOCK_SIZE
    is_hidden = np.arange(batch.block_tables.shape[1]) < num_hidden[:, None]
    batch.block_tables[is_hidden] = block
    return int(is_hidden.sum())


def test_an_unknown_backend_is_an_error_with_the_known_names() -> None:
    with pytest.raises(ModelLoadError, match=r"'warp'; choose auto, cpu, torch, triton$"):
        backend_factory("warp")
