"""Rates of torch's matrix products on this machine; prints them as one line of JSON.

python -m benchmarks.matmul
"""

from __future__ import annotations

import functools
import json
from typing import Any

import torch
from torch.nn.functional import linear

from benchmarks.probe import fastest, num_cores
from core.system.private_names import int8_matmul

ROTATED_BYTES = 256e6
"""Bytes of weights that ``linear_table`` cycles through, so that they come from memory."""

ROWS = (1, 8, 32, 64, 256)

GEMM = (256, 4096, 1024)
"""Rows, output features and input features of the product that gives the operation rate."""


def gemm_gflops() -> dict[str, float]:
    """The rate of a matrix product of 256 rows by the type of its inputs, in GFLOP/s."""
    torch.set_num_threads(num_cores())
    rows, outputs, inputs = GEMM
    operations = 2 * rows * outputs * inputs
    found = {}
    with torch.inference_mode():
        for dtype in (torch.bfloat16, torch.float32):
            x, w = torch.randn(rows, inputs).to(dtype), torch.randn(outputs, inputs).to(dtype)
            seconds = fastest(functools.partial(linear, x, w))
            found[str(dtype).removeprefix("torch.")] = operations / seconds / 1e9
        a = torch.randint(-9, 9, (rows, inputs), dtype=torch.int8)
        b = torch.randint(-9, 9, (inputs, outputs), dtype=torch.int8)
        seconds = fastest(functools.partial(int8_matmul(), a, b))
        found["int8"] = operations / seconds / 1e9
    return found


def linear_table(matrices: dict[str, tuple[int, int]], dtype: str) -> list[dict[str, Any]]:
    """Time F.linear for each matrix and number of rows; weights come from memory."""
    torch.set_num_threads(num_cores())
    kind = getattr(torch, dtype)
    table = []
    with torch.inference_mode():
        for name, (outputs, inputs) in matrices.items():
            num_bytes = outputs * inputs * kind.itemsize
            num_copies = max(1, int(ROTATED_BYTES / num_bytes))
            weights = [torch.randn(outputs, inputs).to(kind) for _ in range(num_copies)]
            for rows in ROWS:
                x = torch.randn(rows, inputs).to(kind)

                def multiply(x: torch.Tensor = x, weights: list[torch.Tensor] = weights) -> None:
                    for w in weights:
                        linear(x, w)

                seconds = fastest(multiply, limit=0.3) / num_copies
                table.append(
                    {
                        "matrix": name,
                        "outputs": outputs,
                        "inputs": inputs,
                        "dtype": dtype,
                        "rows": rows,
                        "us": seconds * 1e6,
                        "gflops": 2 * rows * outputs * inputs / seconds / 1e9,
                        "weight_gbs": num_bytes / seconds / 1e9,
                    }
                )
    return table


if __name__ == "__main__":
    print(json.dumps(gemm_gflops()))
