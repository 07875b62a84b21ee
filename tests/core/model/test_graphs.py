"""Recorded decode steps equal eager ones. On a CPU a recording is the function, run again."""

from __future__ import annotations

import copy

import pytest
import torch

from core.attention.base import backend_factory
from core.kv.storage import KVStorage
from core.model.forward import EagerForward, Logits
from core.model.graphs import (
    GraphableBackend,
    GraphedForward,
    RerunRecorder,
    bucket_sizes,
    recorded,
)
from core.model.hook import AttentionHook
from core.model.last_tokens import LastTokens
from core.model_input import build_model_input
from core.sampling.groups import best_tokens
from tests.support.builders import make_sequence
from tests.support.checkpoints import tiny_model
from tests.support.static_attention import StaticTorchBackend
from tests.support.tiny_engine import BLOCK_SIZE, build_engine, prompts, request, run, token_ids

CPU = torch.device("cpu")


def graphed(eager: EagerForward, **limits) -> GraphedForward:
    assert isinstance(eager.backend, GraphableBackend)
    limits = {"max_num_seqs": 6, "max_context": 256, **limits}
    return GraphedForward(eager, eager.backend, RerunRecorder(), **limits)


# Which sizes


@pytest.mark.parametrize("most", [1, 2, 3, 7, 8, 9, 64, 100, 128, 250, 512])
def test_sizes(most):
    sizes = bucket_sizes(most)
    assert sizes == sorted(set(sizes))
    assert (sizes[0], sizes[-1]) == (1, most)
    for num_seqs in range(1, most + 1):
        padding = min(size for size in sizes if size >= num_seqs) - num_seqs
        assert padding <= 7 or (num_seqs > 128 and padding <= num_seqs / 8)
    assert len(sizes) <= 4 + most // 8


# One step


class Rig:
    """A few sequences in the middle of their lives, over a cache of random numbers."""

    def __init__(self, family: str, lengths: list[int], backend=StaticTorchBackend) -> None:
        model = copy.deepcopy(tiny_model(family))  # the hook's own
        hook = AttentionHook(model)
        self.storage = KVStorage(
            hook.layers, num_blocks=80, block_size=BLOCK_SIZE, dtype=torch.float32, device=CPU
        )
        generator = torch.Generator().manual_seed(1)
        for tensor in [*self.storage.keys, *self.storage.values]:
            tensor.copy_(torch.randn(tensor.shape, generator=generator))
        self.backend = backend(self.storage, hook.layers)
        hook.install(self.backend.forward)
        self.last = LastTokens(16, CPU)
        self.eager = EagerForward(model, self.backend, CPU, self.last)
        self.sequences = []
        free = iter(range(7, 80))
        for i, length in enumerate(lengths):
            sequence = make_sequence([(7 * i + p) % 200 for p in range(length)])
            sequence.num_computed_tokens = length - 1
            for _ in range(-(-length // BLOCK_SIZE) + 1):
                sequence.block_table.append(next(free))
            self.sequences.append(sequence)

    def batch(self):
        return build_model_input(
            [(s, s.num_pending_tokens) for s in self.sequences],
            list(range(len(self.sequences))),
            block_size=BLOCK_SIZE,
            rows_in_flight=self.last.rows,
        )

    def cache(self) -> list[torch.Tensor]:
        return [t.clone() for t in [*self.storage.keys, *self.storage.values]]

    def run(self, forward) -> Logits:
        with torch.inference_mode():
            logits = forward(self.batch())
            return Logits(logits.values.clone(), None if logits.best is None else logits.best)


@pytest.mark.parametrize("family", ["gpt2", "qwen3", "gemma3"])
def test_a_recorded_step_equals_an_eager_one(family):
    lengths = [9, 1, 30, 12, 5]
    eager, recorded = Rig(family, lengths), Rig(family, lengths)
    expected = eager.run(eager.eager)
    forward = graphed(recorded.eager)
    before = recorded.cache()
    recorded.backend.num_padding_rows = 0
    actual = recorded.run(forward)
    torch.testing.assert_close(actual.values, expected.values, rtol=1e-4, atol=1e-4)
    assert actual.best.tolist() == best_tokens(expected.values).tolist()
    assert recorded.backend.num_padding_rows == len(recorded.storage.keys)  # six rows for five
    written = {s.block_table.view()[(s.num_tokens - 1) // BLOCK_SIZE] for s in recorded.sequences}
    for own, others, old in zip(recorded.cache(), eager.cache(), before, strict=True):
        torch.testing.assert_close(own, others, rtol=1e-4, atol=1e-4)
        changed = (own != old).flatten(1).any(dim=1).nonzero().flatten().tolist()
        assert set(changed) == written


def test_recording_writes_to_no_block():
    rig = Rig("gpt2", [3])
    before = rig.cache()
    graphed(rig.eager)
    assert all(torch.equal(a, b) for a, b in zip(rig.cache(), before, strict=True))


def test_a_recording_gives_its_result_in_the_same_place_each_time():
    rig = Rig("llama", [9, 4])
    forward = graphed(rig.eager)
    with torch.inference_mode():
        first = forward(rig.batch())
        kept = first.values.clone()
        rig.sequences[0].token_ids[-1] += 1
        second = forward(rig.batch())
    assert first.values.data_ptr() == second.values.data_ptr()
    assert not torch.equal(first.values[0], kept[0])
    assert torch.equal(first.values[1], kept[1])


def test_larger_steps_leave_nothing_behind_for_smaller_ones():
    rig = Rig("llama", [9, 4, 17, 3, 8, 40])
    forward = graphed(rig.eager)
    alone = Rig("llama", [9, 4])
    expected = alone.run(alone.eager)
    rig.run(forward)
    del rig.sequences[2:]
    torch.testing.assert_close(rig.run(forward).values, expected.values, rtol=1e-4, atol=1e-4)


def test_tokens_that_only_the_device_knows_are_found_there():
    eager, recorded = Rig("qwen3", [9, 4, 6]), Rig("qwen3", [9, 4, 6])
    expected = eager.run(eager.eager)
    for rig, forward in ((eager, eager.eager), (recorded, graphed(recorded.eager))):
        sampled = [sequence.token_ids[-1] for sequence in rig.sequences]
        rig.last.keep([*rig.sequences[1:], rig.sequences[0]], torch.tensor([*sampled[1:], 9, 5]))
        rig.last.keep(rig.sequences[:2], torch.tensor(sampled[:2]))
        for sequence in rig.sequences[:2]:
            del sequence.token_ids[-1]
            sequence.num_in_flight = 1
        actual = rig.run(forward)
        torch.testing.assert_close(actual.values, expected.values, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("num_pending", [2, 5])
def test_steps_with_longer_sequences_are_eager(num_pending):
    rig = Rig("gpt2", [9, 6])
    forward = graphed(rig.eager)
    rig.sequences[1].num_computed_tokens -= num_pending - 1
    assert rig.run(forward).best is None


def test_a_step_larger_than_all_recordings_is_eager():
    rig = Rig("gpt2", [3] * 7)
    assert rig.run(graphed(rig.eager)).best is None
    assert len(rig.run(graphed(rig.eager, max_num_seqs=7)).best) == 7


class Refusing:
    """Records nothing, as where the pass waits for the device."""

    def record(self, compute):
        compute()
        raise RuntimeError("operation not permitted when stream is capturing\nmore of it")


def test_what_cannot_be_recorded_is_served_eagerly(caplog):
    rig = Rig("gpt2", [9, 6])
    expected = rig.run(rig.eager)
    forward = recorded(rig.eager, Refusing(), max_num_seqs=4, max_context=64)
    assert forward is rig.eager
    assert "operation not permitted when stream is capturing" in caplog.text
    assert "more of it" not in caplog.text
    torch.testing.assert_close(rig.run(forward).values, expected.values)


def test_a_backend_without_fixed_plans_is_served_eagerly():
    rig = Rig("gpt2", [9], backend_factory("torch"))
    assert recorded(rig.eager, Refusing(), max_num_seqs=4, max_context=64) is rig.eager


# Whole lives


@pytest.mark.parametrize("async_scheduling", [False, True])
@pytest.mark.parametrize("family", ["gpt2", "qwen3", "gemma3"])
def test_texts_are_those_of_eager_steps(family, async_scheduling):
    given = prompts(1)
    requests = [
        request(str(i), prompt, 14, **([{}, {"temperature": 1.0, "seed": i}][i % 2]))
        for i, prompt in enumerate(given)
    ]
    eager = run(build_engine(family), requests)
    recorded = run(
        build_engine(
            family,
            backend=StaticTorchBackend,
            max_num_seqs=6,
            num_blocks=110,
            async_scheduling=async_scheduling,
            wrap=graphed,
        ),
        requests,
    )
    for r in requests:
        assert token_ids(recorded[r.request_id]) == token_ids(eager[r.request_id])


@pytest.mark.slow
def test_our_triton_kernels_in_a_recording():
    pytest.importorskip("triton")
    rig, other = (
        Rig("llama", [9, 30, 1], backend_factory("triton")),
        Rig("llama", [9, 30, 1], backend_factory("torch")),
    )
    forward = graphed(rig.eager, max_num_seqs=4, max_context=64)
    torch.testing.assert_close(
        rig.run(forward).values, other.run(other.eager).values, rtol=1e-4, atol=1e-4
    )
