"""Kinds of memory of a server process: where it is, and what it holds."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.bystander.footprint import MIB, children, status

ARENA = 64 * MIB
"""glibc maps the heap of a thread at a multiple of this."""

_RANGE = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S+) \S+ \S+ \d+ *(.*)")


class Mapping(NamedTuple):
    """A part of the address space. ``sizes`` are its counters in bytes."""

    start: int
    end: int
    access: str
    name: str
    """A file, or the system's name. Empty: memory that the process has asked for."""
    sizes: dict[str, int]


def memory_by_kind(pid: int) -> dict[str, int]:
    """Resident bytes of a process by kind of mapping, and of its children.

    ``heap`` is malloc's main one, ``heaps of threads`` its others; large blocks of malloc are
    mappings of their own, among ``other mappings``, as are those of Python's small objects.
    ``huge pages`` has what is in huge pages anywhere: weights and the KV cache.
    """
    found = dict.fromkeys(
        ("huge pages", "heap", "heaps of threads", "other mappings", "files", "children"), 0
    )
    every = list(mappings(Path(f"/proc/{pid}/smaps").read_text()))
    for one, after in zip(every, [*every[1:], None], strict=True):
        sizes = one.sizes
        anonymous, huge = sizes.get("Anonymous", 0), sizes.get("AnonHugePages", 0)
        kind = "heap" if one.name == "[heap]" else "other mappings"
        if is_arena(one, after):
            kind = "heaps of threads"
        found["huge pages"] += huge
        found[kind] += anonymous - huge
        found["files"] += sizes.get("Rss", 0) - anonymous
    for child in children(pid):
        found["children"] += int(status(child, "VmRSS")) * 1024
    return found


def is_arena(one: Mapping, after: Mapping | None) -> bool:
    """Whether a mapping is one of malloc's heaps: its rest to ARENA is reserved in ``after``.

    A heap that is full has no rest. Other memory of the same size and place is taken for one.
    """
    end = one.start + ARENA
    if one.name or one.start % ARENA or one.end > end:
        return False
    if one.end == end:
        return True
    return (
        after is not None
        and (after.name, after.access) == ("", "---p")
        and after.start == one.end
        and after.end >= end
    )


def mappings(smaps: str) -> Iterator[Mapping]:
    """What /proc/PID/smaps says."""
    one: Mapping | None = None
    for line in smaps.splitlines():
        if head := _RANGE.fullmatch(line):
            if one is not None:
                yield one
            one = Mapping(int(head[1], 16), int(head[2], 16), head[3], head[4], {})
        elif one is not None and line.endswith(" kB"):
            key, _, value = line.partition(":")
            one.sizes[key] = int(value.split()[0]) * 1024
    if one is not None:
        yield one


def holdings(path: str) -> dict[str, int]:
    """What a measured server says that it holds."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        with connection.makefile("rb") as file:
            found: dict[str, int] = json.load(file)
            return found
