"""The direction of the imports, and what may appear nowhere."""

from __future__ import annotations

import ast
import functools
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("schemas", "core", "server", "bench")
FILES = sorted(file for package in PACKAGES for file in (ROOT / package).rglob("*.py"))

LAYERS = (
    {
        "core.contract.errors",
        "core.contract.config",
        "core.layer_spec",
        "core.builtin_model",
        "core.profile_report",
    },
    {"core.kernels", "core.pinned"},
    {"core.contract"},
    {"core.sequence", "core.kv.block_table"},
    {"core.kv", "core.sampling", "core.text", "core.attention", "core.model_input"},
    {"core.model", "core.scheduler", "core.grammar"},
    {"core.fusion"},
    {"core.generation"},
    {"core.engine"},
    {"core.assembly", "core.build", "core.profiling"},
)
"""Inside core: what a file imports is in its own layer or an earlier one. The thread is in none:
it needs nothing but messages and errors."""

THREAD_NEEDS = {"core.contract.messages", "core.contract.errors"}

PURE = (
    "core.scheduler",
    "core.sequence",
    "core.kv",
    "core.contract.messages",
    "core.contract.params",
    "core.thread",
)
"""Integers only: these import no torch, not even by way of others."""


def module_of(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def tree_of(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"), str(file))


MODULES = {module_of(file): file for file in FILES}


@functools.cache
def imports_of(file: Path) -> frozenset[str]:
    """Every module that a file imports, by its full name, wherever in the file."""
    found = set()
    for node in ast.walk(tree_of(file)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno}: imports are absolute"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                found.add(full if full in MODULES else str(node.module))
    return frozenset(found)


def tops_of(file: Path) -> set[str]:
    return {name.split(".")[0] for name in imports_of(file)}


def is_in(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def layer_of(module: str) -> int:
    """The layer named most exactly."""
    ranks = {
        len(name): rank
        for rank, layer in enumerate(LAYERS)
        for name in layer
        if is_in(module, name)
    }
    assert ranks, f"{module} has no place among the layers: give it one"
    return ranks[max(ranks)]


def reachable(module: str) -> set[str]:
    """All modules, ours and others', that importing this one brings in."""
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


def files_in(package: str) -> list[Path]:
    return [file for module, file in MODULES.items() if is_in(module, package)]


@functools.cache
def calls_in(file: Path) -> list[tuple[str, ast.Call]]:
    """Every call and how its function is written."""
    return [
        (ast.unparse(node.func), node)
        for node in ast.walk(tree_of(file))
        if isinstance(node, ast.Call)
    ]


def where(file: Path, node: ast.AST) -> str:
    return f"{file.relative_to(ROOT)}:{node.lineno}"  # type: ignore[attr-defined]


def test_there_is_something_to_look_at():
    assert {"core.engine", "core.kv", "server.app", "schemas.chat"} <= MODULES.keys()


@pytest.mark.parametrize("module", sorted(MODULES))
def test_files_are_read_without_surprises(module):
    tree = tree_of(MODULES[module])
    star = [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.names[0].name == "*"]
    assert not star
    imports_of(MODULES[module])


def test_schemas_need_msgspec_and_the_standard_library_only():
    for file in files_in("schemas"):
        assert tops_of(file) <= {"msgspec", "schemas", *sys.stdlib_module_names}, file


def test_core_knows_nothing_of_http():
    forbidden = {
        "anyio",
        "asyncio",
        "http",
        "litestar",
        "schemas",
        "server",
        "socket",
        "starlette",
        "uvicorn",
    }
    for file in files_in("core"):
        assert not tops_of(file) & forbidden, file


def test_nothing_shipped_imports_tests_or_tools():
    for file in FILES:
        assert not tops_of(file) & {"tests", "compat_tests", "pytest", "hypothesis", "openai"}, file


@pytest.mark.parametrize("module", sorted(m for m in MODULES if m.startswith("core.")))
def test_core_imports_only_from_its_own_layer_or_earlier_ones(module):
    imported = {name for name in imports_of(MODULES[module]) if is_in(name, "core")} - {"core"}
    if module == "core.thread":
        assert imported <= THREAD_NEEDS
        return
    assert "core.thread" not in imported
    for name in imported:
        assert layer_of(name) <= layer_of(module), f"{module} imports {name}"


def test_core_has_no_import_cycles():
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " -> ".join([*path, module])
        if module in done or module not in MODULES:
            return
        for name in imports_of(MODULES[module]) - {module}:
            visit(name, (*path, module))
        done.add(module)

    for module in MODULES:
        if is_in(module, "core"):
            visit(module, ())


@pytest.mark.parametrize(
    "module",
    sorted(m for m in MODULES if any(is_in(m, p) for p in PURE) and m != "core.kv.storage"),
)
def test_bookkeeping_never_imports_torch(module):
    assert not {name.split(".")[0] for name in reachable(module)} & {"torch", "transformers"}


def test_transformers_is_imported_lazily():
    """It takes seconds: nobody pays for it but who loads a model."""
    for file in FILES:
        for node in tree_of(file).body:
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [str(node.module)]
            assert not any(is_in(name, "transformers") for name in names), where(file, node)


# What may appear nowhere


def test_code_of_others_is_never_trusted_by_our_own_choice():
    for file in FILES:
        for node in ast.walk(tree_of(file)):
            if isinstance(node, ast.keyword) and node.arg == "trust_remote_code":
                assert not (isinstance(node.value, ast.Constant) and node.value.value is True), (
                    where(file, node.value)
                )


@pytest.mark.parametrize("name", ["pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal"])
def test_nothing_is_unpickled(name):
    for file in FILES:
        assert name not in tops_of(file), file


def test_torch_load_takes_weights_only():
    for file in FILES:
        for function, call in calls_in(file):
            if function == "torch.load":
                arguments = {keyword.arg: keyword.value for keyword in call.keywords}
                value = arguments.get("weights_only")
                assert isinstance(value, ast.Constant), where(file, call)
                assert value.value is True, where(file, call)
        for node in ast.walk(tree_of(file)):
            if isinstance(node, ast.ImportFrom) and node.module == "torch":
                assert "load" not in {alias.name for alias in node.names}, where(file, node)


@pytest.mark.parametrize("name", ["eval", "exec", "compile", "__import__"])
def test_no_text_becomes_code(name):
    for file in FILES:
        assert name not in {function for function, _ in calls_in(file)}, file


def test_only_settings_read_the_environment():
    """House rule: frozen Settings is the only reader of environment and arguments."""
    for file in files_in("core") + files_in("schemas"):
        for node in ast.walk(tree_of(file)):
            if isinstance(node, ast.Attribute):
                assert ast.unparse(node) not in {"os.environ", "os.getenv", "sys.argv"}, where(
                    file, node
                )
