"""The reader's path of docs/architecture.md: its files are there and can be read in an evening."""

import ast
import re

from tests.docs.markdown import ROOT, page

MAX_FILES, MAX_LINES = 15, 3000

PATH = page(ROOT / "docs" / "architecture.md").section("A reader's path")
FILES = [ROOT / name for name in re.findall(r"^\d+\. `(core/[\w/]+\.py)`: ", PATH, re.MULTILINE)]


def test_the_files_of_the_path_are_few_and_short() -> None:
    listed = PATH.partition("<!-- begin: reading order -->")[2].partition("<!-- end")[0]
    assert len(FILES) == len(re.findall(r"^\d+\.", listed, re.MULTILINE))
    assert 10 <= len(FILES) <= MAX_FILES
    assert sum(len(file.read_text("utf-8").splitlines()) for file in FILES) <= MAX_LINES


def test_each_file_of_the_path_opens_with_a_paragraph_that_says_its_part() -> None:
    for file in FILES:
        docstring = ast.get_docstring(ast.parse(file.read_text("utf-8"))) or ""
        assert "\n\n" in docstring, file
