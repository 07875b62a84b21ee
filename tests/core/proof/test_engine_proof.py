"""EngineProof accepts what computes as transformers does, and refuses anything else by name."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from core.attention.base import BackendFactory, backend_factory
from core.contract.errors import ModelLoadError
from core.hook import interface, reduced
from core.hook.hook import AttentionHook
from core.proof import steps
from core.proof.engine_proof import EngineProof
from tests.support.checkpoints import CONFIGS, tiny_model


def prove(
    model: nn.Module,
    factory: BackendFactory | None = None,
    between: Callable[[nn.Module], object] = lambda _model: None,
    dtype: torch.dtype = torch.float32,
) -> AttentionHook:
    """Prove a model; ``between`` stands for what replaces its modules."""
    hook = AttentionHook(model)
    proof = EngineProof(model, hook)
    between(model)
    factory = backend_factory("torch") if factory is None else factory
    proof.run(factory, dtype=dtype, kv_dtype=dtype, is_exact=True)
    return hook


def refused(reason: str) -> Any:
    return pytest.raises(ModelLoadError, match=f"^\\w+ cannot be served: .*{reason}[^\\n]*$")


@pytest.fixture
def llama() -> Any:
    return copy.deepcopy(tiny_model("llama"))


@pytest.mark.parametrize("family", sorted(CONFIGS))
def test_every_family_is_accepted_and_left_as_it_was(family: str) -> None:
    model = copy.deepcopy(tiny_model(family))
    before = copy.deepcopy(model.config)
    hook = prove(model)
    assert model.config.to_dict() == before.to_dict()
    assert not any(module in interface._ROUTES for module in hook.modules)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_rounded_types_are_accepted(llama: Any, dtype: torch.dtype) -> None:
    prove(llama.to(dtype), dtype=dtype)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_weights_that_are_not_finite_are_refused(llama: Any, value: float) -> None:
    with torch.no_grad():
        llama.model.layers[1].mlp.down_proj.weight[0, 0] = value
    with refused("gives NaN or infinite logits"):
        prove(llama)


def test_state_outside_of_attention_is_refused(llama: Any) -> None:
    mlp = llama.model.layers[1].mlp
    inner = mlp.forward
    mlp.forward = lambda x: inner(x + nn.functional.pad(x, (0, 0, 1, 0))[:, :-1])
    with refused("logits"):
        prove(llama)


def test_a_model_that_ignores_positions_is_refused(llama: Any) -> None:
    rotary = llama.model.rotary_emb
    inner = rotary.forward
    rotary.forward = lambda x, position_ids: inner(x, torch.arange(x.shape[1])[None])
    with refused("packed prefill"):
        prove(llama)


@pytest.mark.parametrize(("first", "num_tokens"), [(0, steps.CUT_ELSEWHERE), (32, 9)])
def test_another_cut_and_a_cached_prefix_are_proved(
    llama: Any, first: int, num_tokens: int
) -> None:
    """A model that is wrong only where a prompt is cut so, or goes on from such blocks."""
    rotary = llama.model.rotary_emb
    inner = rotary.forward

    def forward(x: torch.Tensor, position_ids: torch.Tensor) -> Any:
        is_wrong = position_ids[0, 0] == first and x.shape[1] == num_tokens
        return inner(x, position_ids * 2 if is_wrong else position_ids)

    rotary.forward = forward
    with refused("goes on from the prefix cache"):
        prove(llama)


def test_a_cache_that_means_something_else_is_refused(llama: Any) -> None:
    """Transformers' cache gives other logits than the model's own whole pass."""
    inner = llama.model.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        output = inner(*args, **kwargs)
        if kwargs["use_cache"] and kwargs["position_ids"][0, 0] > 0:
            output.last_hidden_state *= 0.5
        return output

    llama.model.forward = forward
    with refused("with transformers' own cache its results depend on where a prompt is cut"):
        prove(llama)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_cache_that_fails_is_not_the_models_fault(llama: Any, dtype: torch.dtype) -> None:
    inner = llama.model.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        if kwargs["use_cache"]:
            raise ZeroDivisionError
        return inner(*args, **kwargs)

    llama.model.forward = forward
    prove(llama.to(dtype), dtype=dtype)


def test_a_module_that_is_wrong_once_replaced_is_refused(llama: Any) -> None:
    def halve(model: Any) -> None:
        model.lm_head.weight.mul_(0.5)

    with refused("packed prefill"):
        prove(llama, between=halve)


def test_no_number_is_refused(llama: Any) -> None:
    with refused("packed prefill"):
        prove(llama, between=lambda model: model.lm_head.weight.fill_(float("nan")))


def test_an_exception_is_not_the_reason(llama: Any) -> None:
    def fail(*_args: object, **_kwargs: object) -> None:
        raise ZeroDivisionError("a secret")

    def replace(model: Any) -> None:
        model.lm_head.forward = fail

    with refused("fails once its attention and its modules are replaced") as found:
        prove(llama, between=replace)
    assert "secret" not in str(found.value)


def test_sparse_attention_by_an_indexer_is_the_reason(llama: Any) -> None:
    """Its indexer reads a mask, which packed sequences have not."""

    class SomeIndexer(nn.Module):
        def forward(self, attention_mask: Any) -> Any:
            return attention_mask[:, 0]

    llama.model.indexer = indexer = SomeIndexer()

    def replace(model: Any) -> None:
        model.lm_head.forward = lambda _x: indexer(None)

    with refused("an indexer of its own chooses the tokens that attention sees"):
        prove(llama, between=replace)


def test_a_backend_without_the_window_is_refused() -> None:
    def unwindowed(storage: Any, layers: Any) -> Any:
        wide = [dataclasses.replace(layer, sliding_window=None) for layer in layers]
        return backend_factory("torch")(storage, wide)

    with refused("chunked prefill|packed prefill"):
        prove(copy.deepcopy(tiny_model("gemma3")), unwindowed)


@pytest.mark.parametrize("name", ["torch", "cpu"])
def test_a_window_longer_than_the_prompts_is_proved_reduced(name: str) -> None:
    """A mask's window that the layers do not know is found, whatever its size."""
    model = copy.deepcopy(tiny_model("mistral"))
    for owner in (model.config, *model.modules()):
        if getattr(owner, "sliding_window", None):
            owner.sliding_window = 200
    hook = prove(model, backend_factory(name))
    assert [layer.sliding_window for layer in hook.layers] == [200] * 4


@pytest.mark.parametrize(("family", "count"), [("llama", 1), ("gemma3", 2)])
def test_a_large_model_is_cut_to_a_layer_of_each_kind(
    family: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reduced, "MAX_PARAMETERS", 0)
    model: Any = copy.deepcopy(tiny_model(family))
    hook = AttentionHook(model)
    seen: list[int] = []
    model.model.norm.register_forward_hook(lambda *_: seen.append(len(model.model.layers)))
    proof = EngineProof(model, hook)
    proof.run(backend_factory("torch"), dtype=torch.float32, kv_dtype=torch.float32, is_exact=True)
    assert set(seen) == {count}
    assert len(model.model.layers) == 4


def test_the_second_sequence_uses_cached_blocks(llama: Any) -> None:
    seen: list[int] = []
    llama.register_forward_pre_hook(
        lambda _m, _a, kwargs: seen.append(kwargs["input_ids"].numel()), with_kwargs=True
    )
    hook = AttentionHook(llama)
    seen.clear()
    EngineProof(llama, hook).run(
        backend_factory("torch"), dtype=torch.float32, kv_dtype=torch.float32, is_exact=True
    )
    first, second = steps.LENGTHS
    assert seen[0] == 2 * max(first, second)  # the reference, padded
    cut = steps.CUT_ELSEWHERE
    again = [cut, first - cut // steps.BLOCK_SIZE * steps.BLOCK_SIZE]
    assert sum(seen[1:-2]) == first + second - steps.BLOCK_SIZE
    assert seen[-2:] == again
