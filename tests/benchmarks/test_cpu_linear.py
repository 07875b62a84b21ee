"""The times of matrix products beside their limits."""

import sys

import pytest
import torch

from benchmarks import cpu_linear
from benchmarks.cpu_linear import MODELS, Model
from benchmarks.probe import Rates, compiled
from core.kernels.cpu.library import kernels


@pytest.mark.skipif(kernels() is None or compiled("products.c") is None, reason="no C compiler")
def test_every_format_is_timed_and_added_up(monkeypatch, capsys):
    rates = Rates(threads=1, read_gbs=10.0, fma_gflops=1.0, method="given")
    monkeypatch.setattr(cpu_linear, "probe", lambda _threads: rates)
    monkeypatch.setenv("OMP_NUM_THREADS", str(torch.get_num_threads()))
    monkeypatch.setattr(cpu_linear, "ROTATED_BYTES", 1 << 16)
    monkeypatch.setitem(MODELS, "tiny", Model(2, {"up": (64, 64), "head": (128, 64)}))
    arguments = ["--models", "tiny", "--rows", "1,3", "--seconds", "0.001"]
    monkeypatch.setattr(sys, "argv", ["cpu_linear", *arguments])
    cpu_linear.main()
    printed = capsys.readouterr().out
    for name in ("float32", "bfloat16", "int8"):
        assert printed.count(f"64 x   64 {name:8}") == 2
        assert printed.count(f"all of a step, {name:8}") == 2
