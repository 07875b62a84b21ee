"""holder_of: which process listens on a port."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/")

_LISTENING = "0A"


def holder_of(port: int, root: Path = ROOT) -> str | None:
    """Name the process that listens on a TCP port, as ``nginx (process 17)``.

    None if nobody listens, if the process is another user's, and on systems without ``/proc``.
    """
    wanted = {f"socket:[{inode}]" for inode in _inodes(port, root)}
    if not wanted:
        return None
    for folder in sorted((root / "proc").glob("[0-9]*")):
        with contextlib.suppress(OSError):  # of another user, or it has just ended
            if any(str(link.readlink()) in wanted for link in (folder / "fd").iterdir()):
                return f"{(folder / 'comm').read_text().strip()} (process {folder.name})"
    return None


def _inodes(port: int, root: Path) -> Iterator[str]:
    """Of the sockets that listen on the port."""
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in (root / "proc/net" / name).read_text().splitlines()[1:]:
                words = line.split()
                if words[3] == _LISTENING and int(words[1].rpartition(":")[2], 16) == port:
                    yield words[9]
