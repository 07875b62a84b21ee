"""Kinds of memory, and what a mixed load says of them."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import pytest

from compat_tests.support.waiting import eventually
from tests.bystander.footprint import MIB
from tests.bystander.kinds import Mapping, holdings, is_arena, mappings, memory_by_kind
from tests.bystander.mixed import kind_row, slope_of

SMAPS = """\
5d0000000000-5d0000400000 rw-p 00000000 00:00 0                          [heap]
Size:               4096 kB
Rss:                3072 kB
Anonymous:          3072 kB
7f0000000000-7f0000200000 r-xp 00000000 08:01 17                         /usr/lib/x y.so
Rss:                1024 kB
Anonymous:             0 kB
"""

needs_linux = pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs Linux")


def test_mappings_have_names_and_counters() -> None:
    heap, file = mappings(SMAPS)
    assert heap == (
        0x5D0000000000,
        0x5D0000400000,
        "rw-p",
        "[heap]",
        {"Size": 4096 * 1024, "Rss": 3072 * 1024, "Anonymous": 3072 * 1024},
    )
    assert file[3:] == ("/usr/lib/x y.so", {"Rss": 1024 * 1024, "Anonymous": 0})


ARENA_START = 0x7F0004000000
"""A multiple of 64 MiB."""


def part(start: int, end: int, access: str = "rw-p", name: str = "") -> Mapping:
    """A mapping from and to so many MiB after ARENA_START."""
    return Mapping(ARENA_START + start * MIB, ARENA_START + end * MIB, access, name, {})


@pytest.mark.parametrize(
    ("one", "after", "expected"),
    [
        (part(0, 3), part(3, 64, "---p"), True),
        (part(0, 3), part(3, 72, "---p"), True),  # the guard of a stack follows
        (part(0, 64), part(64, 72), True),
        (part(0, 3), part(3, 64), False),
        (part(0, 3), part(3, 60, "---p"), False),
        (part(0, 3), part(4, 64, "---p"), False),
        (part(0, 3), None, False),
        (part(1, 3), part(3, 64, "---p"), False),
        (part(0, 96), part(96, 128, "---p"), False),
        (part(0, 3, "r-xp", "/usr/lib/x.so"), part(3, 64, "---p"), False),
        (part(0, 3), part(3, 64, "---p", "/usr/lib/x.so"), False),
    ],
)
def test_a_heap_of_a_thread_has_the_rest_of_its_place_reserved(
    one: Mapping, after: Mapping | None, expected: bool
) -> None:
    assert is_arena(one, after) is expected


@needs_linux
def test_touched_memory_is_of_its_kind() -> None:
    before = memory_by_kind(os.getpid())
    with mmap.mmap(-1, 96 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as block:
        block.madvise(mmap.MADV_NOHUGEPAGE)
        for place in range(0, len(block), mmap.PAGESIZE):
            block[place] = 1
        after = memory_by_kind(os.getpid())
    assert after["other mappings"] - before["other mappings"] >= 90 * MIB
    assert after["files"] > 0


def test_a_row_of_a_kind() -> None:
    samples = [(60.0 * minute, minute * MIB) for minute in range(10)]
    row = kind_row("heap", samples)
    assert row["at first"] == "0 MiB"
    assert row["at half"] == "5 MiB"
    assert row["at the end"] == "9 MiB"
    assert row["slope, second half"] == "+1.0 MiB a minute"
    assert kind_row("grammars", [(0.0, 3), (60.0, 4)])["at the end"] == "4"
    assert slope_of([(5.0, 1)]) == 0


@pytest.mark.slow
@needs_linux
def test_a_measured_server_says_what_it_holds(start_server, tmp_path) -> None:
    path = str(tmp_path / "holdings.sock")
    server = start_server(holdings_at=path).wait_ready()
    found = holdings(path)
    assert found["python blocks"] > 100_000
    assert found["malloc, in use"] > MIB
    assert found["grammars"] == found["stored responses"] == 0
    body = {"model": server.model, "input": "hi", "max_output_tokens": 1}
    with server.connect() as connection:
        assert connection.request("POST", "/v1/responses", body).status == 200
    assert holdings(path)["stored responses"] > 100
    # a request's record is kept once its response has been sent
    eventually(lambda: holdings(path)["request records"] > 100)
