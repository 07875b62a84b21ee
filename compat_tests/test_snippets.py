"""Every command and program in README, docs/ and examples/ runs against a live server.

A comment right above a block says what else it needs: ``<!-- not run: REASON -->`` is skipped with
that reason, ``<!-- run with: PACKAGES -->`` and shell blocks that do more than to call curl are run
by ``make test-docs``, as are those in a fresh clone (``<!-- run in: a fresh clone -->``). Commands
that take minutes run with arguments that make them small (``<!-- run in small -->``).
Everything else is run here. tests/docs/test_not_run.py keeps the list of what is not run.
"""

import re
from pathlib import Path

import pytest

from compat_tests.support.process import ROOT
from compat_tests.support.snippets import (
    DEFAULT,
    IN_CLONE,
    IN_SMALL,
    LANGUAGES,
    NOT_RUN,
    RECORDS,
    RUN_WITH,
    FreshClone,
    Workplace,
    add_models,
    examples,
    is_program,
    parameters,
    snippets,
)
from tests.docs.markdown import PAGES, Block, page
from tests.support.clones import clone


@pytest.fixture
def workplace(server, tmp_path) -> Workplace:
    return Workplace(tmp_path, server).prepare()


@pytest.fixture(scope="module")
def fresh_clone(server, tmp_path_factory) -> FreshClone:
    return FreshClone(clone(tmp_path_factory.mktemp("clone") / "roseinfer"), server)


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    add_models(folder)
    return folder


@pytest.mark.parametrize("block", parameters())
def test_a_snippet_runs_and_prints(workplace, block, request) -> None:
    if block.mark == IN_CLONE:
        workplace = request.getfixturevalue("fresh_clone")
    elif is_program(block):
        for model in request.getfixturevalue("models").iterdir():
            (workplace.folder / model.name).symlink_to(model)
    if block.mark == IN_SMALL:
        (workplace.folder / "benchmarks").symlink_to(ROOT / "benchmarks")
        (workplace.folder / "docs" / "images").mkdir(parents=True)
    assert workplace.run(block).strip()


@pytest.mark.parametrize(
    "file",
    [
        pytest.param(file, id=file.name, marks=[pytest.mark.docs] * (file.suffix == ".mjs"))
        for file in examples()
    ],
)
def test_an_example_runs_and_prints(workplace, file) -> None:
    assert workplace.run_file(file).strip()


def test_every_mark_is_one_that_the_runner_knows() -> None:
    marks = [block.mark for _, block in snippets() if block.mark]
    assert marks
    assert [
        mark
        for mark in marks
        if not (NOT_RUN.fullmatch(mark) or RUN_WITH.fullmatch(mark) or mark in {IN_CLONE, IN_SMALL})
    ] == []


def test_no_command_hides_in_a_block_that_is_not_run() -> None:
    """Commands of other languages than sh would be run by nothing."""
    for path in PAGES:
        for block in page(path).blocks:
            if block.language not in LANGUAGES and path.name not in RECORDS:
                first = re.match(
                    r"\s*(roseinfer|curl|python3?|pip|make|docker|kubectl)\b", block.text
                )
                assert not first, f"{page(path).name}:{block.line}"


def test_a_snippet_that_fails_is_noticed(workplace) -> None:
    for broken in (
        Block("python", "raise SystemExit(3)"),
        Block("sh", f"curl http://{DEFAULT}/v1/nothing"),
    ):
        with pytest.raises(AssertionError):
            workplace.run(broken)
