"""A whole language model in one call of the kernel: which models, and what it computes."""

from __future__ import annotations

import copy
import ctypes
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from core.attention.cpu_backend import PagedCPUBackend
from core.executors.angles import AngleTable
from core.fusion.cpu.catalogue import fuse_for_cpu
from core.fusion.cpu.decoder import FusedDecoder
from core.kernels.cpu.library import kernels
from core.kernels.cpu.linear import Format
from core.kernels.cpu.model import ANGLES
from core.model.forward import EagerForward, ForwardPass, Logits
from core.model.hook import AttentionHook
from core.model_input import ModelInput
from tests.support.checkpoints import CONTEXT, VOCAB_SIZE, tiny_model
from tests.support.each import each
from tests.support.mixtures import MIXTURES, mixture
from tests.support.tiny_engine import build_engine, request, run

KERNELS = kernels()
pytestmark = pytest.mark.skipif(KERNELS is None, reason="no C++ compiler")


def fused(model: Any, hook: AttentionHook) -> dict[str, int]:
    attention = list(zip(hook.modules, hook.layers, strict=True))
    return fuse_for_cpu(KERNELS, model, attention, Format.FLOAT32)


class Spy:
    """A forward pass that keeps what it computes, and what the modules do if they are asked."""

    def __init__(self, eager: EagerForward, *, asks_modules: bool) -> None:
        self.eager = eager
        self.asks_modules = asks_modules
        self.steps: list[tuple[ModelInput, Logits]] = []
        self.of_modules: list[torch.Tensor] = []

    def __call__(self, batch: ModelInput) -> Logits:
        logits = self.eager(replace(batch, wants_best=False, layout=None))
        kept = Logits(logits.values.clone(), logits.best)
        self.steps.append((batch, kept))
        if self.asks_modules and len(batch.logits_indices):
            modules = batch.token_ids, batch.positions, batch.logits_indices
            self.of_modules.append(self.eager.compute(*modules).clone())
            logits.values.copy_(kept.values)  # both are in the buffer of the output layer
        return logits


def served(family: str, **params: Any) -> list[tuple[ModelInput, Logits]]:
    """The steps of prompts of different lengths, one of them in chunks."""
    return spied(family, **params).steps


def spied(family: str, *, asks_modules: bool = False, **params: Any) -> Spy:
    """What has seen these steps."""
    spies: list[Spy] = []

    def wrap(eager: EagerForward) -> ForwardPass:
        spies.append(Spy(eager, asks_modules=asks_modules))
        return spies[0]

    engine = build_engine(
        family,
        model=mixture(family) if family in MIXTURES else copy.deepcopy(tiny_model(family)),
        prepare=fused,
        backend=PagedCPUBackend,
        wrap=wrap,
    )
    run(engine, [request(str(n), [*range(3, 3 + n)], 8, **params) for n in (190, 5)])
    return spies[0]


@each("family", ["gpt2", "qwen3", "qwen2_moe"])
def test_the_last_layer_computes_the_tokens_that_get_logits(family: str) -> None:
    """None of a chunk that does not end its prompt, some of several, or all; see the modules."""
    spy = spied(family, asks_modules=True)
    sizes = [batch.sizes for batch, _ in spy.steps]
    assert {0 if not n else 1 + (n == num_tokens) for num_tokens, n in sizes} == {0, 1, 2}
    assert any(1 < num_logits < num_tokens for num_tokens, num_logits in sizes)
    kept = [logits.values for _, logits in spy.steps if len(logits.values)]
    assert len(kept) == len(spy.of_modules)
    assert all(map(torch.equal, kept, spy.of_modules))


def test_the_modules_of_the_model_are_not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [logits.values for _, logits in served("qwen3")]
    monkeypatch.setattr(EagerForward, "compute", lambda *_: pytest.fail("called"))
    actual = [logits.values for _, logits in served("qwen3")]
    assert all(map(torch.equal, actual, expected))


def test_a_model_that_scales_its_logits_keeps_its_forward_pass() -> None:
    model: Any = copy.deepcopy(tiny_model("qwen3"))
    original = model.forward

    def scaled(*args: Any, **kwargs: Any) -> Any:
        output = original(*args, **kwargs)
        output.logits = output.logits * 0.9
        return output

    model.forward = scaled
    counts = fused(model, AttentionHook(model))
    assert counts["decoder"] == 1
    assert counts["model"] == 0


def narrow_tokens(model: Any) -> None:
    model.set_input_embeddings(nn.Embedding(VOCAB_SIZE - 1, 48).requires_grad_(False))


def narrow_positions(model: Any) -> None:
    model.transformer.wpe = nn.Embedding(CONTEXT - 1, 48).requires_grad_(False)


def unknown_context(model: Any) -> None:
    model.config.n_positions = 0  # which is no length


@each("change", [narrow_tokens, narrow_positions, unknown_context])
def test_a_model_that_may_lack_a_row_keeps_its_forward_pass(change: Callable[[Any], None]) -> None:
    """The kernel would read beyond the embedding."""
    model: Any = copy.deepcopy(tiny_model("gpt2"))
    change(model)
    counts = fused(model, AttentionHook(model))
    assert counts["decoder"] == 1
    assert counts["model"] == 0


def test_another_attention_gets_angles_of_its_own() -> None:
    """Frequencies may have been fixed for another context since."""
    model: Any = copy.deepcopy(tiny_model("qwen3"))
    hooks: list[AttentionHook] = []

    def prepare(model: Any, hook: AttentionHook) -> None:
        fused(model, hook)
        hooks.append(hook)

    engine = build_engine("qwen3", model=model, prepare=prepare, backend=PagedCPUBackend)
    decoder: FusedDecoder = model.model.forward
    found = []
    for _ in range(2):
        run(engine, [request("a", [5, 6, 7], 3)])
        assert decoder.links is not None
        found.append(decoder.links.angles)
    assert found[0] is found[1] is not None
    hooks[0].attach(engine._pipeline._runner._forward.backend)  # type: ignore[attr-defined]
    assert decoder.links is not None
    assert decoder.links.angles is not found[0]


@each("sizes", [[1, 2, 300], [700], [255, 256, 257, 512, 513]])
def test_angles_are_those_of_their_positions(sizes: list[int]) -> None:
    def angles_of(positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        angles = positions[..., None] * torch.tensor([1.0, 0.1, 0.01])
        return angles.cos(), angles.sin()

    table = AngleTable(angles_of)
    for size in sizes:
        table.cover(size)
        assert size <= table.num_positions < size + ANGLES or table.num_positions == max(sizes)
        expected = angles_of(torch.arange(size)[None])
        for address, wanted in zip(table.addresses, expected, strict=True):
            runs = (ctypes.c_void_p * (table.num_positions // ANGLES)).from_address(address)
            rows = [(ctypes.c_float * (ANGLES * 3)).from_address(run) for run in runs]
            known = torch.cat([torch.tensor(list(row)).view(-1, 3) for row in rows])
            assert torch.equal(known[:size], wanted[0])
