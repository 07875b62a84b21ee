"""Threads are bound to the nodes of a machine, here of a simulated one."""

import os
import threading

import pytest
import torch

from benchmarks.cpu_products import multiply
from core.kernels.cpu.library import kernels
from core.kernels.cpu.linear import Format, pack
from core.kernels.cpu.threads import bind_to
from core.system.machine import NodeThreads

KERNELS = kernels()
pytestmark = pytest.mark.skipif(KERNELS is None, reason="no C++ compiler")


def test_threads_run_on_their_node_and_compute_the_same() -> None:
    cpu = min(os.sched_getaffinity(0))
    found: dict[str, object] = {}
    weight, x = torch.randn(512, 512), torch.randn(8, 512)
    expected = multiply(pack(KERNELS, [weight], [None], Format.FLOAT32), x)

    def compute() -> None:  # on a thread that ends: its affinity changes
        torch.set_num_threads(2)
        bind_to(KERNELS, [NodeThreads(1, frozenset({cpu}))] * 2)
        found["cpus"] = os.sched_getaffinity(0)
        found["product"] = multiply(pack(KERNELS, [weight], [None], Format.FLOAT32), x)

    thread = threading.Thread(target=compute)
    thread.start()
    thread.join()
    assert found["cpus"] == {cpu}
    assert torch.equal(found["product"], expected)
