"""The limits of this machine: memory bandwidth, arithmetic, and the floors that follow from them.

    python -m benchmarks.limits                      # rates, and those of F.linear
    python -m benchmarks.limits --model DIR          # ... for a model's matrices, and its floors
    python -m benchmarks.limits --probe 10           # read bandwidth and multiply-adds, ten times

``benchmarks/probe.py`` measures the rates, ``benchmarks/floors.py`` has the formula of the floors.
"""

from __future__ import annotations

import argparse
import json
import statistics
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.floors import Cost, floors
from benchmarks.probe import Rates, machine_of, num_cores, probe
from benchmarks.scenarios import scenarios
from benchmarks.shapes import Shape, shape_of


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--probe", type=int, metavar="TIMES")
    parser.add_argument("--model", type=Path, help="a model directory")
    parser.add_argument("--dtype", default="bfloat16,float32", help="of F.linear, comma-separated")
    parser.add_argument("--json", type=Path, help="write all results to this file too")
    options = parser.parse_args()
    if options.probe:
        _print_probes([probe() for _ in range(options.probe)])
        return
    found = _measure_all(options.model, options.dtype.split(","))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1), "utf-8")


def _print_probes(found: list[Rates]) -> None:
    for rates in found:
        print(f"read {rates.read_gbs:6.1f} GB/s   multiply-adds {rates.fma_gflops:7.1f} GFLOP/s")
    read = statistics.median(rates.read_gbs for rates in found)
    fma = statistics.median(rates.fma_gflops for rates in found)
    print(f"median {read:.1f} GB/s, {fma:.1f} GFLOP/s, {found[0].threads} threads")


def _measure_all(model: Path | None, dtypes: list[str]) -> dict[str, Any]:
    """Measure everything, printing each result as it comes."""
    from benchmarks.matmul import gemm_gflops  # noqa: PLC0415 - imports torch; --probe needs none

    found: dict[str, Any] = {"rates": []}
    for threads in sorted({1, num_cores()}):
        rates = probe(threads)
        found["rates"].append(asdict(rates))
        print(
            f"{threads} threads ({rates.method}): read {rates.read_gbs:.1f} GB/s, "
            f"multiply-adds {rates.fma_gflops:.1f} GFLOP/s, products in registers: "
            + (", ".join(f"{kind} {rate:.0f}" for kind, rate in rates.products.items()) or "none")
        )
    gemm = found["gemm"] = gemm_gflops()
    print("matrix product, GFLOP/s:", ", ".join(f"{k} {v:.0f}" for k, v in gemm.items()))
    if model is not None:
        shape = shape_of(model)
        found["floors"] = _floors(shape, rates, gemm)
        found["linear"] = _linear(shape, dtypes)
    return found


def _floors(shape: Shape, rates: Rates, gemm: dict[str, float]) -> dict[str, Any]:
    found = {}
    for dtype, weight_bytes in (("bfloat16", 2), ("int8", 1)):
        cost = Cost(shape=shape, weight_bytes=weight_bytes, kv_bytes=2)
        machine = machine_of(rates, gemm, dtype)
        for scenario in scenarios(shape.max_model_len).values():
            floor = found[f"{dtype} {scenario.name}"] = floors(scenario, cost, machine)
            shown = ", ".join(f"{figure} {value:.1f}" for figure, value in floor.items())
            print(f"floor, {dtype} {scenario.name}: {shown}")
    return found


def _linear(shape: Shape, dtypes: list[str]) -> list[dict[str, Any]]:
    from benchmarks.matmul import linear_table  # noqa: PLC0415 - imports torch

    found = []
    for dtype in dtypes:
        for row in linear_table(shape.matrices, dtype):
            found.append(row)
            print(
                f"F.linear {dtype} {row['matrix']} {row['outputs']} x {row['inputs']}, "
                f"{row['rows']} rows: {row['us']:.0f} us, {row['gflops']:.0f} GFLOP/s, "
                f"weights at {row['weight_gbs']:.1f} GB/s",
                flush=True,
            )
    return found


if __name__ == "__main__":
    main()
