"""Linking torch's library while modules are imported."""

from __future__ import annotations

import subprocess
import sys

import pytest

from core import torch_ahead

LINKS = """
import sys
from core import torch_ahead
thread = torch_ahead.begin()
thread.join()
maps = open("/proc/self/maps").read()
print("libtorch_cpu.so" in maps, "torch" in sys.modules)
import torch
print(torch.ones(2).sum().item(), torch_ahead.begin())
"""

NO_LIBRARY_FOR_PLAIN = """
import sys
from importlib import import_module
from server.app import imports
from server.cli import main
def libraries():
    specs = [getattr(module, "__spec__", None) for module in list(sys.modules.values())]
    return {spec.origin for spec in specs if spec and (spec.origin or "").endswith(".so")}
for name in imports.LINKED:
    import_module(name)
before = libraries()
for name in imports.PLAIN:
    import_module(name)
print(sorted(libraries() - before), "torch" in sys.modules)
"""


def output_of(code: str, *arguments: str) -> str:
    done = subprocess.run(  # noqa: S603 - our own code
        [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_the_library_is_there_before_torch_is_imported_and_torch_works():
    import torch  # noqa: PLC0415 - only to know whether it is built with CUDA

    if torch.version.cuda:
        pytest.skip("torch with CUDA is not linked ahead")
    assert output_of(LINKS) == "True False\n2.0 None\n"


def test_it_does_nothing_once_torch_is_imported():
    import torch  # noqa: F401, PLC0415

    assert torch_ahead.begin() is None


BEGINS = """
import sys
sys.path.insert(0, sys.argv[1])
from core import torch_ahead
print(torch_ahead.begin() is not None)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="nothing is linked elsewhere")
@pytest.mark.parametrize(
    ("library", "begins"),
    [(None, True), ("cuda", False), ("hip", False), ("xpu", False)],
)
def test_a_torch_for_a_gpu_is_left_to_its_own_import(tmp_path, library, begins):
    """It loads its own libraries first."""
    folder = tmp_path / "torch" / "lib"
    folder.mkdir(parents=True)
    (tmp_path / "torch" / "__init__.py").touch()
    for name in ["cpu"] if library is None else ["cpu", library]:
        (folder / f"libtorch_{name}.so").touch()
    assert output_of(BEGINS, str(tmp_path)) == f"{begins}\n"


def test_what_is_imported_meanwhile_loads_no_library_and_not_torch():
    assert output_of(NO_LIBRARY_FOR_PLAIN) == "[] False\n"


WITHOUT_AN_OPTIONAL_MODULE = """
import sys
sys.modules["lzma"] = sys.modules["bz2"] = None
from server.app import imports
from server.cli import main
imports.import_ahead()
import torch  # one with CUDA is not imported ahead
print("litestar" in sys.modules)
"""


def test_a_python_without_an_optional_module_will_do():
    """Python is often built where the headers of lzma are missing; nothing here needs it."""
    assert output_of(WITHOUT_AN_OPTIONAL_MODULE) == "True\n"


def test_a_process_that_ends_while_the_library_is_linked_does_not_crash():
    assert output_of("from core import torch_ahead; torch_ahead.begin(); print(1)") == "1\n"


NO_SEARCH_AND_NO_META_KERNELS = """
import sys
from server.app import imports
from server.cli import main
imports.import_ahead()
import server.cli.serve
from core.model.modelling_import import import_modelling
import_modelling()
import inspect
names = {"torch._decomp", "torch._dynamo.utils", "sympy", "pydantic"}
print(sorted(names & set(sys.modules)), len(inspect.modulesbyfile))
"""


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="torch is imported whole elsewhere"
)
def test_a_start_imports_no_meta_kernels_and_no_compiler_and_searches_no_module():
    import torch  # noqa: PLC0415 - only to know whether it is built with CUDA

    if torch.version.cuda:
        pytest.skip("torch with CUDA is imported whole")
    assert output_of(NO_SEARCH_AND_NO_META_KERNELS) == "[] 0\n"
