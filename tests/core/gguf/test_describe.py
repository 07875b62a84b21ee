"""Every architecture: a tiny file by names and roles, without transformers' modules."""

from __future__ import annotations

import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from core.attention.cpu_backend import PagedCPUBackend
from core.attention.torch_backend import PagedTorchBackend
from core.contract.config import ModelConfig
from core.contract.errors import ModelLoadError
from core.executors.compiled import CompiledExecutor
from core.executors.layer_calls import CallBuilder
from core.executors.plain import PlainExecutor, attention_layers
from core.executors.plain_weights import read_weights
from core.gguf.alike import alike
from core.gguf.blocks import BF16, F16, F32, IQ4_NL, Q4_0, Q4_1, Q5_1, Q8_0, BlockMatrix, BlockType
from core.gguf.describe import describe_file
from core.gguf.file import GgufFile
from core.gguf.tensors import GgufTensors
from core.kernels.cpu.library import kernels
from core.kernels.cpu.linear import Format
from core.models.spec import Attention, Undescribed
from core.module.gguf import load_gguf
from core.weights.packer import Packer
from core.weights.roles import RoleReader
from tests.core.models.twins import Run, storage_of
from tests.support.gguf_blocks import random_matrix
from tests.support.gguf_files import Raw, write_gguf
from tests.support.gguf_models import (
    MODELS,
    in_blocks,
    tensors_of_file,
    tiny_model,
    values_of_file,
    write_tiny,
)

KERNELS = kernels()
needs_kernels = pytest.mark.skipif(KERNELS is None, reason="no C++ compiler")

MAX_LEN = 256
PROMPTS = [torch.arange(n) * 37 % 280 + 3 for n in (65, 80, 100)]
"""Longer than windows, and than Phi 3's first length: transformers changes its factors there."""

MIXTURES = {"mixtral", "qwen2moe", "qwen3moe"}
"""Rounding may choose other experts."""

EXACT = 1e-5
"""Of the largest logit."""


def plain(path: Path) -> Run:
    file = GgufFile.open(path)
    _, spec, names = describe_file(file, MAX_LEN)
    weights = read_weights(GgufTensors(file), spec, names)
    layers = attention_layers(spec, weights)
    backend = PagedTorchBackend(storage_of(layers, len(PROMPTS)), layers)
    return Run(PlainExecutor(spec, weights, backend), backend)


def compiled(path: Path, dtype: torch.dtype | None = None) -> Run:
    """Raises Undescribed for what the kernels do not compute."""
    assert KERNELS is not None
    file = GgufFile.open(path)
    _, spec, names = describe_file(file, MAX_LEN)
    reader = RoleReader(GgufTensors(file, dtype), spec, names)
    calls = CallBuilder(spec, reader, Packer(KERNELS, Format.FLOAT32)).build()
    executor = CompiledExecutor(KERNELS, calls, lambda n: describe_file(file, n)[1])
    executor.fix_length(MAX_LEN)
    backend = PagedCPUBackend(storage_of(executor.layers, len(PROMPTS)), executor.layers)
    executor.attach(backend)
    return Run(executor, backend)


def expected(model: Any) -> list[torch.Tensor]:
    with torch.inference_mode():
        return [model(prompt[None]).logits[0] for prompt in PROMPTS]


def worst(run: Run, logits: list[torch.Tensor]) -> float:
    """The largest difference, as a share of the largest logit, of prompts alone and in chunks."""
    pairs = [*zip(run.whole(PROMPTS), logits, strict=True)]
    pairs += zip(run.in_chunks(PROMPTS), logits, strict=True)
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)


@pytest.mark.parametrize("family", MODELS)
def test_a_file_computes_the_logits_of_transformers(tmp_path: Path, family: str) -> None:
    path = write_tiny(tmp_path / "m.gguf", family)
    assert worst(plain(path), expected(tiny_model(family))) < EXACT


@needs_kernels
@pytest.mark.parametrize("family", MODELS)
def test_the_compiled_executor_computes_the_same(tmp_path: Path, family: str) -> None:
    path = write_tiny(tmp_path / "m.gguf", family)
    assert worst(compiled(path), expected(tiny_model(family))) < EXACT


@pytest.mark.parametrize("family", MODELS)
def test_values_of_blocks_are_those_of_the_file(tmp_path: Path, family: str) -> None:
    values, tensors = values_of_file(family), in_blocks(tensors_of_file(family))
    path = write_gguf(tmp_path / "m.gguf", values, tensors)
    dense = load_gguf(ModelConfig(dtype="float32"), path, torch.device("cpu")).eval()
    assert worst(plain(path), expected(dense)) < EXACT


@needs_kernels
@pytest.mark.parametrize("family", MODELS)
def test_matrices_are_packed_from_their_blocks(tmp_path: Path, family: str) -> None:
    """The kernels round activations, so logits are near those of the values."""
    values, tensors = values_of_file(family), in_blocks(tensors_of_file(family))
    path = write_gguf(tmp_path / "m.gguf", values, tensors)
    found, exact = compiled(path).whole(PROMPTS), plain(path).whole(PROMPTS)
    for a, b in zip(found, exact, strict=True):
        assert float((a - b).norm() / b.norm()) < (0.5 if family in MIXTURES else 0.05)


def stored(raw: Raw, kind: BlockType) -> Raw:
    """A matrix as it is, with values rounded to 16 bits, or with others in blocks."""
    if kind is F32:
        return raw
    if not kind.is_plain:
        rows = int(np.prod(raw.shape[:-1]))
        matrix = random_matrix(kind, rows, raw.shape[-1], seed=zlib.crc32(raw.data))
        return Raw(raw.shape, kind, matrix.data.tobytes())
    values = torch.frombuffer(bytearray(raw.data), dtype=torch.float32)
    rounded = values.to(torch.float16 if kind is F16 else torch.bfloat16)
    return Raw(raw.shape, kind, rounded.view(torch.uint8).numpy().tobytes())


def changed(family: str, kinds: dict[str, BlockType]) -> dict[str, Raw]:
    """A family's tensors, matrices whose name contains a key in another type."""
    return {
        name: next((stored(raw, kinds[part]) for part in kinds if part in name), raw)
        if len(raw.shape) > 1
        else raw
        for name, raw in tensors_of_file(family).items()
    }


GATES = ["ffn_gate.", "ffn_gate_exps."]


def with_equal_types(path: Path, tensors: dict[str, Raw]) -> dict[str, Raw]:
    """The tensors of a file, gates and ups in one type that has the values of both."""
    file, found = GgufFile.open(path), dict(tensors)
    for name in [name for name in tensors if any(part in name for part in GATES)]:
        pair = [name, name.replace("gate", "up")]
        matrices = alike([file.tensors[each].matrix() for each in pair])
        assert matrices is not None
        for each, matrix in zip(pair, matrices, strict=True):
            found[each] = Raw(tensors[each].shape, matrix.type, matrix.data.tobytes())
    return found


@needs_kernels
@pytest.mark.parametrize("kinds", [(Q4_0, Q8_0), (Q8_0, IQ4_NL), (F16, BF16)])
@pytest.mark.parametrize("family", ["llama", "qwen2moe", "mixtral"])
def test_gates_may_have_another_type_than_ups(
    tmp_path: Path, family: str, kinds: tuple[BlockType, BlockType]
) -> None:
    gate, up = kinds
    tensors = changed(family, {"ffn_gate_inp": F32, "ffn_gate": gate, "ffn_up": up})
    path = write_gguf(tmp_path / "m.gguf", values_of_file(family), tensors)
    equal = with_equal_types(path, tensors)
    other = write_gguf(tmp_path / "n.gguf", values_of_file(family), equal)
    logits = zip(compiled(path).whole(PROMPTS), compiled(other).whole(PROMPTS), strict=True)
    assert all(torch.equal(a, b) for a, b in logits)


@needs_kernels
@pytest.mark.parametrize("kinds", [(Q4_1, Q8_0), (Q8_0, F32), (F32, BF16), (Q5_1, Q4_0)])
@pytest.mark.parametrize("family", ["llama", "gemma3", "phi3"])
def test_gates_and_ups_without_a_common_type_are_gated_apart(
    tmp_path: Path, family: str, kinds: tuple[BlockType, BlockType]
) -> None:
    """The kernels round activations, so logits are near those of the values."""
    gate, up = kinds
    tensors = changed(family, {"ffn_gate": gate, "ffn_up": up})
    path = write_gguf(tmp_path / "m.gguf", values_of_file(family), tensors)
    found, exact = compiled(path).whole(PROMPTS), plain(path).whole(PROMPTS)
    for a, b in zip(found, exact, strict=True):
        assert float((a - b).norm() / b.norm()) < 0.05


@needs_kernels
@pytest.mark.parametrize("kind", [F32, BF16, Q8_0])
@pytest.mark.parametrize("family", ["llama", "gemma2", "phi3"])
def test_gating_apart_gives_the_same_bits(
    tmp_path: Path, family: str, kind: BlockType, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensors = changed(family, {"ffn": kind})
    path = write_gguf(tmp_path / "m.gguf", values_of_file(family), tensors)
    together = compiled(path).in_chunks(PROMPTS)
    monkeypatch.setattr(Packer, "interleave", lambda *_: None)
    assert all(map(torch.equal, compiled(path).in_chunks(PROMPTS), together))


@needs_kernels
@pytest.mark.parametrize(
    ("family", "what"),
    [("qwen2moe", "gates and ups of 48 columns"), ("mixtral", "experts of 96 columns")],
)
def test_experts_without_a_common_type_are_refused(tmp_path: Path, family: str, what: str) -> None:
    shared = "shexp" if family == "qwen2moe" else "exps"
    kinds = {f"ffn_gate_{shared}": Q4_1, f"ffn_up_{shared}": Q8_0}
    path = write_gguf(tmp_path / "m.gguf", values_of_file(family), changed(family, kinds))
    with pytest.raises(Undescribed, match=f"{what} in Q4_1 and Q8_0"):
        compiled(path)


@needs_kernels
@pytest.mark.parametrize("kind", [F16, BF16])
@pytest.mark.parametrize("family", ["llama", "mixtral", "gpt2"])
def test_matrices_of_16_bits_keep_their_values(
    tmp_path: Path, family: str, kind: BlockType
) -> None:
    """Where the kernels round activations too, logits are near those of the values."""
    tensors = changed(family, {"ffn_gate_inp": F32, "position": F32, "": kind})
    path = write_gguf(tmp_path / "m.gguf", values_of_file(family), tensors)
    assert KERNELS is not None
    found, exact = compiled(path).whole(PROMPTS), plain(path).whole(PROMPTS)
    rounds = KERNELS.rounds_activations(Format.BFLOAT16)
    for a, b in zip(found, exact, strict=True):
        assert float((a - b).norm() / b.norm()) < (
            (0.5 if family in MIXTURES else 0.05) if rounds else EXACT
        )


@needs_kernels
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_blocks_become_values_of_the_type_that_is_named(tmp_path: Path, dtype: torch.dtype) -> None:
    tensors = in_blocks(tensors_of_file("llama"))
    path = write_gguf(tmp_path / "m.gguf", values_of_file("llama"), tensors)
    name = str(dtype).removeprefix("torch.")
    dense = load_gguf(ModelConfig(dtype=name), path, torch.device("cpu")).float().eval()
    worst_of_all = worst(compiled(path, dtype), expected(dense))
    assert worst_of_all < (EXACT if dtype is torch.float32 else 1e-2)  # which rounds norms too


def test_a_gate_of_one_row_may_be_a_vector(tmp_path: Path) -> None:
    """So llama.cpp writes the gate of a shared expert."""
    tensors = tensors_of_file("qwen2moe")
    for name in [name for name in tensors if "ffn_gate_inp_shexp" in name]:
        tensors[name] = Raw(tensors[name].shape[1:], F32, tensors[name].data)
    path = write_gguf(tmp_path / "m.gguf", values_of_file("qwen2moe"), tensors)
    assert worst(plain(path), expected(tiny_model("qwen2moe"))) < EXACT


def test_matrices_are_views_of_the_file(tmp_path: Path) -> None:
    tensors = changed("mixtral", {"attn_q": BF16, "attn_k": Q8_0})
    file = GgufFile.open(write_gguf(tmp_path / "m.gguf", values_of_file("mixtral"), tensors))
    read = GgufTensors(file)
    assert read.names == tensors.keys()
    for name in read.names:
        found, data = read.get(name), file.tensors[name].data
        array = found.data if isinstance(found, BlockMatrix) else found.view(torch.uint8).numpy()
        assert np.shares_memory(array, data), name
        assert isinstance(found, BlockMatrix) == ("attn_q" in name or "attn_k" in name)


def test_biases_follow_from_tensors(tmp_path: Path) -> None:
    """Of a llama without a bias of the output, which transformers has no module for."""
    tensors = tensors_of_file("llama")
    for i in range(3):
        for leaf, rows in (("attn_q", 64), ("attn_k", 32), ("attn_v", 32)):
            tensors[f"blk.{i}.{leaf}.bias"] = Raw.of(torch.ones(rows))
    path = write_gguf(tmp_path / "m.gguf", values_of_file("llama"), tensors)
    _, spec, _ = describe_file(GgufFile.open(path), MAX_LEN)
    mixer = spec.layers[1].mixer
    assert isinstance(mixer, Attention)
    assert (mixer.has_bias, mixer.has_output_bias) == (True, False)
    assert len(plain(path).whole(PROMPTS)) == 3


REFUSED = {
    "its architecture 'mamba' is not supported; arcee, cohere2,": {"general.architecture": "mamba"},
    "its metadata lacks llama.block_count": {"llama.block_count": None},
    "has llama.logit_scale, which could change what": {"llama.logit_scale": 0.5},
    "it has 301 tokens and 300 rows": {"tokenizer.ggml.tokens": [str(i) for i in range(301)]},
}


@pytest.mark.parametrize("message", REFUSED)
def test_metadata_that_is_not_understood_is_refused(tmp_path: Path, message: str) -> None:
    path = write_tiny(tmp_path / "m.gguf", "llama", **REFUSED[message])
    with pytest.raises(ModelLoadError, match=re.escape(message)):
        describe_file(GgufFile.open(path), MAX_LEN)


def test_tensors_that_do_not_fit_are_named(tmp_path: Path) -> None:
    tensors = tensors_of_file("llama")

    def refused(tensors: dict[str, Raw], **values: Any) -> str:
        path = write_gguf(tmp_path / "m.gguf", values_of_file("llama", **values), tensors)
        with pytest.raises(Undescribed) as raised:
            plain(path)
        return str(raised.value)

    extra = {"blk.7.attn_norm.weight": tensors["output_norm.weight"]}
    assert "has blk.7.attn_norm.weight" in refused(tensors | extra)
    few = {name: raw for name, raw in tensors.items() if name != "blk.1.ffn_up.weight"}
    assert "no blk.1.ffn_up.weight" in refused(few)
    size = {"llama.feed_forward_length": 1 << 30}
    assert "blk.0.ffn_gate.weight has shape [192, 64]" in refused(tensors, **size)


@needs_kernels
def test_rows_between_gates_and_ups_are_not_moved(tmp_path: Path) -> None:
    tensors = tensors_of_file("llama")
    for leaf, rows in (("gate", 40), ("up", 152)):
        tensors[f"blk.1.ffn_{leaf}.weight"] = Raw.of(torch.ones(rows, 64))
    path = write_gguf(tmp_path / "m.gguf", values_of_file("llama"), tensors)
    with pytest.raises(Undescribed, match=r"matrices have \[40, 152\] rows, not \[96, 96\]"):
        compiled(path)
