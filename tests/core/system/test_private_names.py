"""What the private names give, and what happens in a release without them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from core.system import private_names


def test_a_cpu_without_the_names_multiplies_no_bfloat16(monkeypatch):
    assert private_names.cpu_multiplies_bfloat16() in (True, False)
    monkeypatch.setattr(torch, "cpu", SimpleNamespace())
    assert not private_names.cpu_multiplies_bfloat16()


def test_a_torch_without_the_metaclass_or_the_pool_is_left_as_it_is(monkeypatch):
    private_names.set_generator_metaclass(SimpleNamespace(_C=SimpleNamespace()))
    monkeypatch.setattr(torch, "_C", SimpleNamespace())
    private_names.end_allocation_to_pool(0, (0, 0))


def test_hooks_and_own_tensors_are_the_modules_own():
    inner = nn.Linear(2, 3, bias=False)
    module = nn.Sequential(inner)
    assert private_names.own_tensors(module) == {}
    assert private_names.own_tensors(inner) == {"weight": inner.weight, "bias": None}
    assert not private_names.has_hooks(inner)
    inner.register_forward_hook(lambda *_: None)
    assert private_names.has_hooks(inner)


def test_replaced_parameters_stay_those_of_a_copy():
    module = nn.Linear(2, 3)
    kept = module.weight
    parameters = private_names.own_tensors(module)
    private_names.replace_parameters(module, {})
    assert list(module.parameters()) == []
    assert parameters["weight"] is kept


@pytest.mark.parametrize(("model", "is_stateful"), [({}, False), ({"_is_stateful": True}, True)])
def test_a_model_without_the_mark_is_not_stateful(model, is_stateful):
    assert private_names.is_stateful(SimpleNamespace(**model)) is is_stateful


def test_experts_without_the_method_have_no_activation():
    assert private_names.stacked_activation(nn.Linear(1, 1)) is None
