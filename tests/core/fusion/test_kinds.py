"""Modules of one kind run the same code with other weights."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from core.fusion.kinds import kind_of
from core.fusion.proof import Proof
from tests.support.checkpoints import tiny_model


class Scaled(nn.Module):
    def __init__(self, size: int = 4, factor: float = 2.0, layer_idx: int = 0) -> None:
        super().__init__()
        self.linear = nn.Linear(size, size)
        self.factor = factor
        self.act = torch.tanh
        self.layer_idx = layer_idx

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(self.linear(x)) * self.factor


def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any) -> Any:
        return function(*args)

    return call


class Wrapped(Scaled):
    @wrapped
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * self.layer_idx


class Helped(Scaled):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * self.factor_of_layer

    @property
    def factor_of_layer(self) -> int:
        return self.layer_idx


class Heir(Helped):
    pass


class Placed(Scaled):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * self.layer_idx


def test_weights_and_places_make_no_kind():
    assert kind_of(Scaled(layer_idx=0)) == kind_of(Scaled(layer_idx=3))
    assert hash(kind_of(Scaled())) == hash(kind_of(Scaled()))


@pytest.mark.parametrize("kind", [Placed, Wrapped, Helped, Heir])
def test_a_place_that_the_code_reads_makes_a_kind(kind: type[Scaled]) -> None:
    first, second = kind(layer_idx=0), kind(layer_idx=1)
    assert kind_of(first) != kind_of(second)
    assert kind_of(first, attention=first) == kind_of(second, attention=second)


class Outer(nn.Module):
    """A module with a parameter of its own beside a child."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.scale = nn.Parameter(torch.tensor(scale))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * self.scale


def test_a_scale_beside_children_is_proved_in_every_layer() -> None:
    proof = Proof(torch.device("cpu"), torch.float32, is_by_kind=True)
    first, second = Outer(1.0), Outer(0.5)
    assert kind_of(first) == kind_of(first) != kind_of(second)
    assert proof.is_equal([first], [copy.deepcopy(first.linear)], 4, is_product=True)
    assert not proof.is_equal([second], [copy.deepcopy(second.linear)], 4, is_product=True)


def changed(change: Callable[[Any], object]) -> nn.Module:
    module = Scaled()
    change(module)
    return module


@pytest.mark.parametrize(
    "other",
    [
        Scaled(factor=2.5),
        Scaled(size=5),
        Placed(),
        Scaled().double(),
        Scaled().eval(),
        changed(lambda module: setattr(module, "act", torch.relu)),
        changed(lambda module: setattr(module, "forward", lambda x: x)),
        changed(lambda module: setattr(module, "factor", 2)),
        changed(lambda module: setattr(module, "limits", (0.0, 1.0))),
        changed(lambda module: module.linear.register_parameter("bias", None)),
        changed(lambda module: module.register_buffer("scale", torch.ones(1))),
        changed(lambda module: module.register_forward_hook(lambda *_: None)),
        changed(lambda module: module.linear.register_forward_pre_hook(lambda *_: None)),
        nn.Sequential(Scaled()),
    ],
    ids=str,
)
def test_anything_else_makes_a_kind(other: nn.Module) -> None:
    assert kind_of(other) == kind_of(other)
    assert kind_of(other) != kind_of(Scaled())


@pytest.mark.parametrize(("family", "count"), [("llama", 1), ("gemma3", 2)])
def test_layers_are_of_as_many_kinds_as_the_model_has(family: str, count: int) -> None:
    layers = tiny_model(family).model.layers
    kinds = {kind_of(layer, attention=layer.self_attn) for layer in layers}
    assert (len(layers), len(kinds)) == (4, count)


def counted(proof: Proof) -> list[nn.Module]:
    """A list that grows with each original that is computed."""
    seen: list[nn.Module] = []
    references = proof.references

    def counting(modules: Any) -> Any:
        seen.extend(modules)
        return references(modules)

    proof.references = counting  # type: ignore[method-assign]
    return seen


@pytest.mark.parametrize("is_by_kind", [False, True])
def test_one_of_a_kind_is_proved_unless_its_weights_matter(is_by_kind: bool) -> None:
    proof = Proof(torch.device("cpu"), torch.float32, is_by_kind=is_by_kind)
    seen = counted(proof)
    modules = [Scaled(), Scaled(), Scaled(factor=3.0)]
    for module in modules:
        assert proof.is_equal([module], [copy.deepcopy(module)], 4, is_product=True)
    assert seen == [modules[0], modules[2]] if is_by_kind else modules


def test_a_kind_that_failed_is_tried_again() -> None:
    proof = Proof(torch.device("cpu"), torch.float32, is_by_kind=True)
    module = Scaled()
    assert not proof.is_equal([module], [Scaled()], 4, is_product=True)
    assert proof.is_equal([module], [copy.deepcopy(module)], 4, is_product=True)
    assert proof.is_equal([module], [Scaled()], 4, is_product=True)  # the engine's proof sees it


def test_what_does_not_multiply_is_always_proved() -> None:
    """A norm's code does not say what it adds to its weight: the values do."""
    proof = Proof(torch.device("cpu"), torch.float32, is_by_kind=True)
    module = Scaled()
    assert proof.is_equal([module], [copy.deepcopy(module)], 4, is_product=False)
    assert not proof.is_equal([module], [Scaled()], 4, is_product=False)
