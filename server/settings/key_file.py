"""The file of API keys: one ``name:key`` or ``key`` a line."""

from __future__ import annotations

import re
import stat
from argparse import ArgumentTypeError
from dataclasses import dataclass, field
from pathlib import Path

_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")


class KeyFileError(ArgumentTypeError):
    """A file of keys cannot be used. The message contains no key."""


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key and the name of its holder; the name is empty if the key has none."""

    key: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class KeyFile:
    """A file of keys, and the keys that it had when it was read."""

    path: str
    keys: tuple[ApiKey, ...] = field(repr=False)

    @classmethod
    def read(cls, path: str, *, waits: bool = True) -> KeyFile:
        """Read the file once. Raises KeyFileError, also for a file without keys.

        Up to the first colon is the name: letters, digits, ``.``, ``_`` and ``-``. Keys of one name
        belong to one tenant. Empty lines and lines that begin with ``#`` are left out. A pipe or a
        device may wait for a writer; it is an error unless this ``waits``.
        """
        try:
            if not waits and not stat.S_ISREG(Path(path).stat().st_mode):
                raise KeyFileError(f"{path} is no regular file")
            text = Path(path).read_text(encoding="utf-8-sig")
        except OSError as error:
            raise KeyFileError(f"{path}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise KeyFileError(f"{path} is not UTF-8") from None
        found: dict[str, ApiKey] = {}
        for number, line in enumerate(map(str.strip, text.split("\n")), start=1):
            if line and not line.startswith("#"):
                api_key = _parse(line, f"{path}, line {number}")
                if api_key.key in found:
                    raise KeyFileError(f"{path}, line {number}: this key occurs twice")
                found[api_key.key] = api_key
        if not found:
            raise KeyFileError(f"{path} contains no key")
        return cls(path, tuple(found.values()))


def _parse(line: str, place: str) -> ApiKey:
    name, colon, key = line.partition(":")
    if not colon:
        return ApiKey(line)
    name, key = name.strip(), key.strip()
    if not _NAME.fullmatch(name):
        raise KeyFileError(f"{place}: a name has at most 64 letters, digits, '.', '_' and '-'")
    if not key:
        raise KeyFileError(f"{place}: the key is empty")
    return ApiKey(key, name)


def can_others_read(path: str) -> bool:
    """Whether every user of this machine may read the file."""
    try:
        return bool(Path(path).stat().st_mode & stat.S_IROTH)
    except OSError:
        return False
