from __future__ import annotations

import sys

import pytest
import torch

pytest.importorskip("triton")

import core.kernels.triton
from core.contract.errors import ModelLoadError
from core.fusion.ops import TritonOps, triton_ops
from core.kernels.triton import norm

CPU = torch.device("cpu")


class Broken:
    """A kernel on a machine without a C compiler."""

    def __getitem__(self, grid):
        raise RuntimeError("Failed to find C compiler.\nPlease specify one.")


def test_triton_is_used_where_it_works():
    assert isinstance(triton_ops(CPU), TritonOps)


def test_a_triton_that_does_not_work_is_an_error_with_the_reason(monkeypatch):
    monkeypatch.setattr(norm, "_rms_norm_kernel", Broken())
    with pytest.raises(ModelLoadError, match=r"Triton, which does not work here: Failed to find C"):
        triton_ops(CPU)


def test_a_missing_triton_is_an_error_that_names_it(monkeypatch):
    for name in ("gated", "norm", "rotary"):
        monkeypatch.delitem(sys.modules, f"core.kernels.triton.{name}")
        monkeypatch.delattr(core.kernels.triton, name)
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.raises(ModelLoadError, match=r"CUDA needs Triton, which is not installed"):
        triton_ops(CPU)
