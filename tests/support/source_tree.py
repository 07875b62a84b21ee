"""The source files of this repository, read without importing them."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

ROOT = Path(__file__).parents[2]
SHIPPED = ("schemas", "core", "server", "bench")
SCRIPTS = ("benchmarks", "training")


def module_of(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def name_of(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


def files_of(*packages: str) -> list[Path]:
    return sorted(file for package in packages for file in (ROOT / package).rglob("*.py"))


FILES = files_of(*SHIPPED)
ALL_FILES = files_of(*SHIPPED, *SCRIPTS)
MODULES = {module_of(file): file for file in ALL_FILES}


@functools.cache
def tree_of(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"), str(file))


@functools.cache
def imports_of(file: Path) -> frozenset[str]:
    """Full name of every module that a file imports anywhere, without ``__future__``."""
    found = set()
    for node in ast.walk(tree_of(file)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{where(file, node)}: relative import"
            for alias in node.names:
                assert alias.name != "*", f"{where(file, node)}: star import"
                full = f"{node.module}.{alias.name}"
                found.add(full if full in MODULES else str(node.module))
    return frozenset(found - {"__future__"})


def tops_of(file: Path) -> set[str]:
    return {name.split(".")[0] for name in imports_of(file)}


def is_in(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def files_in(package: str) -> list[Path]:
    return [file for module, file in MODULES.items() if is_in(module, package)]


def reachable(module: str) -> set[str]:
    """All modules, ours and others', that importing this one imports."""
    seen: set[str] = set()
    todo = [module]
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        if name in MODULES:
            todo += imports_of(MODULES[name])
    return seen


def imports_inside(folder: str) -> dict[str, set[str]]:
    """Which direct child (file or folder) of a folder imports which others."""
    prefix = f"{folder}."
    graph: dict[str, set[str]] = {}
    for module, file in MODULES.items():
        if not module.startswith(prefix):
            continue
        child = module.removeprefix(prefix).split(".")[0]
        others = {
            name.removeprefix(prefix).split(".")[0]
            for name in imports_of(file)
            if name in MODULES and name.startswith(prefix)
        }
        graph.setdefault(child, set()).update(others - {child})
    return graph


def cycle_in(graph: dict[str, set[str]]) -> list[str]:
    """One cycle of a graph, or an empty list."""
    done: set[str] = set()

    def visit(node: str, path: list[str]) -> list[str]:
        if node in path:
            return [*path[path.index(node) :], node]
        if node in done:
            return []
        for other in sorted(graph.get(node, ())):
            if cycle := visit(other, [*path, node]):
                return cycle
        done.add(node)
        return []

    return next((cycle for node in sorted(graph) if (cycle := visit(node, []))), [])


@functools.cache
def calls_in(file: Path) -> list[tuple[str, ast.Call]]:
    """Every call and how its function is written."""
    return [
        (ast.unparse(node.func), node)
        for node in ast.walk(tree_of(file))
        if isinstance(node, ast.Call)
    ]


def where(file: Path, node: ast.AST) -> str:
    return f"{name_of(file)}:{node.lineno}"  # type: ignore[attr-defined]
