from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from core.fusion.accelerate import working_ops
from core.fusion.cuda.ops import TorchOps, TritonOps
from core.kernels.triton import norm

CPU = torch.device("cpu")


class Broken:
    """A kernel where there is nothing to compile it with."""

    def __getitem__(self, grid):
        raise RuntimeError("Failed to find C compiler.\nPlease specify one.")


def test_triton_where_it_works(caplog):
    assert isinstance(working_ops(CPU), TritonOps)
    assert not caplog.text


def test_torch_where_it_does_not(caplog, monkeypatch):
    monkeypatch.setattr(norm, "_rms_norm_kernel", Broken())
    assert isinstance(working_ops(CPU), TorchOps)
    assert "Triton does not work here (Failed to find C compiler.)" in caplog.text
