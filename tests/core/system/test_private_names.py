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


def test_hooks_are_the_modules_own():
    inner = nn.Linear(2, 3, bias=False)
    assert not private_names.has_hooks(inner)
    inner.register_forward_hook(lambda *_: None)
    assert private_names.has_hooks(inner)


@pytest.mark.parametrize(("model", "is_stateful"), [({}, False), ({"_is_stateful": True}, True)])
def test_a_model_without_the_mark_is_not_stateful(model, is_stateful):
    assert private_names.is_stateful(SimpleNamespace(**model)) is is_stateful
