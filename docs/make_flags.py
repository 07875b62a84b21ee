"""Write docs/flags.md from the definitions of the flags: ``python -m docs.make_flags``."""

from __future__ import annotations

from pathlib import Path

from bench.flags import BENCH_GROUPS
from server.cli.chat.flags import CHAT_GROUPS
from server.cli.doctor.command import DOCTOR_GROUP
from server.cli.quantize import QUANTIZE_GROUPS
from server.router.config.settings import ROUTE_GROUPS
from server.settings.flags import FlagGroup
from server.settings.settings import SERVE_GROUPS

PAGE = Path(__file__).with_name("flags.md")


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
        if shown and not flag.unset:
            shown = f"`{shown}`"
        spelling = f"`{flag.spelling}`"
        rows.append("| " + " | ".join(map(_cell, (spelling, meaning, shown))) + " |")
    return "\n".join([*rows, ""])


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def flags_page() -> str:
    """Return the page's text."""
    return f"""# Flags

`python -m docs.make_flags` writes this page from the definitions that `--help` is made of. An
alias does the same as its flag. `~` at the start of a path is a home directory, also where no shell
expands it.

## roseinfer serve

Every flag can also be set as an environment variable: `--max-num-seqs` as
`ROSEINFER_MAX_NUM_SEQS`. Where a flag may be repeated, the variable holds its values joined by
commas; for a flag without a value it is `1` or `0`. The command line takes precedence.

{flag_table(SERVE_GROUPS)}
## roseinfer route

It serves many models at one address; see [several models](routing.md). Every flag can also be set
as an environment variable.

{flag_table(ROUTE_GROUPS)}
## roseinfer chat

It talks to a model; see [in the terminal](terminal.md#a-chat).

{flag_table(CHAT_GROUPS)}
## roseinfer doctor

It checks whether a server would start; see [in the terminal](terminal.md#the-doctor). It takes
every flag of `roseinfer serve`, and one of its own.

{flag_table((DOCTOR_GROUP,))}
## roseinfer quantize

It writes a model as a GGUF file; see
[quantised models](quantised-models.md#make-a-file).

{flag_table(QUANTIZE_GROUPS)}
## roseinfer bench

It measures a server (`--base-url`) or, without that flag, an engine that it loads into its own
process. A flag that would have no effect is refused.

{flag_table(BENCH_GROUPS)}"""


if __name__ == "__main__":
    PAGE.write_text(flags_page(), encoding="utf-8")
