"""The structure of the repository: direction of imports, sizes, and forbidden calls."""

from __future__ import annotations

import ast
import sys

import pytest

from tests.support.source_tree import (
    ALL_FILES,
    FILES,
    MODULES,
    ROOT,
    SHIPPED,
    calls_in,
    cycle_in,
    files_in,
    files_of,
    imports_inside,
    imports_of,
    is_in,
    name_of,
    reachable,
    tops_of,
    tree_of,
    where,
)

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
MAX_IMPORTS = 22

KERNEL = "a Triton kernel is one function"
BEING_SPLIT = "being split"

LONG_FILES = {}

LONG_FUNCTIONS = {
    "core/kernels/triton/attention/attend.py:attend_tile": KERNEL,
    "core/kernels/triton/attention/chunk.py:_chunk_kernel": KERNEL,
    "core/kernels/triton/attention/decode.py:_decode_kernel": KERNEL,
    "core/kernels/triton/quantised_linear.py:_quantised_kernel": KERNEL,
}

MANY_IMPORTS = {}

PACKAGE_IMPORTS = {
    "schemas": set(),
    "core": set(),
    "server": {"schemas", "core"},
    "bench": {"server", "core"},
    "benchmarks": {"schemas", "core", "server", "bench", "training"},
    "training": set(),
}
"""Packages of this repository that each package may import, besides itself."""

PACKAGE_EXCEPTIONS = {
    "server/cli/main.py": ("bench", "the CLI entry of `roseinfer bench`"),
}
"""File: the packages that it also imports, and why."""

CORE_LAYERS = (
    {
        "core.builtin_model",
        "core.contract",
        "core.kernels",
        "core.kernels.triton",
        "core.models",
        "core.text.chat_templates",
    },
    {"core.state", "core.system"},
    {"core.kv", "core.observe"},
    {"core.kernels.cpu", "core.kernels.triton.attention", "core.scheduler"},
    {"core.gguf", "core.sampling.processors"},
    {"core.gguf.vocabulary", "core.sampling", "core.weights"},
    {"core.batch", "core.text"},
    {"core.attention", "core.attention.triton", "core.engine", "core.grammar.matcher"},
    {"core.grammar.trial", "core.hook", "core.load"},
    {"core.grammar", "core.module", "core.run"},
    {"core.executors", "core.fusion", "core.pooling", "core.run.graphs"},
    {"core.sizing"},
    {"core.proof"},
    {"core.assembly"},
    {"core.export"},
)

THREAD_IMPORTS = {
    "core.contract.messages",
    "core.contract.errors",
    "core.system.hand_over",
    "core.observe.step_timer",
    "core.observe.histogram",
}

SERVER_LAYERS = (
    {"server.parsers.text", "server.bridge", "server.client", "server.workers"},
    {"server.parsers"},
    {"server.parsers.tool"},
    {"server.settings"},
    {"server.http"},
    {"server.tenants", "server.rendering"},
    {"server.observe", "server.cli.chat"},
    {"server.net", "server.router.config"},
    {"server.admission", "server.process"},
    {"server.generation", "server.cli.doctor"},
    {"server.translation"},
    {"server.openapi"},
    {"server.apis.pooling"},
    {
        "server.apis.anthropic",
        "server.apis.ollama",
        "server.apis.openai",
        "server.apis.operation",
        "server.apis.responses",
        "server.ui",
    },
    {"server.apis"},
    {"server.app"},
    {"server.router"},
    {"server.cli"},
    {"server", "server.ray"},
)
"""A folder imports from itself and from folders of earlier layers."""

FOLDER_CYCLES = {}
"""Folders whose direct children may import one another in a circle."""

NO_TORCH = (
    "core.state.fair_queue",
    "core.scheduler",
    "core.state.sequence",
    "core.kv",
    "core.models",
    "core.contract.messages",
    "core.contract.params",
    "core.engine.thread",
)
"""Modules that import no torch, directly or through others, but for WITH_TORCH."""

WITH_TORCH = ("core.kv.storage", "core.kv.layer_spec", "core.kv.touch_ahead")


def check_limit(sizes: dict[str, int], limit: int, exceptions: dict[str, str]) -> None:
    """Assert that exactly the exceptions exceed the limit."""
    exceeded = {name: size for name, size in sizes.items() if size > limit}
    new = {name: size for name, size in exceeded.items() if name not in exceptions}
    assert not new, f"above {limit}"
    stale = exceptions.keys() - exceeded.keys()
    assert not stale, f"exceptions that are no longer needed: {sorted(stale)}"


def test_the_files_are_found():
    assert {"core.engine.engine", "core.kv", "server.app.app", "schemas.chat"} <= MODULES.keys()


# Direction of imports


def test_packages_import_in_one_direction():
    stale = set(PACKAGE_EXCEPTIONS)
    for file in ALL_FILES:
        package = file.relative_to(ROOT).parts[0]
        ours = tops_of(file) & {*PACKAGE_IMPORTS, "tests", "compat_tests"}
        extra = ours - PACKAGE_IMPORTS[package] - {package}
        if extra:
            exceptions, _ = PACKAGE_EXCEPTIONS.get(name_of(file), ("", ""))
            assert extra <= set(exceptions.split()), f"{name_of(file)} imports {extra}"
            stale.discard(name_of(file))
    assert not stale, "exceptions that are no longer needed"


def test_schemas_import_msgspec_and_the_standard_library_only():
    for file in files_in("schemas"):
        assert tops_of(file) <= {"msgspec", "schemas", *sys.stdlib_module_names}, file


def test_core_imports_no_http_and_no_asyncio():
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


def test_shipped_code_imports_no_tests_and_no_test_tools():
    for file in FILES:
        assert not tops_of(file) & {"tests", "compat_tests", "pytest", "hypothesis", "openai"}, file


def test_only_the_replicas_of_ray_serve_import_ray():
    importers = {name_of(file) for file in FILES if tops_of(file) & {"ray", "starlette"}}
    assert importers == {"server/ray/app.py", "server/ray/edge.py"}


@pytest.mark.parametrize(("package", "layers"), [("core", CORE_LAYERS), ("server", SERVER_LAYERS)])
def test_folders_import_from_earlier_layers(package, layers):
    ranks = {folder: rank for rank, layer in enumerate(layers) for folder in layer}
    folders = {m: ".".join(f.relative_to(ROOT).parent.parts) for m, f in MODULES.items()}
    found = {folder for folder in folders.values() if is_in(folder, package)} - {"core"}
    assert found == ranks.keys(), f"each folder of {package} is in one layer"
    for module, folder in folders.items():
        for name in imports_of(MODULES[module]) if folder in ranks else ():
            other = folders.get(name, folder)
            assert other == folder or ranks.get(other, -1) < ranks[folder], f"{module}: {name}"


def test_the_core_thread_knows_no_engine():
    thread = "core.engine.thread"
    imported = {name for name in imports_of(MODULES[thread]) if is_in(name, "core")} - {"core"}
    assert imported <= THREAD_IMPORTS
    users = [m for m, f in MODULES.items() if is_in(m, "core") and thread in imports_of(f)]
    assert not users


def test_modules_have_no_import_cycles():
    graph = {m: {n for n in imports_of(f) if n in MODULES} - {m} for m, f in MODULES.items()}
    assert not cycle_in(graph)


def test_children_of_a_folder_have_no_import_cycles():
    folders = {m.rsplit(".", depth)[0] for m in MODULES for depth in range(m.count(".") + 1)}
    cyclic = {folder for folder in folders if cycle_in(imports_inside(folder))}
    new = {folder: cycle_in(imports_inside(folder)) for folder in cyclic - FOLDER_CYCLES.keys()}
    assert not new
    assert not FOLDER_CYCLES.keys() - cyclic, "exceptions that are no longer needed"


def test_bookkeeping_imports_no_torch():
    for module in MODULES:
        if any(is_in(module, name) for name in NO_TORCH) and module not in WITH_TORCH:
            imported = {name.split(".")[0] for name in reachable(module)}
            assert not imported & {"torch", "transformers"}, module


def test_transformers_is_imported_lazily():
    """Its import takes seconds; only code that loads a model pays for it."""
    for file in FILES:
        for node in tree_of(file).body:
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [str(node.module)]
            assert not any(is_in(name, "transformers") for name in names), where(file, node)


# Sizes


def test_files_are_short():
    sizes = {name_of(f): len(f.read_text(encoding="utf-8").splitlines()) for f in ALL_FILES}
    check_limit(sizes, MAX_FILE_LINES, LONG_FILES)


def test_functions_are_short():
    sizes: dict[str, int] = {}
    for file in ALL_FILES:
        for node in ast.walk(tree_of(file)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                name = f"{name_of(file)}:{node.name}"
                size = (node.end_lineno or 0) - node.lineno + 1
                sizes[name] = max(size, sizes.get(name, 0))
    check_limit(sizes, MAX_FUNCTION_LINES, LONG_FUNCTIONS)


def test_files_import_few_modules():
    sizes = {name_of(file): len(imports_of(file)) for file in files_of(*SHIPPED, "benchmarks")}
    check_limit(sizes, MAX_IMPORTS, MANY_IMPORTS)


# Forbidden calls


def test_shipped_code_never_trusts_remote_code_by_itself():
    for file in FILES:
        for node in ast.walk(tree_of(file)):
            if isinstance(node, ast.keyword) and node.arg == "trust_remote_code":
                assert not (isinstance(node.value, ast.Constant) and node.value.value is True), (
                    where(file, node.value)
                )


@pytest.mark.parametrize("name", ["pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal"])
def test_shipped_code_unpickles_nothing(name):
    for file in FILES:
        assert name not in tops_of(file), file


def test_torch_load_reads_weights_only():
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
def test_shipped_code_executes_no_text(name):
    for file in FILES:
        assert name not in {function for function, _ in calls_in(file)}, file


def test_only_settings_read_the_environment():
    """Frozen Settings is the only reader of environment variables and arguments."""
    for file in files_in("core") + files_in("schemas"):
        for node in ast.walk(tree_of(file)):
            if isinstance(node, ast.Attribute):
                assert ast.unparse(node) not in {"os.environ", "os.getenv", "sys.argv"}, where(
                    file, node
                )
