"""Checks every attention backend against the torch backend in float32."""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch

from benchmarks.attention_batch import shuffled_batch
from benchmarks.fill_cache import fill
from benchmarks.gpu.options import Options
from benchmarks.gpu.rows import Row, in_one_line
from core.attention.base import backend_factory
from core.contract.errors import ModelLoadError
from core.kv.layer_spec import LayerSpec
from core.kv.storage import KVStorage

BACKENDS = {"cuda": ("torch", "triton"), "cpu": ("torch", "cpu")}
BLOCK_SIZE = 16
TOLERANCES = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 4e-2}

LAYERS = {
    "32 heads over 8": LayerSpec(32, 8, 128, 128, 128**-0.5, None),
    "12 heads": LayerSpec(12, 12, 64, 64, 0.125, None),
    "8 heads over 4, window": LayerSpec(8, 4, 256, 256, 0.0625, 512),
    "odd sizes": LayerSpec(6, 2, 80, 48, 0.2, None),
}
SHAPES = {
    "decodes": [(13, 1), (0, 1), (700, 1), (3, 1), (2047, 1), (255, 1), (256, 1)],
    "prompts": [(0, 300), (0, 17), (0, 1), (0, 64)],
    "mixed": [(700, 1), (0, 200), (1000, 65), (30, 2), (61, 1), (512, 512), (2, 1)],
}
"""(computed tokens, scheduled tokens) of each sequence."""


def attention(options: Options) -> Iterator[Row]:
    """Compare every backend with the torch backend in float32 on the CPU."""
    dtypes = [torch.float32] if options.tiny else list(TOLERANCES)
    for backend in BACKENDS[options.device]:
        for dtype in dtypes:
            try:
                errors = _errors(options, backend, dtype)
            except ModelLoadError as error:
                yield {"name": f"{backend} {dtype}", "skipped": in_one_line(error)}
                continue
            except Exception as error:  # noqa: BLE001 - the next backend can still be checked
                yield {"name": f"{backend} {dtype}", "ok": False, "says": in_one_line(error)}
                continue
            worst = max(errors, key=lambda key: errors[key])
            yield {
                "name": f"{backend} {dtype}",
                "ok": errors[worst] <= TOLERANCES[dtype],
                "max_error": errors[worst],
                "of": worst,
            }


def _errors(options: Options, backend: str, dtype: torch.dtype) -> dict[str, float]:
    """The largest error by layer and shape."""
    return {
        f"{layer_name}, {shape_name}": _error(options, backend, layer, shapes, dtype)
        for layer_name, layer in LAYERS.items()
        for shape_name, shapes in SHAPES.items()
        if not options.tiny or layer.head_dim <= 100
    }


def _error(
    options: Options,
    backend: str,
    layer: LayerSpec,
    shapes: list[tuple[int, int]],
    dtype: torch.dtype,
) -> float:
    """Largest error against the torch backend in float32 on the CPU, over the same numbers."""
    num_blocks = sum(-(-sum(shape) // BLOCK_SIZE) for shape in shapes) + 5
    batch = shuffled_batch(shapes, BLOCK_SIZE, num_blocks, random.Random(0))
    found = []
    for name, where, compute_dtype in (
        ("torch", torch.device("cpu"), torch.float32),
        (backend, torch.device(options.device), dtype),
    ):
        generator = torch.Generator().manual_seed(1)
        storage = KVStorage(
            [layer], num_blocks=num_blocks, block_size=BLOCK_SIZE, dtype=compute_dtype, device=where
        )
        sizes = (
            (layer.num_heads, layer.head_dim),
            (layer.num_kv_heads, layer.head_dim),
            (layer.num_kv_heads, layer.value_dim),
        )
        q, k, v = (
            torch.randn(len(batch.token_ids), *size, generator=generator)
            .to(dtype)
            .to(where, compute_dtype)
            for size in sizes
        )
        attend = backend_factory(name)(storage, [layer])
        with torch.inference_mode():
            fill(attend, storage, layer, 0, seed=2, rounded_to=dtype)
            attend.plan(batch.on(where))
            found.append(attend.forward(q, k, v, 0).float().cpu())
    return float((found[0] - found[1]).abs().max())
