"""Kinds of memory of a server process: where it is, and what it holds."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path

from tests.bystander.footprint import MIB, children, status

ARENA = 64 * MIB
"""glibc maps the heap of a thread at a multiple of this."""

_RANGE = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S+) \S+ \S+ (\d+) *(.*)")

Mapping = tuple[int, str, dict[str, int]]
"""Where it begins, its file or name, and its counters in bytes."""


def memory_by_kind(pid: int) -> dict[str, int]:
    """Resident bytes of a process by kind of mapping, and of its children.

    ``heap`` is malloc's main one, ``heaps of threads`` its others; large blocks of malloc are
    mappings of their own, among ``other mappings``, as are those of Python's small objects.
    ``huge pages`` has what is in huge pages anywhere: weights and the KV cache.
    """
    found = dict.fromkeys(
        ("huge pages", "heap", "heaps of threads", "other mappings", "files", "children"), 0
    )
    for start, name, sizes in mappings(Path(f"/proc/{pid}/smaps").read_text()):
        anonymous, huge = sizes.get("Anonymous", 0), sizes.get("AnonHugePages", 0)
        kind = "heap" if name == "[heap]" else "other mappings"
        if not name and is_arena(start, sizes):
            kind = "heaps of threads"
        found["huge pages"] += huge
        found[kind] += anonymous - huge
        found["files"] += sizes.get("Rss", 0) - anonymous
    for child in children(pid):
        found["children"] += int(status(child, "VmRSS")) * 1024
    return found


def is_arena(start: int, sizes: dict[str, int]) -> bool:
    """Whether an anonymous mapping is one of malloc's heaps: its rest to ARENA is reserved."""
    return start % ARENA == 0 and sizes.get("Size", 0) <= ARENA


def mappings(smaps: str) -> Iterator[Mapping]:
    """What /proc/PID/smaps says."""
    start, name, sizes = 0, "", dict[str, int]()
    has_one = False
    for line in smaps.splitlines():
        if head := _RANGE.fullmatch(line):
            if has_one:
                yield start, name, sizes
            start, name, sizes, has_one = int(head[1], 16), head[5], {}, True
        elif line.endswith(" kB"):
            key, _, value = line.partition(":")
            sizes[key] = int(value.split()[0]) * 1024
    if has_one:
        yield start, name, sizes


def holdings(path: str) -> dict[str, int]:
    """What a measured server says that it holds."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        with connection.makefile("rb") as file:
            found: dict[str, int] = json.load(file)
            return found
