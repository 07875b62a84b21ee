"""Threads of a team: bound to NUMA nodes; one leaves its core to another thread for a moment."""

from __future__ import annotations

import ctypes
import itertools
import logging
from collections.abc import Sequence

import torch

from core.kernels.cpu.bindings import Kernels
from core.system.machine import NodeThreads, threads_by_node

logger = logging.getLogger("roseinfer.core")


def bind_threads(kernels: Kernels) -> None:
    """Bind this thread's team to nodes, before weights are packed. Nothing to do on one node.

    A thread may use all CPUs of its node: one that loses its core moves to a free one.
    """
    nodes = threads_by_node(torch.get_num_threads())
    if nodes:
        bind_to(kernels, nodes)
        counts = ", ".join(str(node.num_threads) for node in nodes)
        logger.info("threads by NUMA node: %s", counts)


def bind_to(kernels: Kernels, nodes: Sequence[NodeThreads]) -> None:
    """Bind the threads of this thread's team: the first ones to the first node."""
    cpus = [sorted(node.cpus) for node in nodes]
    kernels.bind(
        len(nodes),
        _array(list(itertools.accumulate(node.num_threads for node in nodes))),
        _array(list(itertools.chain.from_iterable(cpus))),
        _array(list(itertools.accumulate(map(len, cpus)))),
    )


def _array(numbers: list[int]) -> ctypes.Array[ctypes.c_int64]:
    return (ctypes.c_int64 * len(numbers))(*numbers)


class LentCore:
    """A ``Lender`` (core/system/hand_over.py).

    The last thread of a team waits for its core; ``source/threads/team.h`` says how.
    """

    def __init__(self, kernels: Kernels) -> None:
        self._word = ctypes.c_int32()
        self._return_core = kernels.return_core
        self.address = ctypes.addressof(self._word)
        """Address of the word that ``Kernels.layers`` takes, valid as long as this object."""

    def lend(self) -> None:
        """Core thread only."""
        self._word.value = 1

    def give_back(self) -> None:
        """Any thread."""
        self._return_core(self.address)
