"""Steps with prompt chunks in pieces equal eager steps. On a CPU operations are recorded."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from core.hook.hook import AttentionHook
from core.run.forward import EagerForward, ForwardPass
from core.run.graphs.forward import with_graphs
from core.run.graphs.pieces import PiecewiseForward
from tests.core.run.graphs.test_forward import LIMITS, Rig
from tests.support.recorded_pieces import RecordedPieces
from tests.support.static_attention import StaticTorchBackend
from tests.support.tiny_engine import build_engine, prompts, request, run, token_ids

FAMILIES = ["gpt2", "qwen3", "gemma3"]


class Failing:
    """A pass that must not be asked."""

    def __init__(self, eager: EagerForward) -> None:
        self.eager = eager

    def __call__(self, batch: object) -> Any:
        raise AssertionError("the step was not replayed")


def pieces(rig: Rig, inner: ForwardPass | None = None, **limits: Any) -> PiecewiseForward:
    limits = {"sizes": [16, 32, 64], "max_num_logits": 6, **limits}
    inner = inner or Failing(rig.eager)
    return PiecewiseForward(inner, rig.backend, rig.hook, RecordedPieces(), **limits)


def with_chunks(family: str, lengths: list[int], counts: list[int]) -> Rig:
    """A rig whose sequences compute so many tokens each."""
    rig = Rig(family, lengths)
    for sequence, count in zip(rig.sequences, counts, strict=True):
        sequence.num_computed_tokens = sequence.num_tokens - count
    return rig


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("counts", [[9, 1, 3], [1, 1, 30], [2, 1, 1], [9, 12, 40]])
def test_a_step_in_pieces_equals_an_eager_step(family: str, counts: list[int]) -> None:
    lengths = [9, 12, 40]
    eager, replayed = (with_chunks(family, lengths, counts) for _ in range(2))
    expected = eager.run(eager.eager)
    forward = pieces(replayed)
    actual = replayed.run(forward)
    torch.testing.assert_close(actual.values, expected.values, rtol=1e-4, atol=1e-4)
    for own, others in zip(replayed.cache(), eager.cache(), strict=True):
        torch.testing.assert_close(own, others, rtol=1e-4, atol=1e-4)


def test_a_smaller_step_ignores_what_a_larger_step_wrote() -> None:
    rig, alone = (with_chunks("llama", [9, 12, 40], [9, 12, 40]) for _ in range(2))
    del alone.sequences[1:]
    expected = alone.run(alone.eager)
    forward = pieces(rig, sizes=[64])
    rig.run(forward)
    del rig.sequences[1:]
    torch.testing.assert_close(rig.run(forward).values, expected.values, rtol=1e-4, atol=1e-4)


def test_a_capture_has_one_cut_for_each_layer_and_writes_to_no_block() -> None:
    rig = Rig("gpt2", [9])
    before = rig.cache()
    capture = RecordedPieces()
    PiecewiseForward(rig.eager, rig.backend, rig.hook, capture, sizes=[16, 32], max_num_logits=4)
    assert capture.num_cuts == 2 * len(rig.hook.layers)
    assert all(torch.equal(a, b) for a, b in zip(rig.cache(), before, strict=True))


@pytest.mark.parametrize(
    ("lengths", "counts"),
    [([9, 12], [1, 1]), ([70], [70]), ([9, 9, 9, 9, 9, 9, 9], [2, 1, 1, 1, 1, 1, 1])],
    ids=["decode", "too many tokens", "too many logits"],
)
def test_other_steps_are_left_to_the_inner_pass(lengths: list[int], counts: list[int]) -> None:
    rig = with_chunks("gpt2", lengths, counts)
    expected = rig.run(rig.eager)
    forward = pieces(rig, rig.eager)
    torch.testing.assert_close(rig.run(forward).values, expected.values, rtol=0, atol=0)
    with pytest.raises(AssertionError, match="not replayed"):
        rig.run(pieces(rig))


@pytest.mark.parametrize("counts", [[9, 12], [1, 1]])
def test_without_pieces_decodes_are_graphs_and_the_attention_is_as_it_was(
    counts: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    rig = with_chunks("gpt2", [9, 12], counts)
    expected = rig.run(rig.eager)

    class FailsInPieces(RecordedPieces):
        def capture_pieces(self, compute: Any) -> Any:
            super().capture_pieces(compute)
            raise RuntimeError("no memory")

    forward = with_graphs(rig.eager, rig.hook, FailsInPieces(), **LIMITS)
    assert caplog.messages == ["CUDA graphs of steps with prompts are disabled: no memory"]
    found = rig.run(forward)
    assert (found.best is not None) == (counts == [1, 1]), "which only a graph knows"
    torch.testing.assert_close(found.values, expected.values, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("async_scheduling", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_requests_get_the_tokens_of_eager_steps(family: str, async_scheduling: bool) -> None:
    requests = [
        request(str(i), prompt, 14, **([{}, {"temperature": 1.0, "seed": i}][i % 2]))
        for i, prompt in enumerate(prompts(1))
    ]
    eager = run(build_engine(family), requests)
    hooks: list[AttentionHook] = []

    def wrap(pass_: EagerForward) -> ForwardPass:
        backend = pass_.backend
        assert isinstance(backend, StaticTorchBackend)
        limits = {**LIMITS, "max_num_seqs": 6, "max_context": 256, "max_num_tokens": 64}
        forward = with_graphs(pass_, hooks[0], RecordedPieces(), **limits)
        assert isinstance(forward, PiecewiseForward)
        return forward

    engine = build_engine(
        family,
        backend=StaticTorchBackend,
        max_num_seqs=6,
        num_blocks=110,
        async_scheduling=async_scheduling,
        wrap=wrap,
        prepare=lambda _model, hook: hooks.append(hook),
    )
    replayed = run(engine, requests)
    for r in requests:
        assert token_ids(replayed[r.request_id]) == token_ids(eager[r.request_id])
