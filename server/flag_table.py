"""The table of flags in docs/flags.md, rendered from the same definitions as ``--help``."""

from __future__ import annotations

from server.flags import FlagGroup


def flag_table(groups: tuple[FlagGroup, ...]) -> str:
    """Return Markdown: one table a group."""
    return "\n".join(_group(group) for group in groups)


def _group(group: FlagGroup) -> str:
    rows = [f"### {group.title}", "", "| flag | meaning | default |", "|---|---|---|"]
    for flag in group.flags:
        meaning = flag.help
        if flag.aliases:
            meaning += "; alias: " + ", ".join(f"`--{alias}`" for alias in flag.aliases)
        default = flag.default_of(group.structs)
        shown = flag.shown_default(default)
        if shown and not flag.default_text:
            shown = f"`{shown}`"
        spelling = f"`{flag.spelling}`"
        rows.append("| " + " | ".join(map(_cell, (spelling, meaning, shown))) + " |")
    return "\n".join([*rows, ""])


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
