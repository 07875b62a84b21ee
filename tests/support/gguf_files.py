"""Write GGUF files: headers from plain values, and whole tiny models of transformers."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from core.gguf.blocks import F32, BlockMatrix, BlockType
from core.gguf.module_names import MIXTRAL, MODULES, ModuleNames

Values = Mapping[str, Any]
"""Integers are u32, floats f32; lists have the type of their first element."""

TOKENS = ["<unk>", "<s>", "</s>"]


class Raw:
    """A tensor to write: its shape, last dimension contiguous, and its bytes."""

    def __init__(self, shape: tuple[int, ...], kind: BlockType, data: bytes) -> None:
        self.shape, self.kind, self.data = shape, kind, data

    @classmethod
    def of(cls, value: torch.Tensor | BlockMatrix) -> Raw:
        if isinstance(value, BlockMatrix):
            return cls(value.shape, value.type, value.data.tobytes())
        return cls(tuple(value.shape), F32, value.float().contiguous().numpy().tobytes())


def string(text: str | bytes) -> bytes:
    data = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(data)) + data


def scalar(value: Any) -> tuple[int, bytes]:
    """The code of a value's type, and its bytes."""
    match value:
        case bool():
            return 7, struct.pack("<?", value)
        case int():
            return (4, struct.pack("<I", value)) if value >= 0 else (5, struct.pack("<i", value))
        case float():
            return 6, struct.pack("<f", value)
        case str() | bytes():
            return 8, string(value)
    raise AssertionError(value)


def field(key: str, value: Any) -> bytes:
    """A key with its value."""
    if isinstance(value, np.ndarray):
        codes = {"uint8": 0, "int8": 1, "int32": 5, "float32": 6}
        head = struct.pack("<IIQ", 9, codes[value.dtype.name], len(value))
        return string(key) + head + value.tobytes()
    if isinstance(value, list):
        parts = [scalar(item) for item in value]
        code = parts[0][0] if parts else 8
        data = b"".join(part for _, part in parts)
        return string(key) + struct.pack("<IIQ", 9, code, len(parts)) + data
    code, data = scalar(value)
    return string(key) + struct.pack("<I", code) + data


def gguf_bytes(values: Values, tensors: Mapping[str, Raw], alignment: int = 32) -> bytes:
    """A whole file."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(values))
    head += b"".join(field(key, value) for key, value in values.items())
    data = b""
    for name, raw in tensors.items():
        dims = raw.shape[::-1]
        head += string(name) + struct.pack(f"<I{len(dims)}Q", len(dims), *dims)
        head += struct.pack("<IQ", raw.kind.code, len(data))
        data += raw.data + bytes(-len(raw.data) % alignment)
    return head + bytes(-len(head) % alignment) + data


def write_gguf(path: Path, values: Values, tensors: Mapping[str, Raw]) -> Path:
    path.write_bytes(gguf_bytes(values, tensors))
    return path


def byte_vocabulary(size: int) -> dict[str, Any]:
    """Metadata of a byte-level tokenizer with ``size`` tokens: bytes, and names without meaning."""
    from tokenizers.pre_tokenizers import ByteLevel  # noqa: PLC0415

    tokens = [*TOKENS, *sorted(ByteLevel.alphabet())]
    tokens = [*tokens, *(f"<{i}>" for i in range(len(tokens), size))][:size]
    types = [3 if token in TOKENS else 1 for token in tokens]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": np.array(types, np.int32),
        "tokenizer.ggml.merges": [],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    }


def tensors_of(model: torch.nn.Module, name: str) -> dict[str, Raw]:
    """The tensors of a model of transformers, as llama.cpp's converter arranges them."""
    family = MIXTRAL if name == "mixtral" else MODULES[name]
    tensors = {}
    for parameter_name, parameter in model.named_parameters():
        for found, value in _tensors(parameter_name, parameter.detach(), family, model.config):
            tensors[found] = Raw.of(value)
    return tensors


def _tensors(name: str, value: torch.Tensor, family: ModuleNames, config: Any) -> Any:
    module, _, suffix = name.rpartition(".")
    if not name.endswith((".weight", ".bias")):
        module, suffix = name, "weight"
    if not module.startswith(f"{family.layers}."):
        [leaf] = [leaf for leaf, found in family.top.items() if found == module]
        yield f"{leaf}.{suffix}", value + family.norm_offset * module.endswith("norm")
        return
    number, _, inner = module.removeprefix(f"{family.layers}.").partition(".")
    leaves = [leaf for leaf, found in family.layer.items() if found == inner]
    value = value + family.norm_offset * inner.endswith("norm")
    if family.architecture.permutes_heads and leaves[0] in ("attn_q", "attn_k"):
        heads = config.num_attention_heads
        heads = heads if leaves[0] == "attn_q" else config.num_key_value_heads
        value = value.view(heads, 2, -1, *value.shape[1:]).swapaxes(1, 2).reshape(value.shape)
    if family.is_transposed and value.dim() == 2:
        value = value.t()
    parts = [value] if len(leaves) == 1 else value.chunk(2, dim=1)
    for leaf, part in zip(leaves, parts, strict=True):
        yield f"blk.{number}.{leaf}.{suffix}", part
