"""Specs that differ from one in a single field."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

from core.models.spec import (
    Activation,
    DecoderSpec,
    FeedForward,
    HeadNorm,
    LayerInput,
    Norm,
    Rope,
    Temperature,
)

NORM = Norm("rms", 0.1)
REQUIRED = {"mixer", "feed_forward", "final_norm", "norm", "expert", "router", "activation"}
TEXTS = {
    "silu": "gelu",
    "gelu": "silu",
    "gelu_new": "silu",
    "gelu_pytorch_tanh": "silu",
    "relu2": "relu",
    "xielu": "relu",
    "head": "each",
    "each": "head",
    "all": "head",
    "rms": "layer",
    "layer": "rms",
    "halves": "neighbours",
    "neighbours": "halves",
    "softmax": "sigmoid",
    "sigmoid": "softmax",
}


def changed(spec: DecoderSpec) -> Iterator[tuple[str, DecoderSpec]]:
    """A change of each field, in the first two layers and outside of them, by name."""
    yield from _changes(spec)
    if spec.layer_input is None:
        yield "layer_input", replace(spec, layer_input=LayerInput(97, 8, NORM))
    for i in range(2):
        for path, layer in _changes(spec.layers[i]):
            yield f"layer {i}: {path}", replace(spec, layers=_put(spec.layers, i, layer))


def _changes(part: Any) -> Iterator[tuple[str, Any]]:
    for field in fields(part):
        value = getattr(part, field.name)
        for path, new in _values(field.name, value):
            yield ".".join((field.name, *path)), replace(part, **{field.name: new})


def _values(name: str, value: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Other values of a field; with a path if the change is inside of it."""
    if is_dataclass(value):
        for path, new in _changes(value):
            yield (path,), new
        if name not in REQUIRED:
            yield (), None
    elif isinstance(value, bool):
        yield (), not value
    elif isinstance(value, int):
        yield (), value + 1
    elif isinstance(value, float):
        yield (), value * 1.5 or 0.5
    elif isinstance(value, str):
        yield (), TEXTS[value]
    elif isinstance(value, tuple):
        if name != "layers":
            yield (), (value[0], value[1] * 2, *value[2:])
    elif value is None:
        yield (), _instead_of_none(name)


def _instead_of_none(name: str) -> Any:
    feed_forward = FeedForward(8, Activation("silu"), is_gated=False)
    others: dict[str, Any] = {
        "rope": Rope((1.0, 0.1)),
        "head_norm": HeadNorm(NORM),
        "temperature": Temperature(0.5, 8, 0),
        "layer_input": feed_forward,
        "shared": feed_forward,
        "keys_of": 0,
        "window": 5,
        "num_positions": 256,
    }
    is_norm = name not in others and ("norm" in name or name.startswith(("pre_", "post_")))
    return NORM if is_norm else others.get(name, 2.0)


def _put(items: tuple[Any, ...], i: int, item: Any) -> tuple[Any, ...]:
    return (*items[:i], item, *items[i + 1 :])
