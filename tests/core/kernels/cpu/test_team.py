"""The stages of a team, on threads that come when they like."""

import ctypes
import subprocess
from pathlib import Path

import pytest

from core.kernels.cpu.compiler import FLAGS, SOURCES, find_compiler
from core.kernels.cpu.library import kernels
from tests.support.each import each

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(kernels() is None, reason="no C++ compiler"),
]

PROGRAM = Path(__file__).with_name("team.cpp")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder: Path = tmp_path_factory.mktemp("team")
    target = folder / "team.so"
    headers = [f"-I{path}" for path in SOURCES.iterdir()]
    command = [
        find_compiler(),
        *FLAGS,
        *headers,
        "-shared",
        "-pthread",
    ]
    subprocess.run([*command, str(PROGRAM), "-o", str(target)], check=True)  # noqa: S603 - ours
    library = ctypes.CDLL(str(target))
    library.wrong_tiles.restype = ctypes.c_int64
    library.tiles_of_a_late_thread.restype = ctypes.c_int64
    library.microseconds_without_core.restype = ctypes.c_int64
    library.microseconds_without_core.argtypes = (ctypes.c_int64, ctypes.c_int64)
    library.microseconds_until_the_last_thread.restype = ctypes.c_int64
    library.pages_read_while_waiting.restype = ctypes.c_int64
    library.pages_read_while_waiting.argtypes = (ctypes.c_int64,)
    library.most_ahead.restype = ctypes.c_int64
    library.most_ahead.argtypes = (ctypes.c_int64,)
    library.keeps_runs.restype = ctypes.c_bool
    library.keeps_runs.argtypes = (ctypes.c_int, ctypes.c_int64)
    return library


RUNS, IN_ORDER = 0, 1


@each("size", (2, 3, 8))
@each("order", (RUNS, IN_ORDER))
def test_a_tile_is_computed_once_and_after_all_of_the_stage_before(
    library: ctypes.CDLL, size: int, order: int
) -> None:
    assert library.wrong_tiles(size, 400, order) == 0


def test_a_thread_that_comes_late_delays_nobody(library: ctypes.CDLL) -> None:
    """The others pass all stages without it, or this test does not end."""
    assert library.tiles_of_a_late_thread(3, 50) == 0


def test_a_thread_that_waits_reads_ahead(library: ctypes.CDLL) -> None:
    """All that it was told, and nothing behind it."""
    assert library.pages_read_while_waiting(64) == 64


@each("cache", [(256, 128), (1024, 512), (2048, 512), (0, 512), (-1, 512)])
def test_half_of_a_small_second_level_cache_is_read_ahead(
    library: ctypes.CDLL, cache: tuple[int, int]
) -> None:
    assert library.most_ahead(cache[0] * 1024) == cache[1] * 1024


@each("count", (5, 64))
def test_threads_own_runs_of_neighbours(library: ctypes.CDLL, count: int) -> None:
    assert library.keeps_runs(2, count)


@each(
    "index, ends, expected",
    [
        (1, [], [1, 2, 3, 4, 5, 0]),
        (1, [4, 6], [1, 2, 3, 0, 4, 5]),
        (4, [4, 6], [4, 5, 0, 1, 2, 3]),
        (3, [2, 4, 6], [3, 2, 4, 5, 0, 1]),
        (5, [4, 8], [5, 0, 1, 2, 3, 4]),  # nodes of another number of threads
    ],
)
def test_threads_steal_from_their_own_node_first(
    library: ctypes.CDLL, index: int, ends: list[int], expected: list[int]
) -> None:
    order = (ctypes.c_int64 * 6)()
    library.victims(index, 6, (ctypes.c_int64 * len(ends))(*ends), len(ends), order)
    assert list(order) == expected


def test_a_thread_waits_for_its_core_until_it_is_returned(library: ctypes.CDLL) -> None:
    assert 2_000 <= library.microseconds_without_core(2_000, 60_000_000) < 30_000_000


def test_a_thread_does_not_wait_for_ever(library: ctypes.CDLL) -> None:
    """The core is never returned, or this test does not end."""
    assert library.microseconds_without_core(-1, 3_000) >= 3_000


def test_the_last_thread_of_a_team_leaves_its_core_which_is_returned_at_the_end(
    library: ctypes.CDLL,
) -> None:
    assert library.microseconds_until_the_last_thread() >= 4_000
