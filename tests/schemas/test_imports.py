"""The package needs only msgspec and the standard library."""

import ast
import sys
from pathlib import Path

import pytest

import schemas

FILES = sorted(Path(schemas.__file__).parent.rglob("*.py"))


def imported(tree):
    """Top-level names of every module that a file imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            assert all(alias.name != "*" for alias in node.names)
            yield node.module.split(".")[0]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_only_msgspec_and_the_standard_library_are_imported(file):
    tree = ast.parse(file.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree)
    assert set(imported(tree)) <= {"msgspec", "schemas", *sys.stdlib_module_names}
