"""Flags: what the command line's parsers are made of, and how texts become values.

A value that makes no sense ends the program with code 2 and one line.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import msgspec

ENV_PREFIX = "ROSEINFER_"

_YES = frozenset({"1", "true", "yes", "on"})
_NO = frozenset({"", "0", "false", "no", "off"})


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, and takes no abbreviations: they would break some day."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, allow_abbrev=False)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Refuse what is unknown here and now: the command's own parser knows its name."""
        namespace, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return namespace, unknown

    def error(self, message: str) -> NoReturn:
        """Exit with code 2."""
        self.exit(2, f"roseinfer: {message} (try {self.prog} --help)\n")


class Flags:
    """Adds flags whose defaults may come from the environment."""

    def __init__(
        self,
        parser: argparse.ArgumentParser,
        environ: Mapping[str, str],
        defaults: type[msgspec.Struct],
    ) -> None:
        self._parser = parser
        self._environ = environ
        self._defaults = {
            field.encode_name: field.default for field in msgspec.structs.fields(defaults)
        }

    def add(
        self,
        group: argparse._ArgumentGroup,
        flag: str,
        description: str,
        *,
        convert: Any = str,
        dest: str | None = None,
        **more: Any,
    ) -> None:
        """Add ``--flag VALUE``."""
        dest = dest or flag.replace("-", "_")
        # argparse converts a string default just as it converts what is typed
        value = self._given(flag) or self._defaults[dest]
        shown = "" if value is None else " (default: %(default)s)"
        if isinstance(convert, Choice):
            more["metavar"] = "{" + ",".join(convert.choices) + "}"
        group.add_argument(
            f"--{flag}", dest=dest, default=value, type=convert, help=description + shown, **more
        )

    def add_switch(
        self, group: argparse._ArgumentGroup, flag: str, dest: str, description: str
    ) -> None:
        """Add a flag without a value, which turns ``dest`` into what its default is not."""
        given = self._given(flag).lower()
        if given not in _YES | _NO:
            self._parser.error(f"{variable(flag)}: {given!r} is neither yes nor no")
        default = bool(self._defaults[dest])
        group.add_argument(
            f"--{flag}",
            dest=dest,
            action="store_const",
            const=not default,
            default=default is not (given in _YES),
            help=description,
        )

    def add_list(
        self, group: argparse._ArgumentGroup, flag: str, dest: str, description: str
    ) -> None:
        """Add a flag that may be repeated; in the environment its values are joined by commas."""
        group.add_argument(
            f"--{flag}",
            dest=dest,
            action=_Collect,
            default=tuple(value for value in self._given(flag).split(",") if value),
            metavar="VALUE",
            help=description + " (may be repeated)",
        )

    def _given(self, flag: str) -> str:
        """What the environment says; empty is the same as nothing."""
        return self._environ.get(variable(flag), "").strip()


class _Collect(argparse.Action):
    """Collects the values of a repeated flag, in place of its default."""

    def __call__(
        self,
        _parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        value: Any,
        _option: str | None = None,
    ) -> None:
        earlier = getattr(namespace, self.dest)
        is_first = earlier is self.default
        setattr(namespace, self.dest, (value,) if is_first else (*earlier, value))


def variable(flag: str) -> str:
    """Name of a flag's environment variable."""
    return ENV_PREFIX + flag.replace("-", "_").upper()


@dataclass(frozen=True)
class Choice:
    """One of some words; unlike argparse's own, also where the word is in the environment."""

    choices: Sequence[str]

    def __call__(self, text: str) -> str:
        """The word."""
        if text not in self.choices:
            raise argparse.ArgumentTypeError(f"{text} is not one of {', '.join(self.choices)}")
        return text


def integer(text: str) -> int:
    """A whole number."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number") from None


def positive(text: str) -> int:
    """A whole number above 0."""
    value = integer(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value


def not_negative(text: str) -> int:
    """A whole number from 0."""
    value = integer(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} is below 0")
    return value


def port(text: str) -> int:
    """A TCP port; 0 is any."""
    value = integer(text)
    if not 0 <= value <= 65535:
        raise argparse.ArgumentTypeError(f"{text} is not a port")
    return value


def seconds(text: str) -> float:
    """A finite number of seconds."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds")
    return value


def share(text: str) -> float:
    """A part of a whole: above 0 and at most 1."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not above 0 and at most 1")
    return value


_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}


def size(text: str) -> int:
    """Bytes from ``4GiB``, ``500MB``, ``65536``."""
    digits = text.lower().removesuffix("b").strip()
    unit = digits.lstrip("0123456789.")
    try:
        value = int(float(digits.removesuffix(unit)) * _UNITS[unit.strip()])
    except (KeyError, ValueError, OverflowError):
        raise argparse.ArgumentTypeError(f"{text} is not a size such as 4GiB") from None
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value
