"""Release: the blocks that would be free if some sequences gave theirs up. Integers only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence as ReadOnly

from core.kv.block_pool import BlockPool
from core.state.sequence import Sequence


class Release:
    """What sequences would free together, group by group. It changes nothing. Core thread only.

    A block is freed if the added sequences hold all its references. It is valid until blocks are
    allocated or freed.
    """

    def __init__(self, pools: ReadOnly[BlockPool]) -> None:
        self._pools = pools
        self._held: list[Counter[int]] = [Counter() for _ in pools]
        self._freed: list[set[int]] = [set() for _ in pools]

    def add(self, sequence: Sequence) -> None:
        """The sequence gives up its blocks too."""
        groups = zip(self._pools, sequence.block_tables, self._held, self._freed, strict=True)
        for pool, table, held, freed in groups:
            for block_id in table.held():
                held[block_id] += 1
                if held[block_id] == pool.num_refs(block_id):
                    freed.add(block_id)

    def freed(self, group: int) -> set[int]:
        """The ids of the blocks that would be free in a group; the full group is the first."""
        return self._freed[group]
