"""The visitor proves candidates in order, installs equal ones, and counts them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from core.fusion.proof import Proof
from core.fusion.visitor import AttentionSite, Place, Replacement, Visitor, place_of
from core.kv.layer_spec import LayerSpec

SPEC = LayerSpec(1, 1, 4, 4, 0.5, None)


class Scale(nn.Module):
    def __init__(self, factor: float, *, with_child: bool = False) -> None:
        super().__init__()
        self.factor = factor
        if with_child:
            self.child = Scale(1.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = Scale(2.0)
        self.mlp = Scale(3.0)


def visitor_of(model: nn.Module, attention: tuple[nn.Module, ...] = ()) -> Visitor:
    proof = Proof(torch.device("cpu"), torch.float32)
    return Visitor(model, [(module, SPEC) for module in attention], proof)


def replace(place: Place, module: nn.Module, kind: str = "scale") -> Replacement:
    return Replacement({kind: 1}, [place], [module], 4, is_product=False)


def test_the_first_equal_candidate_replaces_a_module():
    model = nn.Sequential(Scale(2.0), Scale(5.0))
    candidates = [Scale(1.0), Scale(2.0), Scale(2.0)]
    offered = []

    def pattern(place: Place) -> Iterator[Replacement]:
        for candidate in candidates:
            offered.append((place.name, candidate))
            yield replace(place, candidate)

    visitor = visitor_of(model)
    visitor.visit_modules(pattern)
    assert model[0] is candidates[1]
    assert model[1].factor == 5.0
    assert offered == [("0", c) for c in candidates[:2]] + [("1", c) for c in candidates]
    assert visitor.counts == {"scale": 1}


def test_children_of_a_replacement_are_visited():
    model = nn.Sequential(Scale(2.0))

    def outer(place: Place) -> Iterator[Replacement]:
        yield replace(place, Scale(2.0, with_child=True), "outer")

    def inner(place: Place) -> Iterator[Replacement]:
        if place.name == "child":
            yield replace(place, Scale(1.0), "inner")

    visitor = visitor_of(model)
    visitor.visit_modules(inner, outer)
    assert visitor.counts == {"inner": 1, "outer": 1}


def test_a_pattern_sees_what_was_installed():
    model = nn.Sequential(Layer(), Scale(2.0))
    seen = []

    def pattern(_: AttentionSite) -> Iterator[Replacement]:
        place = Place(model, "1")
        for factor in (7.0, 2.0):
            new = Scale(factor)
            yield replace(place, new)
            seen.append(place.module is new)

    visitor_of(model, (model[0].attention,)).visit_attention(pattern)
    assert seen == [False, True]


def test_attention_modules_are_visited_with_their_layers():
    model = nn.Sequential(Layer(), Layer())
    sites = []

    def first(site: AttentionSite) -> Iterator[Replacement]:
        sites.append(site)
        place = place_of(model, site.layer)
        layer = Layer()
        layer.attention = site.attention
        place.put(layer)
        return iter(())

    def second(site: AttentionSite) -> Iterator[Replacement]:
        sites.append(site)
        return iter(())

    attention = tuple(layer.attention for layer in model)
    layers = list(model)
    visitor_of(model, attention).visit_attention(first, second)
    assert [site.attention for site in sites] == [a for a in attention for _ in range(2)]
    assert [site.layer for site in sites[::2]] == layers
    assert [site.layer for site in sites[1::2]] == list(model)


def test_a_replacement_of_several_modules_needs_all_of_them_equal():
    model = nn.Sequential(Layer(), Scale(2.0), Scale(3.0))
    places = [Place(model, "1"), Place(model, "2")]
    for factors, expected in (((2.0, 4.0), {}), ((2.0, 3.0), {"pair": 2})):
        modules = [Scale(factor) for factor in factors]
        visitor = visitor_of(model, (model[0].attention,))
        visitor.visit_attention(
            lambda _, modules=modules: [
                Replacement({"pair": 2}, places, modules, 4, is_product=True)
            ]
        )
        assert visitor.counts == expected
        assert (model[1] is modules[0]) is (model[2] is modules[1]) is bool(expected)


def test_a_module_of_another_model_has_no_place():
    with pytest.raises(AssertionError, match="Scale is not part of Sequential"):
        place_of(nn.Sequential(), Scale(1.0))


class WeightReader(nn.Module):
    """Reads the weight of its child, as some routers do."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.gate(x.to(self.gate.weight.dtype))


def test_a_child_whose_weight_is_read_is_not_replaced() -> None:
    model = nn.Sequential(WeightReader())
    offered: list[str] = []

    def pattern(place: Place) -> Iterator[Replacement]:
        offered.append(place.name)
        yield Replacement({"odd": 1}, [place], [place.module], 4, is_product=True)

    visitor = Visitor(model, [], Proof(torch.device("cpu"), torch.float32))
    visitor.visit_modules(pattern)
    assert offered == ["0"]
