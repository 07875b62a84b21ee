"""Architectures that are a row of core.models and a line of the table: files of their twins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core.contract.errors import ModelLoadError
from core.gguf.architectures import ARCHITECTURES
from core.gguf.describe import describe_file
from core.gguf.file import GgufFile
from core.weights.roles import RoleReader
from tests.core.gguf.test_describe import compiled, needs_kernels, plain
from tests.core.models.cases import CASES, YARN, Case
from tests.core.models.twins import Twin
from tests.support.gguf_files import byte_vocabulary, write_gguf
from tests.support.gguf_models import MODELS, in_blocks
from tests.support.gguf_roles import tensors_by_role

EXACT = 1e-5
"""Of the largest logit."""

Keys = dict[str, Any]

KEYS: Keys = {
    "context_length": 256,
    "block_count": 4,
    "feed_forward_length": 64,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
}
HEADS = ("attention.key_length", "attention.value_length")
RMS: Keys = {"attention.layer_norm_rms_epsilon": 0.01}
LAYER: Keys = {"attention.layer_norm_epsilon": 0.01}
WINDOWS: Keys = {
    "attention.sliding_window": 7,
    "attention.sliding_window_pattern": [True, False] * 2,
}
SCALES: Keys = {
    "attention.scale": 0.2,
    "embedding_scale": 3.0,
    "residual_scale": 0.7,
    "logit_scale": 2.0,
}
EXPERTS: Keys = {"expert_count": 6, "expert_used_count": 2}
OSS = {"rope_parameters": {**YARN, "truncate": False}, "rms_norm_eps": 0.01}
YARN_KEYS: Keys = {
    "rope.scaling.type": "yarn",
    "rope.scaling.factor": 8.0,
    "rope.scaling.original_context_length": 32,
}

FILES: dict[str, tuple[str, Case | str, Keys]] = {
    "arcee": ("arcee", "arcee", RMS),
    "cohere2": ("cohere2", "cohere2", LAYER | WINDOWS | {"logit_scale": 0.3}),
    "ernie4_5": ("ernie4_5", "ernie4_5", RMS),
    "exaone4": ("exaone4", "exaone4", RMS | WINDOWS),
    "glm4": ("glm4", "glm4", RMS | {"rope.dimension_count": 8}),
    "gpt-oss": (
        "gpt-oss",
        Case("gpt_oss", {**OSS, "sliding_window": 7}),
        RMS
        | EXPERTS
        | YARN_KEYS
        | {"attention.sliding_window": 7, "expert_feed_forward_length": 64},
    ),
    "granite": ("granite", "granite", RMS | SCALES),
    "granitemoe": ("granitemoe", "granitemoe", RMS | SCALES | EXPERTS),
    "nemotron": ("nemotron", "nemotron", LAYER | {"rope.dimension_count": 8}),
    "olmo2": ("olmo2", "olmo2", RMS),
    "olmo3": ("olmo2", "olmo3", RMS | WINDOWS | YARN_KEYS),
    "olmoe": ("olmoe", "olmoe", RMS | EXPERTS | {"attention.clamp_kqv": 1.0}),
    "seed_oss": ("seed_oss", "seed_oss", RMS),
    "smollm3": (
        "smollm3",
        Case("smollm3", {"attention_bias": True, "use_sliding_window": False}),
        RMS,
    ),
    "starcoder2": ("starcoder2", Case("starcoder2", {"sliding_window": None}), LAYER),
}
"""Architecture, case, and keys besides those of all."""


def written(
    name: str, folder: Path, *, own: Case | None = None, has_blocks: bool = False, **changes: Any
) -> tuple[Path, Twin]:
    """A file of a twin; changes are metadata."""
    architecture, case, keys = FILES[name]
    case = own or case
    if isinstance(case, str):
        case = next(each for each in CASES if each.family == case)
    twin = Twin(case, folder)
    rope = twin.values["rope_parameters"]
    base = rope.get("full_attention", rope)["rope_theta"]
    values = KEYS | {"rope.freq_base": float(base)} | keys
    values["embedding_length"] = twin.spec.hidden_size
    if "head_dim" in twin.values:
        values |= dict.fromkeys(HEADS, twin.values["head_dim"])
    metadata = {f"{architecture}.{key}": value for key, value in values.items()}
    metadata |= {"general.architecture": architecture, **byte_vocabulary(97)}
    reader = RoleReader(twin.tensors(), twin.spec, twin.names)
    tensors = tensors_by_role(twin.spec, reader, ARCHITECTURES[architecture])
    tensors = in_blocks(tensors) if has_blocks else tensors
    return write_gguf(folder / "m.gguf", metadata | changes, tensors), twin


def test_every_architecture_has_a_file() -> None:
    assert {architecture for architecture, _, _ in FILES.values()} | MODELS.keys() - {
        "mixtral"
    } == ARCHITECTURES.keys()


@pytest.mark.parametrize("name", FILES)
def test_a_file_computes_the_logits_of_transformers(tmp_path: Path, name: str) -> None:
    path, twin = written(name, tmp_path)
    assert twin.difference(plain(path), in_chunks=False) < EXACT
    assert twin.difference(plain(path), in_chunks=True) < EXACT


@needs_kernels
@pytest.mark.parametrize("name", FILES)
def test_the_compiled_executor_computes_the_same(tmp_path: Path, name: str) -> None:
    path, twin = written(name, tmp_path)
    assert twin.difference(compiled(path), in_chunks=True) < EXACT


@needs_kernels
def test_experts_in_blocks_keep_their_biases(tmp_path: Path) -> None:
    """Rounded activations choose no other experts: all are chosen."""
    sizes = {"hidden_size": 64, "num_experts_per_tok": 6}
    own = Case("gpt_oss", {**OSS, **sizes, "sliding_window": 7})
    used = {"gpt-oss.expert_used_count": 6}
    path, twin = written("gpt-oss", tmp_path, own=own, has_blocks=True, **used)
    found, exact = compiled(path).whole(twin.prompts), plain(path).whole(twin.prompts)
    for a, b in zip(found, exact, strict=True):
        assert float((a - b).norm() / b.norm()) < 0.1


REFUSED: list[tuple[str, Keys, str]] = [
    ("granite", {"granite.rope.scaling.finetuned": False}, "granites without RoPE"),
    ("granitemoe", {"granitemoe.expert_shared_feed_forward_length": 64}, "could change what"),
    ("olmo2", {"olmo2.attention.sliding_window_pattern": [True] * 3}, "3 values for 4 layers"),
    ("exaone4", {"exaone4.rope.freq_base_swa": 7.0}, "RoPE of another base"),
]


@pytest.mark.parametrize(("name", "changes", "message"), REFUSED)
def test_what_a_row_cannot_say_is_refused(
    tmp_path: Path, name: str, changes: Keys, message: str
) -> None:
    path, _ = written(name, tmp_path, **changes)
    with pytest.raises(ModelLoadError, match=message):
        describe_file(GgufFile.open(path), 256)
