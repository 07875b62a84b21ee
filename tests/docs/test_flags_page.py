"""docs/flags.md is generated, and says what ``--help`` says."""

import argparse

import pytest

from docs.make_flags import PAGE, flags_page
from server.cli.main import build_parser


def test_the_page_is_what_its_script_writes() -> None:
    assert PAGE.read_text(encoding="utf-8") == flags_page(), "run python -m docs.make_flags"


@pytest.mark.parametrize("command", ["serve", "route", "chat", "bench"])
def test_the_page_and_the_help_have_the_same_flags_with_the_same_choices(command: str) -> None:
    page = flags_page().split(f"## roseinfer {command}\n")[1].split("\n## ")[0]
    rows = [line.split("|")[1].strip() for line in page.splitlines() if line.startswith("| `")]
    (commands,) = build_parser({})._subparsers._group_actions
    shown = [
        action
        for action in commands.choices[command]._actions
        if action.help is not argparse.SUPPRESS and "--help" not in action.option_strings
    ]
    assert len(rows) == len(shown)
    for row, action in zip(rows, shown, strict=True):
        name = action.option_strings[0] if action.option_strings else action.metavar
        assert row.startswith(f"`{name}")
        if action.metavar and action.metavar.startswith("{"):
            assert action.metavar in row
