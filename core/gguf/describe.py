"""describe_file: the configuration, the spec and the names of the model in a file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any

from core.contract.errors import ModelLoadError
from core.gguf.architectures import ARCHITECTURES, MIXTRAL, Architecture
from core.gguf.facts import HARMLESS, Facts
from core.gguf.file import GgufFile
from core.models.families import describe
from core.models.names import Names
from core.models.spec import Attention, DecoderSpec, FeedForward, Layer, Norm, Rope

_NO_TOKENS = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
"""In place of a family's defaults: the tokenizer and the generation config know them."""

_BIASES = ("attention_bias", "attention_out_bias", "mlp_bias", "use_bias")
"""Keys in whose place the tensors say which biases there are."""


def describe_file(file: GgufFile, max_model_len: int) -> tuple[dict[str, Any], DecoderSpec, Names]:
    """The values of a ``config.json``, the spec of the tensors as they are stored, and their names.

    ``max_model_len`` is the longest sequence, in tokens. Raises ModelLoadError for an architecture,
    a key or a size that cannot be served, and Undescribed for values that no row knows.
    """
    architecture, values = values_of(file)
    spec, _ = describe(values | dict.fromkeys(_BIASES, False), max_model_len)
    check_vocabulary(file, spec.vocab_size)
    names = architecture.names
    return values, _stored(_biased(spec, file, names), architecture), names


def check_vocabulary(file: GgufFile, num_rows: int) -> None:
    """Refuse tokens that the embedding, of ``num_rows`` rows, has no row for."""
    num_tokens = file.metadata.count("tokenizer.ggml.tokens")
    if num_tokens > num_rows:
        raise ModelLoadError(f"it has {num_tokens} tokens and {num_rows} rows of embeddings")


def values_of(file: GgufFile) -> tuple[Architecture, dict[str, Any]]:
    """A file's architecture, and its configuration as ``config.json`` says it.

    Raises ModelLoadError.
    """
    name = file.metadata.text("general.architecture")
    architecture = ARCHITECTURES.get(name)
    if architecture is None:
        known = ", ".join(sorted(ARCHITECTURES))
        raise ModelLoadError(f"its architecture {name!r} is not supported; {known} are")
    facts = Facts(file, name)
    if name == "llama" and facts.integer("expert_count", 0):
        architecture = MIXTRAL
    values = {"model_type": architecture.model_type} | architecture.values(facts) | _NO_TOKENS
    facts.check_all_used()
    file.metadata.check_all_read(facts.prefix, HARMLESS)
    return architecture, values


def _biased(spec: DecoderSpec, file: GgufFile, names: Names) -> DecoderSpec:
    """The spec with the biases that the file has beside those of the row."""

    def has(role: str, layer: int) -> bool:
        return any(name in file.tensors for name in names.of(role, layer))

    layers: list[Layer] = []
    for i, layer in enumerate(spec.layers):
        mixer, feed_forward = layer.mixer, layer.feed_forward
        if isinstance(mixer, Attention):
            has_bias = mixer.has_bias or has("qkv_bias", i)
            has_output_bias = mixer.has_output_bias or has("output_bias", i)
            mixer = replace(mixer, has_bias=has_bias, has_output_bias=has_output_bias)
        if isinstance(feed_forward, FeedForward) and has("up_bias", i):
            feed_forward = replace(feed_forward, has_bias=True)
        layers.append(replace(layer, mixer=mixer, feed_forward=feed_forward))
    return replace(spec, layers=tuple(layers))


def _stored(spec: DecoderSpec, architecture: Architecture) -> DecoderSpec:
    """The spec of what the file has: of permuted heads and of shifted norms."""

    def change(part: Any) -> Any:
        if isinstance(part, Rope) and architecture.permutes_heads:
            return replace(part, pairs="neighbours")
        if isinstance(part, Norm) and architecture.shifts_norms:
            return replace(part, offset=0.0)
        return part

    changed: DecoderSpec = _changed(spec, change)
    return changed


def _changed(part: Any, change: Callable[[Any], Any]) -> Any:
    """A part of a spec with a change of every part in it."""
    if isinstance(part, tuple):
        return tuple(_changed(inner, change) for inner in part)
    if not is_dataclass(part):
        return part
    inner = {field.name: _changed(getattr(part, field.name), change) for field in fields(part)}
    return change(replace(part, **inner))  # type: ignore[type-var]
