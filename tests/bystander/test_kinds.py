"""Kinds of memory, and what a mixed load says of them."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import pytest

from tests.bystander.footprint import MIB
from tests.bystander.kinds import holdings, mappings, memory_by_kind
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
        "[heap]",
        {"Size": 4096 * 1024, "Rss": 3072 * 1024, "Anonymous": 3072 * 1024},
    )
    assert file[1:] == ("/usr/lib/x y.so", {"Rss": 1024 * 1024, "Anonymous": 0})


@needs_linux
def test_touched_memory_is_of_its_kind() -> None:
    before = memory_by_kind(os.getpid())
    with mmap.mmap(-1, 64 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as block:
        block.madvise(mmap.MADV_NOHUGEPAGE)
        for place in range(0, len(block), mmap.PAGESIZE):
            block[place] = 1
        after = memory_by_kind(os.getpid())
    assert after["other mappings"] - before["other mappings"] >= 60 * MIB
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
    assert holdings(path)["request records"] > 100
