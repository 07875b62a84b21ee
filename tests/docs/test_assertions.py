"""The table of assertions in compat_tests/README.md names tests that exist."""

import re

from tests.docs.markdown import ROOT, page

SUITE = ROOT / "compat_tests"
ROW = re.compile(r"^\| C-(\d{3}) \| [MS] \| .+ \| (\w+) \| (.+) \|$", re.MULTILINE)
ROWS = ROW.findall(page(SUITE / "README.md").text)

NUM_ASSERTIONS = 138


def test_every_assertion_is_listed_once_and_in_order() -> None:
    assert [int(number) for number, _, _ in ROWS] == list(range(1, NUM_ASSERTIONS + 1))
    assert {state for _, state, _ in ROWS} == {"pass"}


def test_every_assertion_is_tested_in_each_file_that_it_names() -> None:
    for number, _, where in ROWS:
        files = re.findall(r"`(test_\w+\.py)`", where)
        assert files, f"C-{number} names no file"
        for file in files:
            text = (SUITE / file).read_text(encoding="utf-8")
            assert re.search(rf"def test_c{number}_|C-{number}\b", text), f"C-{number} in {file}"


def test_files_named_in_the_overview_exist() -> None:
    overview = page(SUITE / "README.md").text.partition("## The 138 assertions")[0]
    named = set(re.findall(r"`((?:support/)?\w+\.py)`", overview))
    assert named
    assert all((SUITE / name).is_file() for name in named)
    tests = {file.name for file in SUITE.glob("test_*.py")}
    listed = set(re.findall(r"`(test_\w+\.py)`", overview)) | {
        file for _, _, where in ROWS for file in re.findall(r"`(test_\w+\.py)`", where)
    }
    assert tests <= listed
