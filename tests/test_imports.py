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
        "core.contract.errors",
        "core.checkpoint_files",
        "core.contract.info",
        "core.contract.config",
        "core.fair_queue",
        "core.huge_pages",
        "core.memory_ahead",
        "core.heap_end",
        "core.pieces",
        "core.layer_spec",
        "core.builtin_model",
        "core.stages",
        "core.histogram",
        "core.step_histograms",
        "core.step_timer",
        "core.hand_over",
        "core.progress",
        "core.load_progress",
        "core.machine",
        "core.user_folders",
        "core.system",
        "core.models",
    },
    {"core.kernels", "core.pinned"},
    {"core.contract"},
    {"core.history", "core.sequence", "core.block_table", "core.gguf"},
    {"core.kv", "core.sampling", "core.text", "core.attention", "core.model_input"},
    {"core.model", "core.scheduler", "core.grammar"},
    {"core.weights"},
    {"core.executors"},
    {"core.proof"},
    {"core.fusion"},
    {"core.generation"},
    {"core.pipeline"},
    {"core.engine", "core.failures", "core.recovery", "core.retry"},
    {"core.assembly"},
    {"core.pooling", "core.fit", "core.path_trial", "core.skeleton"},
    {"core.build"},
    {"core.load", "core.weights_ahead"},
)
"""A file of core imports from its own layer or an earlier one. ``core.thread`` is in no layer."""

THREAD_IMPORTS = {
    "core.contract.messages",
    "core.contract.errors",
    "core.hand_over",
    "core.progress",
    "core.step_histograms",
    "core.step_timer",
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
"""A folder of server imports from itself and from folders of earlier layers."""

FOLDER_CYCLES = {}
"""Folders whose direct children may import one another in a circle."""

NO_TORCH = (
    "core.fair_queue",
    "core.scheduler",
    "core.sequence",
    "core.kv",
    "core.models",
    "core.contract.messages",
    "core.contract.params",
    "core.thread",
)
"""Modules that import no torch, directly or through others."""


def layer_of(module: str) -> int:
    """The layer of the longest matching name."""
    ranks = {
        len(name): rank
        for rank, layer in enumerate(CORE_LAYERS)
        for name in layer
        if is_in(module, name)
    }
    assert ranks, f"{module} is in no layer: add it to CORE_LAYERS"
    return ranks[max(ranks)]


def check_limit(sizes: dict[str, int], limit: int, exceptions: dict[str, str]) -> None:
    """Assert that exactly the exceptions exceed the limit."""
    exceeded = {name: size for name, size in sizes.items() if size > limit}
    new = {name: size for name, size in exceeded.items() if name not in exceptions}
    assert not new, f"above {limit}"
    stale = exceptions.keys() - exceeded.keys()
    assert not stale, f"exceptions that are no longer needed: {sorted(stale)}"


def test_the_files_are_found():
    assert {"core.engine", "core.kv", "server.app.app", "schemas.chat"} <= MODULES.keys()


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


def test_core_imports_from_its_own_layer_or_earlier_ones():
    for module in sorted(m for m in MODULES if m.startswith("core.")):
        imported = {name for name in imports_of(MODULES[module]) if is_in(name, "core")} - {"core"}
        if module == "core.thread":
            assert imported <= THREAD_IMPORTS
            continue
        assert "core.thread" not in imported, module
        for name in imported:
            assert layer_of(name) <= layer_of(module), f"{module} imports {name}"


def test_server_folders_import_from_earlier_layers():
    ranks = {folder: rank for rank, layer in enumerate(SERVER_LAYERS) for folder in layer}
    folders = {m: ".".join(f.relative_to(ROOT).parent.parts) for m, f in MODULES.items()}
    found = {folder for folder in folders.values() if is_in(folder, "server")}
    assert found == ranks.keys(), "each folder of server is in one layer"
    for module, folder in folders.items():
        for name in imports_of(MODULES[module]) if folder in ranks else ():
            other = folders.get(name, folder)
            assert other == folder or ranks.get(other, -1) < ranks[folder], f"{module}: {name}"


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
        if any(is_in(module, name) for name in NO_TORCH) and module != "core.kv.storage":
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
