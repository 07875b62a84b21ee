"""SharedRuns finds the blocks that several sequences can read once."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from core.attention.shared_runs import SharedRuns


def shared(tables: list[list[int]], limits: list[int], unit: int) -> SharedRuns:
    width = max(map(len, tables))
    padded = [table + [0] * (width - len(table)) for table in tables]
    return SharedRuns(np.array(padded), np.array(limits), unit)


def num_read(runs: SharedRuns, limits: list[int]) -> int:
    """Blocks before the limits that a step reads."""
    together = sum(run.last - run.first for run in runs.runs)
    return together + sum(np.subtract(limits, runs.starts).tolist())


def test_one_short_neighbour_does_not_shorten_the_prefix_of_the_others() -> None:
    prefix = list(range(1, 257))
    tables = [[*prefix, 1000 + i] for i in range(16)] + [[*prefix[:4], *range(2000, 2253)]]
    limits = [256] * 17
    runs = shared(tables, limits, unit=4)
    assert [(len(run.members), run.first, run.last) for run in runs.runs] == [
        (17, 0, 4),
        (16, 4, 256),
    ]
    assert runs.starts == [256] * 16 + [4]
    assert num_read(runs, limits) == 4 + 252 + 252  # by the common minimum: 4 + 17 * 252


def test_only_whole_units_are_shared() -> None:
    """All have three blocks in common, and two have five."""
    tables = [[1, 2, 3, *branch, 90 + i] for i, branch in enumerate([[4, 5], [4, 5], [6, 7], [8]])]
    runs = shared(tables, [5, 5, 5, 4], unit=4)
    assert [(run.members, run.first, run.last) for run in runs.runs] == [([0, 1], 0, 4)]
    assert runs.starts == [4, 4, 0, 0]


def test_branches_that_split_twice() -> None:
    tables = [
        [1, 2, 3, 4, 5, 6],
        [1, 2, 3, 4, 7, 8],
        [1, 2, 13, 14, 15, 16],
        [1, 2, 13, 14, 17, 18],
        [1, 2, 23, 24, 25, 26],
        [31, 2, 3, 4, 5, 6],
    ]
    runs = shared(tables, [6] * 6, unit=2)
    found = {(tuple(sorted(run.members)), run.first, run.last) for run in runs.runs}
    assert found == {((0, 1, 2, 3, 4), 0, 2), ((0, 1), 2, 4), ((2, 3), 2, 4)}
    assert runs.starts == [4, 4, 4, 4, 2, 0]


@st.composite
def trees(draw: st.DrawFn) -> tuple[list[list[int]], list[int]]:
    """Tables that often agree, and a limit for each."""
    table = st.lists(st.integers(1, 2), min_size=1, max_size=9)
    tables = draw(st.lists(table, min_size=1, max_size=10))
    limits = [draw(st.integers(0, len(table))) for table in tables]
    return tables, limits


@given(trees(), st.integers(1, 4))
def test_each_sequence_reads_each_block_once_alone_or_in_a_run(
    tree: tuple[list[list[int]], list[int]], unit: int
) -> None:
    tables, limits = tree
    runs = shared(tables, limits, unit)
    covered = [list(range(start, limit)) for start, limit in zip(runs.starts, limits, strict=True)]
    for run in runs.runs:
        assert run.first < run.last
        assert run.first % unit == run.last % unit == 0
        assert len(run.members) > 1
        for member in run.members:
            assert run.last <= limits[member]
            assert tables[member][: run.last] == tables[run.members[0]][: run.last]
            covered[member] += range(run.first, run.last)
    assert [sorted(blocks) for blocks in covered] == [list(range(limit)) for limit in limits]
    if unit == 1:
        pairs = zip(tables, limits, strict=True)
        nodes = {tuple(table[: k + 1]) for table, limit in pairs for k in range(limit)}
        assert num_read(runs, limits) == len(nodes)
