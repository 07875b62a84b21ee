"""Decode steps by graphs equal eager steps. On a CPU a replay runs the function again."""

from __future__ import annotations

import copy

import pytest
import torch

from core.attention.base import GraphableBackend, backend_factory
from core.batch.logits import Logits
from core.batch.model_input import build_model_input
from core.hook.hook import AttentionHook
from core.kv.storage import KVStorage
from core.run.forward import EagerForward
from core.run.graphs.forward import GraphedForward, with_graphs
from core.run.last_tokens import LastTokens
from core.sampling.greedy import greedy_tokens
from tests.support.builders import make_sequence
from tests.support.checkpoints import tiny_model
from tests.support.rerun_capture import RerunCapture
from tests.support.static_attention import StaticTorchBackend
from tests.support.tiny_engine import BLOCK_SIZE, build_engine, prompts, request, run, token_ids

CPU = torch.device("cpu")
LIMITS = {"max_num_seqs": 4, "max_context": 64, "max_num_tokens": 32, "num_parameters": 9}


def graphed(eager: EagerForward, **limits) -> GraphedForward:
    assert isinstance(eager.backend, GraphableBackend)
    limits = {"max_num_seqs": 6, "max_context": 256, **limits}
    return GraphedForward(eager, eager.backend, RerunCapture(), **limits)


# One step


class Rig:
    """A few decoding sequences over a cache of random numbers."""

    def __init__(self, family: str, lengths: list[int], backend=StaticTorchBackend) -> None:
        model = copy.deepcopy(tiny_model(family))  # the hook's own
        self.hook = hook = AttentionHook(model)
        self.storage = KVStorage(
            hook.layers, num_blocks=80, block_size=BLOCK_SIZE, dtype=torch.float32, device=CPU
        )
        generator = torch.Generator().manual_seed(1)
        for tensor in [*self.storage.keys, *self.storage.values]:
            tensor.copy_(torch.randn(tensor.shape, generator=generator))
        self.backend = backend(self.storage, hook.layers)
        hook.attach(self.backend)
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
def test_a_replayed_step_equals_an_eager_step(family):
    lengths = [9, 1, 30, 12, 5]
    eager, replayed = Rig(family, lengths), Rig(family, lengths)
    expected = eager.run(eager.eager)
    forward = graphed(replayed.eager)
    before = replayed.cache()
    replayed.backend.num_padding_rows = 0
    actual = replayed.run(forward)
    torch.testing.assert_close(actual.values, expected.values, rtol=1e-4, atol=1e-4)
    assert actual.best.tolist() == greedy_tokens(expected.values).tolist()
    assert replayed.backend.num_padding_rows == len(replayed.storage.keys)  # six rows for five
    written = {s.block_table.view()[(s.num_tokens - 1) // BLOCK_SIZE] for s in replayed.sequences}
    for own, others, old in zip(replayed.cache(), eager.cache(), before, strict=True):
        torch.testing.assert_close(own, others, rtol=1e-4, atol=1e-4)
        changed = (own != old).flatten(1).any(dim=1).nonzero().flatten().tolist()
        assert set(changed) == written


def test_capture_writes_to_no_block():
    rig = Rig("gpt2", [3])
    before = rig.cache()
    graphed(rig.eager)
    assert all(torch.equal(a, b) for a, b in zip(rig.cache(), before, strict=True))


def test_a_replay_writes_its_logits_to_the_same_memory():
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


def test_a_smaller_step_ignores_what_a_larger_step_wrote():
    rig = Rig("llama", [9, 4, 17, 3, 8, 40])
    forward = graphed(rig.eager)
    alone = Rig("llama", [9, 4])
    expected = alone.run(alone.eager)
    rig.run(forward)
    del rig.sequences[2:]
    torch.testing.assert_close(rig.run(forward).values, expected.values, rtol=1e-4, atol=1e-4)


def test_tokens_in_flight_are_read_from_the_device():
    eager, replayed = Rig("qwen3", [9, 4, 6]), Rig("qwen3", [9, 4, 6])
    expected = eager.run(eager.eager)
    for rig, forward in ((eager, eager.eager), (replayed, graphed(replayed.eager))):
        sampled = [sequence.token_ids[-1] for sequence in rig.sequences]
        rig.last.keep([*rig.sequences[1:], rig.sequences[0]], torch.tensor([*sampled[1:], 9, 5]))
        rig.last.keep(rig.sequences[:2], torch.tensor(sampled[:2]))
        for sequence in rig.sequences[:2]:
            del sequence.token_ids[-1]
            sequence.num_in_flight = 1
        actual = rig.run(forward)
        torch.testing.assert_close(actual.values, expected.values, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("num_pending", [2, 5])
def test_a_step_with_a_prompt_chunk_is_eager(num_pending):
    rig = Rig("gpt2", [9, 6])
    forward = graphed(rig.eager)
    rig.sequences[1].num_computed_tokens -= num_pending - 1
    assert rig.run(forward).best is None


def test_a_step_larger_than_all_graphs_is_eager():
    rig = Rig("gpt2", [3] * 7)
    assert rig.run(graphed(rig.eager)).best is None
    assert len(rig.run(graphed(rig.eager, max_num_seqs=7)).best) == 7


class FailingCapture:
    """Fails as a pass does that waits for the device."""

    def capture(self, compute):
        compute()
        raise RuntimeError("operation not permitted when stream is capturing\nmore of it")


def test_a_pass_that_cannot_be_captured_stays_eager(caplog):
    rig = Rig("gpt2", [9, 6])
    expected = rig.run(rig.eager)
    forward = with_graphs(rig.eager, rig.hook, FailingCapture(), **LIMITS)
    assert forward is rig.eager
    assert "operation not permitted when stream is capturing" in caplog.text
    assert "more of it" not in caplog.text
    torch.testing.assert_close(rig.run(forward).values, expected.values)


def test_a_backend_without_decode_plans_stays_eager():
    rig = Rig("gpt2", [9], backend_factory("torch"))
    assert with_graphs(rig.eager, rig.hook, FailingCapture(), **LIMITS) is rig.eager


# Whole requests


@pytest.mark.parametrize("async_scheduling", [False, True])
@pytest.mark.parametrize("family", ["gpt2", "qwen3", "gemma3"])
def test_requests_get_the_tokens_of_eager_steps(family, async_scheduling):
    given = prompts(1)
    requests = [
        request(str(i), prompt, 14, **([{}, {"temperature": 1.0, "seed": i}][i % 2]))
        for i, prompt in enumerate(given)
    ]
    eager = run(build_engine(family), requests)
    replayed = run(
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
        assert token_ids(replayed[r.request_id]) == token_ids(eager[r.request_id])


@pytest.mark.slow
def test_triton_attention_in_a_replayed_step():
    pytest.importorskip("triton")
    rig, other = (
        Rig("llama", [9, 30, 1], backend_factory("triton")),
        Rig("llama", [9, 30, 1], backend_factory("torch")),
    )
    forward = graphed(rig.eager, max_num_seqs=4, max_context=64)
    torch.testing.assert_close(
        rig.run(forward).values, other.run(other.eager).values, rtol=1e-4, atol=1e-4
    )
