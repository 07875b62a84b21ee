"""``roseinfer quantize`` and the reader beside llama.cpp's converter, and real weights written.

``make test-real`` runs these; other targets do not. The converter comes with the source package of
llama-cpp-python, which is fetched by name.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from core.assembly.build import load_engine
from core.contract.config import ModelConfig
from core.export.gguf_export import export_gguf
from core.gguf.file import GgufFile
from core.gguf.metadata import CONTROL
from core.gguf.strings import Strings
from core.module.gguf import load_gguf
from tests.real.fetch import PACKAGES, Unavailable, fetched
from tests.real.test_real_models import LIMITS, PROMPTS
from tests.support.gguf_models import MODELS, tiny_model
from tests.support.tiny_engine import run_prompts
from tests.support.tokenizers import byte_level

pytestmark = pytest.mark.real

CPU = torch.device("cpu")
IDS = torch.randint(3, 290, (1, 100), generator=torch.Generator().manual_seed(1))

USER_DEFINED = 4

CONVERT = Path(__file__).with_name("convert_with_llama_cpp.py")

CHANGES = {"gpt2": {"n_inner": None}}
"""The converter writes 4 times the width of every GPT-2, whatever its configuration says."""

NUM_TRAINED = 292
"""Tokens of the tokenizer's model. The converter counts special tokens twice, and cuts Gemma 3's
embedding after so many rows, though it names a token for each row: with these, none is cut."""

OURS_ALONE = {"tokenizer.ggml.add_bos_token", "tokenizer.ggml.add_eos_token"}
"""Keys that the converter leaves to the reader's defaults."""


@pytest.fixture(scope="module")
def converter() -> Path:
    try:
        return fetched("llama.cpp")
    except Unavailable as error:
        pytest.skip(f"llama.cpp's converter cannot be fetched: {error}")


def converted(converter: Path, family: str, folder: Path) -> tuple[Path, Path]:
    """The files that the converter and we write of a family's tiny model, in F32."""
    tiny_model(family, **CHANGES.get(family, {})).save_pretrained(folder / "source")
    byte_level(NUM_TRAINED).save_pretrained(folder / "source")
    theirs, ours = folder / "theirs.gguf", folder / "ours.gguf"
    command = [sys.executable, str(CONVERT), str(converter), str(folder / "source"), str(theirs)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    export_gguf(ModelConfig(model=str(folder / "source"), device="cpu"), ours, "f32")
    return theirs, ours


@pytest.mark.parametrize("family", MODELS)
def test_files_of_the_converter_are_read_and_ours_are_the_same(converter, family, tmp_path):
    theirs, ours = converted(converter, family, tmp_path)
    model = load_gguf(ModelConfig(model=str(theirs), dtype="float32"), theirs, CPU).eval()
    with torch.no_grad():
        logits = model(IDS).logits
        wanted = tiny_model(family, **CHANGES.get(family, {}))(IDS).logits
    assert (logits - wanted).abs().max() < 1e-4 * wanted.std()
    first, second = GgufFile.open(theirs), GgufFile.open(ours)
    assert first.tensors.keys() == second.tensors.keys()
    for name, tensor in first.tensors.items():
        assert second.tensors[name].shape == tensor.shape, name
        assert second.tensors[name].info.type == tensor.info.type, name
        assert second.tensors[name].data.tobytes() == tensor.data.tobytes(), name
    wanted_keys, found = first.metadata._values, second.metadata._values
    for key in found.keys() - OURS_ALONE - {"general.name"}:
        if key in wanted_keys:
            mine, converters = _plain(found[key]), _plain(wanted_keys[key])
            is_number = type(mine) is float
            assert mine == (pytest.approx(converters) if is_number else converters), key
    missing = {
        key
        for key in wanted_keys.keys() - found.keys()
        if not key.startswith("general.") and not key.endswith(".vocab_size")
    }
    # the tokenizer has no BOS; the converter takes that of the configuration
    assert missing <= {"tokenizer.ggml.bos_token_id"}


def _plain(value: Any) -> Any:
    """A value that can be compared.

    The converter makes control tokens of all that look like one. We keep what the tokenizer says.
    """
    if isinstance(value, np.ndarray) and value.dtype == np.int32:
        return [CONTROL if kind == USER_DEFINED else kind for kind in value.tolist()]
    return list(value) if isinstance(value, Strings | np.ndarray) else value


@pytest.mark.parametrize("name", PACKAGES)
def test_real_weights_written_in_4_bits_answer_as_with_int4(name, tmp_path):
    try:
        source = str(fetched(name))
    except Unavailable as error:
        pytest.skip(f"{name} cannot be fetched: {error}")
    path = tmp_path / "m.gguf"
    config = ModelConfig(model=source, device="cpu")
    export_gguf(config, path, "q4_k_m")
    loaded = load_engine(ModelConfig(model=str(path), device="cpu"), LIMITS)
    int4 = load_engine(ModelConfig(model=source, device="cpu", quantization="int4"), LIMITS)
    prompts = [loaded.tokenizer.encode(text, add_special_tokens=True) for text in PROMPTS]
    assert prompts == [int4.tokenizer.encode(text, add_special_tokens=True) for text in PROMPTS]
    assert run_prompts(loaded.engine, prompts, 24) == run_prompts(int4.engine, prompts, 24)
    original = AutoModelForCausalLM.from_pretrained(source)
    assert loaded.info.vocab_size == original.config.vocab_size
