"""Flags: each is defined once, as data, for commands and for the tables in docs/flags.md."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from functools import cache
from typing import Any, NoReturn, TypeAlias

import msgspec

from server.settings.types import size, size_text

ENV_PREFIX = "ROSEINFER_"

_YES = frozenset({"1", "true", "yes", "on"})
_NO = frozenset({"", "0", "false", "no", "off"})


@cache
def _defaults_of(struct: type[msgspec.Struct]) -> dict[str, Any]:
    """The fields that have defaults. Kept: msgspec evaluates all annotations for them."""
    fields = msgspec.structs.fields(struct)
    return {field.name: field.default for field in fields if field.default is not msgspec.NODEFAULT}


@dataclass(frozen=True)
class Flag:
    """``--name VALUE``. Its default is that of the settings field ``dest``.

    ``unset`` says what happens without the flag where the field's default does not say it; the
    option is None then. ``aliases`` are names in the program that roseinfer descends from, which do
    the same. ``named`` fills in ``name`` and ``dest``.
    """

    help: str
    convert: Callable[[str], Any] = str
    _: KW_ONLY
    name: str = ""
    dest: str = ""
    metavar: str = ""
    unset: str = ""
    aliases: tuple[str, ...] = ()
    is_positional: bool = False
    is_secret: bool = False  # --help must not show the value of the environment variable

    @property
    def spelling(self) -> str:
        if self.is_positional:
            return self.name.upper()
        return f"--{self.name} {self.shown_metavar}".rstrip()

    @property
    def shown_metavar(self) -> str:
        return self.metavar or getattr(self.convert, "metavar", "") or self.dest.upper()

    def default_of(self, structs: tuple[type[msgspec.Struct], ...]) -> Any:
        """Return the default of the first struct that has the field."""
        if self.unset:
            return None
        found = (_defaults_of(each) for each in structs)
        return next((defaults[self.dest] for defaults in found if self.dest in defaults), None)

    def shown_default(self, default: Any) -> str:
        """Return the default as it would be typed, or in words; empty if there is none."""
        if self.unset or default is None or isinstance(default, bool | tuple):
            return self.unset
        if self.convert is size:
            return size_text(default)
        return f"{default:g}" if isinstance(default, float) else str(default)

    def action(self, default: Any, given: str) -> dict[str, Any]:
        """Return the options of ``add_argument``; ``given`` is the environment variable's text."""
        # argparse converts a default that is a string like typed text
        return {"default": given or default, "type": self.convert, "metavar": self.shown_metavar}


class Switch(Flag):
    """``--name``: turns a field into the opposite of its default."""

    @property
    def shown_metavar(self) -> str:
        return ""

    def action(self, default: Any, given: str) -> dict[str, Any]:
        try:
            is_given = is_yes(given)
        except ValueError as error:
            raise ValueError(f"{variable(self.name)}: {error}") from None
        default = bool(default)
        return {"action": "store_const", "const": not default, "default": default is not is_given}


class Repeated(Flag):
    """``--name VALUE``, any number of times; in the environment, values are joined by commas."""

    def action(self, default: Any, given: str) -> dict[str, Any]:
        del default
        values = tuple(value for value in given.split(",") if value)
        return {"action": _Collect, "default": values, "metavar": self.shown_metavar}


def named(**flags: Flag) -> tuple[Flag, ...]:
    """Give flags the fields that they set, and their names where they have no other one."""
    return tuple(
        replace(flag, name=flag.name or dest.replace("_", "-"), dest=dest)
        for dest, flag in flags.items()
    )


def flag_of(flags: Iterable[Flag], name: str) -> Flag:
    """The flag of this name, which another command has as well."""
    return next(flag for flag in flags if flag.name == name)


@dataclass(frozen=True)
class FlagGroup:
    """Flags that belong together, and the structs whose fields hold their defaults."""

    title: str
    flags: tuple[Flag, ...]
    structs: tuple[type[msgspec.Struct], ...]


def add_groups(
    parser: argparse.ArgumentParser,
    groups: tuple[FlagGroup, ...],
    environ: Mapping[str, str] | None = None,
) -> None:
    """Add the flags to a command.

    With ``environ``, every flag's field is among the options, and environment variables change
    defaults. Without, only fields whose flags are given are.
    """
    for group in groups:
        place = parser.add_argument_group(group.title)
        for flag in group.flags:
            try:
                _add(place, flag, flag.default_of(group.structs), environ)
            except ValueError as error:
                parser.error(str(error))


def _add(
    place: argparse._ArgumentGroup, flag: Flag, default: Any, environ: Mapping[str, str] | None
) -> None:
    given = "" if environ is None else environ.get(variable(flag.name), "").strip()
    options = flag.action(default, given)
    shown = "from the environment" if given and flag.is_secret else given
    notes = [f"default: {text}"] if (text := shown or flag.shown_default(default)) else []
    notes += [f"alias: --{alias}" for alias in flag.aliases]
    help_text = f"{flag.help} ({'; '.join(notes)})" if notes else flag.help
    options["help"] = help_text.replace("%", "%%")
    if environ is None:
        options["default"] = argparse.SUPPRESS
    if flag.is_positional:
        place.add_argument(flag.dest, nargs="?", **options)
        return
    place.add_argument(f"--{flag.name}", dest=flag.dest, **options)
    hidden = options | {"help": argparse.SUPPRESS, "default": argparse.SUPPRESS}
    for alias in flag.aliases:
        place.add_argument(f"--{alias}", dest=flag.dest, **hidden)


class _HelpFormatter(argparse.HelpFormatter):
    """Does not break a line within the name of a flag."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(text, width, break_on_hyphens=False)


class FlagParser(argparse.ArgumentParser):
    """Reports an error in one line, and accepts no abbreviations: new flags would break them."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, allow_abbrev=False, formatter_class=_HelpFormatter)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Refuse unknown arguments here: this command's parser has the right name to report."""
        namespace, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return namespace, unknown

    def error(self, message: str) -> NoReturn:
        """Exit with code 2."""
        self.exit(2, f"roseinfer: {message} (try {self.prog} --help)\n")


Commands: TypeAlias = "argparse._SubParsersAction[FlagParser]"  # noqa: SLF001 - has no other name


def new_program() -> tuple[FlagParser, Commands]:
    """Return the parser of ``roseinfer`` and the place where commands are added.

    A command has ``make_settings`` among its options, which makes its settings of the others.
    """
    parser = FlagParser(
        prog="roseinfer",
        description="An OpenAI-compatible LLM inference server: strict, honest, isolating, light.",
        epilog="Every flag of serve can also be set as an environment variable: "
        "--max-num-seqs as ROSEINFER_MAX_NUM_SEQS.",
    )
    return parser, parser.add_subparsers(dest="command", required=True, parser_class=FlagParser)


def is_yes(text: str) -> bool:
    """Return True for a word that turns a switch on. Raises ValueError for no such word."""
    word = text.lower()
    if word not in _YES | _NO:
        raise ValueError(f"{word!r} is neither yes nor no")
    return word in _YES


def variable(name: str) -> str:
    return ENV_PREFIX + name.replace("-", "_").upper()


class _Collect(argparse.Action):
    """Collects the values of a repeated flag, instead of its default."""

    def __call__(self, _parser: Any, namespace: Any, value: Any, _option: Any = None) -> None:
        earlier = getattr(namespace, self.dest)
        is_first = earlier is self.default
        setattr(namespace, self.dest, (value,) if is_first else (*earlier, value))
