"""Facts: what every decoder's configuration takes from the metadata of its file."""

from __future__ import annotations

import math
from typing import Any

from core.contract.errors import ModelLoadError
from core.gguf.file import GgufFile, Tensor

HARMLESS = frozenset({"vocab_size", "rope.scaling.finetuned"})
"""Keys that need no reading: the size of the vocabulary is the number of rows of the embedding,
and how a model was trained changes no result."""

ROPE_FACTORS = frozenset(
    {"rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"}
)
"""Tensors that become fields of the configuration."""

YARN_KEYS = {
    "attention_factor": "rope.scaling.yarn_attn_factor",
    "beta_fast": "rope.scaling.yarn_beta_fast",
    "beta_slow": "rope.scaling.yarn_beta_slow",
}
"""Optional keys of YaRN, by their fields in transformers' ``rope_parameters``."""

_MAX_LAYERS = 1024


class Facts:
    """Reads the keys of a file's architecture, without their prefix.

    Every method raises ModelLoadError that names a missing or wrong key or tensor.
    """

    def __init__(self, file: GgufFile, architecture: str) -> None:
        self._file = file
        self._used: set[str] = set()
        self.prefix = f"{architecture}."

    def integer(self, key: str, *default: int, **limits: int) -> int:
        """See ``Metadata.integer``."""
        return self._file.metadata.integer(self.prefix + key, *default, **limits)

    def number(self, key: str, *default: float) -> float:
        """See ``Metadata.number``."""
        return self._file.metadata.number(self.prefix + key, *default)

    def text(self, key: str, *default: str) -> str:
        """See ``Metadata.text``."""
        return self._file.metadata.text(self.prefix + key, *default)

    def flag(self, key: str, default: bool) -> bool:
        """See ``Metadata.flag``."""
        return self._file.metadata.flag(self.prefix + key, default)

    def has_windows(self, every: int) -> list[bool]:
        """Return a flag per layer, true if it has a window: by default not each ``every``-th."""
        key = self.prefix + "attention.sliding_window_pattern"
        return self._file.metadata.pattern(key, every, self.num_layers)

    def has(self, key: str) -> bool:
        """Return true if the metadata has a key."""
        return self.prefix + key in self._file.metadata

    def has_tensor(self, name: str) -> bool:
        """Return true if the file has a tensor."""
        return name in self._file.tensors

    def tensor(self, name: str) -> Tensor:
        """A tensor that the file must have."""
        if name not in self._file.tensors:
            raise ModelLoadError(f"it lacks the tensor {name}")
        return self._file.tensors[name]

    def check_all_used(self) -> None:
        """Refuse a model that is not causal, and RoPE factors that ``factors`` has not read.

        Call it when the configuration is complete.
        """
        key = self.prefix + "attention.causal"
        if not self._file.metadata.flag(key, default=True):
            raise ModelLoadError(f"{key} is false: only causal attention is supported")
        unused = sorted(ROPE_FACTORS.intersection(self._file.tensors) - self._used)
        if unused:
            raise ModelLoadError(f"its tensor {unused[0]} has no place in this model")

    @property
    def num_layers(self) -> int:
        """Number of layers, at most that of tensors: each layer has some of its own."""
        return self.integer("block_count", least=1, most=min(_MAX_LAYERS, len(self._file.tensors)))

    @property
    def hidden_size(self) -> int:
        """Width of the residual stream."""
        return self.integer("embedding_length", least=1)

    @property
    def num_heads(self) -> int:
        """Query heads."""
        return self.integer("attention.head_count", least=1, most=self.hidden_size)

    @property
    def num_kv_heads(self) -> int:
        """Key and value heads."""
        return self.integer("attention.head_count_kv", self.num_heads, least=1, most=self.num_heads)

    @property
    def head_dim(self) -> int:
        """Width of a head, equal for keys and values."""
        keys = self.integer("attention.key_length", self.hidden_size // self.num_heads, least=1)
        values = self.integer("attention.value_length", keys)
        if keys != values:
            raise ModelLoadError(f"keys of {keys} and values of {values} are not supported")
        widest = max((max(t.shape, default=1) for t in self._file.tensors.values()), default=0)
        if keys > widest:  # RoPE allocates as much before shapes are compared
            raise ModelLoadError(f"heads of {keys} are wider than its tensors")
        return keys

    @property
    def rope_base(self) -> float:
        """The base of RoPE's frequencies."""
        return self.number("rope.freq_base", 10000.0)

    def decoder(self) -> dict[str, Any]:
        """The fields that most configurations have."""
        return self.sizes() | {"rms_norm_eps": self.number("attention.layer_norm_rms_epsilon")}

    def sizes(self) -> dict[str, Any]:
        """The sizes of a decoder, and whether its head is the embedding."""
        embedding = self.tensor("token_embd.weight")
        return {
            "vocab_size": embedding.shape[0],
            "hidden_size": self.hidden_size,
            "intermediate_size": self.integer("feed_forward_length", least=1),
            "num_hidden_layers": self.num_layers,
            "num_attention_heads": self.num_heads,
            "num_key_value_heads": self.num_kv_heads,
            "max_position_embeddings": self.integer("context_length", least=1),
            "tie_word_embeddings": not self.has_tensor("output.weight"),
        }

    def part_rope(self) -> dict[str, Any]:
        """``rope`` of the dimensions of a head that the file names."""
        rotated = self.integer("rope.dimension_count", self.head_dim, least=2, most=self.head_dim)
        return self.rope(rotated) | {"partial_rotary_factor": rotated / self.head_dim}

    def whole_rope(self) -> dict[str, Any]:
        """``rope`` of all dimensions of a head."""
        rotated = self.integer("rope.dimension_count", self.head_dim)
        if rotated != self.head_dim:
            raise ModelLoadError(
                f"RoPE of {rotated} of {self.head_dim} dimensions is not supported"
            )
        return self.rope(rotated)

    def rope(self, rotated: int) -> dict[str, Any]:
        """The ``rope_parameters`` of transformers, for ``rotated`` dimensions of a head.

        The tensor ``rope_freqs`` divides each frequency by a factor: so llama.cpp's converter
        writes Llama 3's scaling. It becomes a longrope with equal short and long factors.
        """
        base = self.rope_base
        kind = self.text("rope.scaling.type", "none")
        if self.has("rope.scale_linear"):  # older files
            kind = "linear"
        if self.has_tensor("rope_freqs.weight"):
            if kind != "none":
                raise ModelLoadError(f"rope_freqs beside RoPE scaling {kind!r} is not supported")
            factors = self.factors("rope_freqs.weight", rotated)
            length = self.integer("context_length", least=1)
            return longrope(base, factors, factors, length, 1.0)
        match kind:
            case "none":
                self._check_no_factor()
                return {"rope_type": "default", "rope_theta": base}
            case "linear":
                factor = self.number("rope.scaling.factor", self.number("rope.scale_linear", 1.0))
                return {"rope_type": "linear", "rope_theta": base, "factor": factor}
            case "yarn":
                return self._yarn(base)
        raise ModelLoadError(f"RoPE scaling {kind!r} is not supported")

    def factors(self, name: str, rotated: int) -> list[float]:
        """The values of a vector of F32, one for each pair of the ``rotated`` dimensions."""
        tensor = self.tensor(name)
        if tensor.info.type.name != "F32" or tensor.shape != (rotated // 2,):
            raise ModelLoadError(f"the tensor {name} is not a vector of {rotated // 2} F32")
        self._used.add(name)
        values: list[float] = tensor.data.view("<f4").tolist()
        return values

    def _check_no_factor(self) -> None:
        if self.number("rope.scaling.factor", 1.0) not in (0.0, 1.0):
            raise ModelLoadError("it has a factor of RoPE scaling without its type")

    def _yarn(self, base: float) -> dict[str, Any]:
        rope = {
            "rope_type": "yarn",
            "rope_theta": base,
            "factor": self.number("rope.scaling.factor"),
            "original_max_position_embeddings": self.integer(
                "rope.scaling.original_context_length", least=1
            ),
        }
        return rope | {name: self.number(key) for name, key in YARN_KEYS.items() if self.has(key)}


def longrope(
    base: float, short: list[float], long: list[float], length: int, attention_factor: float
) -> dict[str, Any]:
    """RoPE whose frequencies are divided by factors; ``long`` beyond ``length`` tokens."""
    return {
        "rope_type": "longrope",
        "rope_theta": base,
        "short_factor": short,
        "long_factor": long,
        "factor": 1.0,
        "attention_factor": attention_factor,
        "original_max_position_embeddings": length,
    }


def longrope_scale(context: int, original: int) -> float:
    """The default ``attention_factor`` of a longrope, which scales cosines and sines (Phi-3's).

    ``context`` and ``original`` are numbers of tokens: the model's, and those it was trained with.
    """
    scale = context / original
    return math.sqrt(1 + math.log(scale) / math.log(original)) if scale > 1 else 1.0
