"""Private names of other packages stand in one file."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.source_tree import ALL_FILES, ROOT, name_of, tree_of, where

LISTED = "core/system/private_names.py"
OWN = {"schemas", "core", "server", "bench", "benchmarks", "training", "tests"}
OTHERS = OWN | sys.stdlib_module_names
PRIVATE = re.compile(r"_[a-z]\w*", re.IGNORECASE)
NAMED = re.compile(r"(torch|transformers|litestar|uvicorn)(\.\w+)*\._[a-z]\w*", re.IGNORECASE)
ALLOWED = {
    "server/settings/flags.py": "a type of argparse that has no other name",
    "benchmarks/quality.py": "of our own engine",
    "benchmarks/gpu/memory.py": "of our own engine",
}
"""Files with marks of ruff's rule on private members, and why."""

STANDARD = {"_replace", "_value2member_map_", "_ArgumentGroup", "_SubParsersAction", "_exit"}
"""Of the standard library: named tuples, enumerations, argparse, os."""


def private_names(tree: ast.Module) -> Iterator[ast.AST]:
    """Imports of, attributes of, and strings that name private parts of other packages."""
    roots = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
            roots |= {name.split(".")[0] for name in names}
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            roots |= {alias.asname or alias.name for alias in node.names}
        else:
            continue
        if any(name.split(".")[0] not in OTHERS and has_private(name) for name in names):
            yield node
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if NAMED.fullmatch(node.value):
                yield node
        elif isinstance(node, ast.Attribute) and PRIVATE.fullmatch(node.attr):
            root: ast.expr = node
            while isinstance(root, ast.Attribute):
                root = root.value
            if isinstance(root, ast.Name) and root.id in roots - OTHERS:
                yield node


def names_set_in(tree: ast.Module) -> Iterator[str]:
    """Names of functions, classes, variables, attributes and slots."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def has_private(name: str) -> bool:
    parts = name.split(".")[1:]
    return any(PRIVATE.fullmatch(part) for part in parts)


def test_only_the_listed_file_names_private_parts_of_other_packages():
    found = {name_of(file): list(private_names(tree_of(file))) for file in ALL_FILES}
    assert found.pop(LISTED)
    assert [where(ROOT / name, node) for name, nodes in found.items() for node in nodes] == []


def test_private_attributes_are_our_own():
    """A class that derives from another package's reads none of its private attributes."""
    own = {name for file in ALL_FILES for name in names_set_in(tree_of(file))}
    strange = {
        where(file, node): node.attr
        for file in ALL_FILES
        for node in ast.walk(tree_of(file))
        if isinstance(node, ast.Attribute)
        and PRIVATE.fullmatch(node.attr)
        and name_of(file) != LISTED
        and node.attr not in own | STANDARD
    }
    assert strange == {}


def test_only_the_listed_file_and_these_turn_off_the_rule_on_private_members():
    rule = "noqa: " + "SLF001"
    marked = {name_of(file) for file in ALL_FILES if rule in Path(file).read_text("utf-8")}
    assert marked - {LISTED} == ALLOWED.keys()


@pytest.mark.parametrize(
    "line",
    [
        "import torch._dynamo",
        "from torch._C import _cuda",
        "import torch\ntorch._C._cuda()",
        "from litestar.app import _name",
        "name = 'torch._dynamo'",
    ],
)
def test_each_way_to_name_one_is_found(line):
    assert list(private_names(ast.parse(line)))


def test_our_own_and_public_names_are_allowed():
    assert not list(private_names(ast.parse("import torch\nself._x = torch.nn.Linear.__init__")))


@pytest.mark.skipif(sys.platform != "linux", reason="the listed names are of Linux builds")
def test_the_listed_modules_exist():
    """A name that is gone is no error. This test says that its entry can go."""
    import importlib.util  # noqa: PLC0415

    from core.system import private_names as listed  # noqa: PLC0415

    modules = (listed.META_REGISTRATIONS, *listed.META_PARTS, listed.COMPILER)
    assert all(importlib.util.find_spec(module) for module in modules)
