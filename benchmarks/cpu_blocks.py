"""Time products with weights in blocks against the time of reading their bytes.

    OMP_NUM_THREADS=1 python -m benchmarks.cpu_blocks [--types Q4_K,Q6_K] [--rows 1,4,16,64]

The weights are rotated so that they come from memory. Prints the shortest of many rounds, the bytes
of the packed weights per second, and the share of the read bandwidth that ``benchmarks/probe.py``
measures between the rounds; then multiply-adds per second.

Kernels for another CPU, whose instructions this one has, too: ``--flags=-march=znver3``.
"""

from __future__ import annotations

import argparse
import functools

import numpy as np
import torch

from benchmarks.cpu_products import multiply as multiply_weight
from benchmarks.probe import fastest, probe
from core.gguf.blocks import BLOCK_TYPES
from core.kernels.cpu.bindings import Kernels
from core.kernels.cpu.blocks import BlockFormat, pack_blocks
from core.kernels.cpu.compiler import compiled_library
from core.kernels.cpu.library import kernels, load
from core.kernels.cpu.linear import Format, PackedWeight, pack

ROTATED_BYTES = 256e6


def kernels_with(flags: tuple[str, ...]) -> Kernels:
    """The kernels as this machine uses them, or compiled with more flags."""
    compiled = kernels()
    assert compiled is not None
    return load(compiled_library(more_flags=flags)) if flags else compiled


def weights_of(compiled: Kernels, name: str, outputs: int, inputs: int) -> list[PackedWeight]:
    """Enough copies of a random matrix not to stay in a cache."""
    types = {kind.name: kind for kind in BLOCK_TYPES.values()}
    if name in types:
        kind = types[name]
        fmt = BlockFormat.of(kind.code)
        assert fmt is not None
        data = np.random.default_rng(0).integers(
            0, 60, (outputs, kind.row_nbytes(inputs)), np.uint8
        )
        make = functools.partial(pack_blocks, compiled, fmt, [data], inputs, [None])
    else:
        weight = torch.randn(outputs, inputs)
        make = functools.partial(pack, compiled, [weight], [None], Format[name])
    first = make()
    return [first] + [make() for _ in range(int(ROTATED_BYTES / first.nbytes))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--types", default="BFLOAT16,INT8,Q8_0,Q6_K,Q5_K,Q5_0,Q4_K,Q4_1,Q4_0")
    parser.add_argument("--rows", default="1,4,16,64")
    parser.add_argument("--shape", default="3072x1024", help="outputs x inputs")
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--flags", default="", help="more flags of the compiler")
    options = parser.parse_args()
    compiled = kernels_with(tuple(options.flags.split()))
    outputs, inputs = map(int, options.shape.split("x"))
    threads = torch.get_num_threads()
    for name in options.types.split(","):
        weights = weights_of(compiled, name, outputs, inputs)
        for rows in map(int, options.rows.split(",")):
            x = torch.randn(rows, inputs)

            def multiply(x: torch.Tensor = x, weights: list[PackedWeight] = weights) -> None:
                for weight in weights:
                    multiply_weight(weight, x)

            rates = probe(threads)
            seconds = fastest(multiply, options.seconds) / len(weights)
            rate = weights[0].nbytes / seconds / 1e9
            print(
                f"{name:9} {rows:4} rows {seconds * 1e6:9.1f} us {rate:6.2f} GB/s "
                f"{100 * rate / rates.read_gbs:5.1f} % of {rates.read_gbs:.1f} "
                f"{rows * outputs * inputs / seconds / 1e9:8.1f} GMAC/s",
                flush=True,
            )


if __name__ == "__main__":
    main()
