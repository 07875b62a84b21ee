"""Find blocks that several sequences of a step read, so that they are read once.

The block tables of a step form a tree: sequences with a common prefix have the same leading blocks
up to where their tokens first differ. The whole units of every edge of the tree that belongs to
several sequences are read once for all of them (as in FlashInfer's cascade attention).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SharedRun:
    """Blocks ``first`` to ``last`` of the tables of ``members``, which are the same in all."""

    members: list[int]
    first: int
    last: int


class SharedRuns:
    """All shared runs of a step. Blocks from ``starts[i]`` on are in no run of sequence ``i``."""

    def __init__(self, tables: IntArray, limits: IntArray, unit: int) -> None:
        """Find the runs, which start and end at multiples of ``unit`` blocks.

        ``tables`` is ``[num_seqs, max_blocks]``. Sequence ``i`` shares only the first
        ``limits[i]`` blocks of its table.
        """
        self.starts = [0] * len(tables)
        self.runs: list[SharedRun] = []
        self._tables, self._limits, self._unit = tables, limits, unit
        for members in _alike(tables[:, 0], np.arange(len(tables))):
            self._add(members, 1)

    def _add(self, members: IntArray, num_alike: int) -> None:
        """Add the runs of ``members``, which share ``num_alike`` blocks and the same start.

        Compare all tables with that of the member with the longest prefix. Members that leave its
        path at the same block and share the next block are handled by a recursive call. Each call
        finishes at least one member.
        """
        tables, limits, unit = self._tables, self._limits, self._unit
        start = self.starts[members[0]]
        longest = members[limits[members].argmax()]
        end = limits[longest]
        if end - start < unit:
            return
        depths = _common(tables[members, num_alike:end], tables[longest, num_alike:end])
        depths = np.minimum(depths + num_alike, limits[members])
        order = np.argsort(depths, kind="stable")
        members, depths = members[order], depths[order]
        cuts = (np.flatnonzero(np.diff(depths)) + 1).tolist()
        for at, until in itertools.pairwise([0, *cuts, len(members)]):
            depth = int(depths[at])
            edge = depth // unit * unit
            if edge > start and len(members) - at > 1:
                self.runs.append(SharedRun(members[at:].tolist(), start, edge))
                start = edge
            leaving = members[at:until]
            for member in leaving.tolist():
                self.starts[member] = start
            if len(leaving) > 1 and depth < end:
                leaving = leaving[limits[leaving] > depth]
                for group in _alike(tables[leaving, depth], leaving):
                    self._add(group, depth + 1)


def _alike(keys: IntArray, members: IntArray) -> list[IntArray]:
    """Group the ``members`` with equal keys; omit groups of one."""
    order = np.argsort(keys, kind="stable")
    bounds = np.flatnonzero(np.diff(keys[order])) + 1
    if len(bounds) >= len(members) - 1:
        return []
    return [group for group in np.split(members[order], bounds) if len(group) > 1]


def _common(tables: IntArray, table: IntArray) -> IntArray:
    """Count the leading blocks that each of ``tables`` has in common with ``table``."""
    if not len(table):
        return np.zeros(len(tables), dtype=np.int64)
    is_other = tables != table
    first = is_other.argmax(axis=1)
    return np.where(is_other[np.arange(len(first)), first], first, len(table))
