"""What the import of transformers' modelling code leaves out, and that the rest works."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
import transformers
from transformers.utils import import_utils

from core.module import modelling_import
from core.module.modelling_import import _by_folder, _on_the_end
from tests.support.pooling_models import save_cross_encoder

HEAVY = (
    "pandas",
    "scipy",
    "sklearn",
    "torch._dynamo.eval_frame",
    "torch._inductor",
    "torch.distributed.checkpoint",
    "torch.distributed.fsdp",
    "torch.distributed.tensor",
    "torch.nn.attention.flex_attention",
)
"""Modules that take long to import, and that a server does not need."""

IMPORT = """
import sys
from core.module.modelling_import import import_modelling
import_modelling()
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen3ForCausalLM
"""

SCORER = """
import sys
from core.contract.config import EngineConfig, ModelConfig
from core.assembly.load import load
load(ModelConfig(model={folder!r}, device="cpu"), EngineConfig())
"""


def run(program: str, before: str = IMPORT) -> list[str]:
    """The words that a program in a new interpreter prints after the import."""
    done = subprocess.run(  # noqa: S603 - this interpreter
        [sys.executable, "-W", "ignore", "-c", before + program],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_no_heavy_module_is_imported_with_the_modelling_code():
    assert run(f"print(*(set({HEAVY}) & set(sys.modules)))") == []


def test_no_heavy_module_is_imported_for_a_model_that_scores(tmp_path):
    save_cross_encoder(tmp_path)
    before = SCORER.format(folder=str(tmp_path))
    assert run(f"print(*(set({HEAVY}) & set(sys.modules)))", before) == []


@pytest.mark.slow
def test_what_was_left_out_works_when_it_is_needed():
    program = """
import torch
from transformers import masking_utils
with masking_utils.TransformGetItemToIndex() as mode:
    print(type(mode).__name__)
double = torch.compile(lambda x: 2 * x, backend="eager")
print(double(torch.ones(1)).item())
import torch._dynamo.config
print(torch._dynamo.config.recompile_limit > 0, torch.distributed.is_available())
print("torch._dynamo.eval_frame" in sys.modules)
"""
    assert run(program) == ["TransformGetItemToIndex", "2.0", "True", "True", "True"]


def original_lister():
    """transformers' lister without the replaced functions, whoever imported it first."""
    name = "transformers.utils.original_import_utils"
    spec = importlib.util.spec_from_file_location(name, import_utils.__file__)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_names_of_every_family_are_found_at_the_end_of_its_files():
    fetch = original_lister().fetch__all__
    quick = _on_the_end(fetch)
    files = sorted((Path(transformers.__file__).parent / "models").glob("*/*.py"))
    texts = [file.read_text("utf-8") for file in files]
    assert sum(bool(fetch(text)) for text in texts) > 500
    assert all(quick(text) == fetch(text) for text in texts)
    assert quick('__all__ = ["a"]') == ["a"]
    assert quick("no names") == fetch("no names") == []


def lister():
    """The module with transformers' lister, as ``import_modelling`` imports it."""
    name = "transformers.utils.our_import_utils"
    loader = modelling_import._Loader(name, import_utils.__file__)
    spec = importlib.util.spec_from_file_location(name, import_utils.__file__, loader=loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.mark.slow
def test_the_listing_is_transformers_own_also_when_it_was_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    families = str(Path(transformers.__file__).parent / "models")
    expected = original_lister().create_import_structure_from_path(families)
    assert len(expected) > 300
    assert lister().create_import_structure_from_path(families) == expected
    [file] = (tmp_path / ".cache" / "roseinfer" / "listings").iterdir()
    kept, written_at = file.read_bytes(), file.stat().st_mtime_ns
    assert lister().create_import_structure_from_path(families) == expected
    assert file.stat().st_mtime_ns == written_at  # it was read
    monkeypatch.setattr(modelling_import, "__file__", transformers.__file__)  # another program
    assert lister().create_import_structure_from_path(families) == expected
    assert file.read_bytes() != kept


def test_a_folder_is_read_once_by_whatever_name(tmp_path):
    asked = []
    create = _by_folder(asked.append)
    (tmp_path / "__init__.py").touch()
    for path in (tmp_path, str(tmp_path), tmp_path / "__init__.py"):
        create(path)
    assert asked == [str(tmp_path)] * 3
