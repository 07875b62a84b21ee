"""Flags and commands named in the documentation exist."""

import argparse
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator

import pytest

from server.cli.main import build_parser, parse_command
from tests.docs.markdown import PAGES, ROOT, page

DOCUMENTED = [path for path in PAGES if path.name not in {"CHANGELOG.md", "RESULTS.md", "peers.md"}]


def flags_of(parser: argparse.ArgumentParser) -> set[str]:
    """Every flag of a parser and of its commands."""
    flags: set[str] = set()
    for action in parser._actions:
        flags |= set(action.option_strings)
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                flags |= flags_of(command)
    return flags


FLAGS = flags_of(build_parser({}))


def roseinfer_commands() -> Iterator[tuple[str, list[str]]]:
    """Command lines of the program in shell blocks, as (page, arguments)."""
    for path in DOCUMENTED:
        for command in page(path).shell_commands():
            outer = re.sub(r'"\$\((.*?)\)"', "MODEL", command)
            inner = re.findall(r'"\$\((.*?)\)"', command)
            for text in (outer, *inner):
                words = shlex.split(text)
                if words and words[0].rpartition("/")[2] == "roseinfer":
                    yield page(path).name, [word for word in words[1:] if word != "&"]


def test_flags_named_in_the_text_exist() -> None:
    unknown = [
        f"{page(path).name}: {flag}"
        for path in DOCUMENTED
        for span in page(path).spans
        if span.startswith(("--", "roseinfer "))
        for flag in re.findall(r"(?<!\S)--[a-z][\w-]*", span)
        if flag not in FLAGS
    ]
    assert not unknown


def test_environment_variables_named_in_the_text_belong_to_flags() -> None:
    known = {"ROSEINFER_" + flag[2:].replace("-", "_").upper() for flag in FLAGS}
    named = {name for path in DOCUMENTED for name in re.findall(r"ROSEINFER_\w+", page(path).text)}
    assert named
    assert named <= known


def test_commands_in_shell_blocks_parse() -> None:
    commands = list(roseinfer_commands())
    assert {arguments[0] for _, arguments in commands} == {
        "serve",
        "route",
        "chat",
        "doctor",
        "quantize",
        "bench",
    }
    for name, arguments in commands:
        try:
            parse_command(arguments, {})
        except SystemExit:
            pytest.fail(f"{name}: roseinfer {shlex.join(arguments)} is refused")


def test_scripts_named_in_shell_blocks_exist() -> None:
    for path in DOCUMENTED:
        for command in page(path).shell_commands():
            for module in re.findall(r"-m (benchmarks\.\w+|training\.\w+)", command):
                script = ROOT / module.replace(".", "/")
                files = script.with_suffix(".py"), script / "__main__.py"
                assert any(file.is_file() for file in files), command


PARSE_ONLY = """
import argparse, json, runpy, sys

def parse_only(parser, *arguments, parse=argparse.ArgumentParser.parse_args, **options):
    parse(parser, *arguments, **options)
    raise SystemExit(0)

argparse.ArgumentParser.parse_args = parse_only
wrong = []
for module, *arguments in json.loads(sys.argv[1]):
    sys.argv[1:] = arguments
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if end.code == 0:
            continue
    wrong.append([module, *arguments])
print(json.dumps(wrong))
"""


def module_commands() -> list[tuple[str, ...]]:
    """Command lines of scripts of this repository in shell blocks: module and arguments."""
    found = {
        tuple(shlex.split(line, comments=True))
        for path in DOCUMENTED
        for command in page(path).shell_commands()
        for line in re.findall(r"-m ((?:benchmarks|tests|training)\.\w+.*)", command)
    }
    return sorted(found)


def refused(commands: list[tuple[str, ...]]) -> list[list[str]]:
    """Commands whose scripts do not parse their arguments. One process imports torch for all."""
    program = [sys.executable, "-c", PARSE_ONLY, json.dumps(commands)]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603
    assert done.returncode == 0, done.stderr
    found: list[list[str]] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.docs
def test_arguments_of_scripts_in_shell_blocks_parse() -> None:
    """The scripts themselves take minutes and more, so they only parse their arguments."""
    commands = module_commands()
    assert len(commands) > 20
    broken = (commands[0][0], "--no-such-argument")
    assert refused([*commands, broken]) == [list(broken)]
