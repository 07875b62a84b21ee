"""A failed step is repeated in halves: only guilty requests end, the others lose nothing."""

from __future__ import annotations

import copy
import functools
import random

import pytest
import torch

from core.contract.messages import EngineRequest
from core.contract.params import SamplingParams
from core.engine.engine import ENGINE_FAILED, LOGITS_NOT_FINITE, Engine, failed_with
from core.engine.failures import MAX_FAILED_STEPS
from core.kv.window_group import WindowSize, window_blocks_per_seq
from core.sampling.sampler import Sampler
from core.state.sequence import Sequence
from tests.support.checkpoints import tiny_model
from tests.support.scripted import Answer, Rig
from tests.support.tiny_engine import build_engine, request, run, token_ids

FAILED = failed_with(RuntimeError())


class PanicException(BaseException):
    """What a panic in Rust looks like."""


def alone(name: str, **fields) -> list[int]:
    rig = Rig()
    rig.add(name, **fields)
    return rig.run()[name].token_ids


@pytest.mark.parametrize("async_scheduling", [False, True])
@pytest.mark.parametrize("place", ["launch", "collect"])
@pytest.mark.parametrize("error", [RuntimeError("secret"), PanicException("secret")])
@pytest.mark.parametrize("at_step", [0, 3])
def test_of_eight_streams_only_the_guilty_one_ends(async_scheduling, place, error, at_step):
    prompts = {str(i): [7] * 9 + [i] * 3 for i in range(8)}
    rig = Rig(async_scheduling=async_scheduling)
    for name, prompt in prompts.items():
        rig.add(name, prompt=prompt, max_tokens=12)

    def accuse(num_steps: int) -> None:
        if num_steps == at_step:
            target = rig.runner.guilty if place == "launch" else rig.runner.guilty_late
            target["5"] = error

    accuse(0)
    answers = rig.run(between=accuse)
    assert answers["5"].last.error == failed_with(error)
    assert "secret" not in answers["5"].last.error
    for name in prompts.keys() - {"5"}:
        assert answers[name].token_ids == alone(name, prompt=prompts[name], max_tokens=12)
        assert answers[name].last.finish_reason == "length"
    assert rig.num_used_blocks == 0
    assert rig.runner.num_in_flight == 0


def test_a_prompt_with_a_guilty_token_ends_alone():
    rig = Rig()
    rig.runner.guilty_tokens[99] = RuntimeError()
    for i in range(8):
        rig.add(str(i), b"good", prompt=[99 if i == 3 else i, 1, 2], max_tokens=4)
    answers = rig.run()
    assert {name: a.last.error for name, a in answers.items() if a.last.error} == {"3": FAILED}


def test_a_failure_that_does_not_come_back_ends_no_request():
    rig = Rig()
    rig.add("a", b"aaaa", max_tokens=4)
    rig.add("b", b"bbbb", max_tokens=4)
    rig.runner.failures.append(torch.OutOfMemoryError("CUDA out of memory"))
    assert {name: a.text for name, a in rig.run().items()} == {"a": "aaaa", "b": "bbbb"}
    assert rig.engine.stats().num_failed_steps == 1


@pytest.mark.parametrize("num_guilty", [1, 3, 8])
def test_the_number_of_launches_is_bounded(num_guilty):
    rig = Rig()
    for i in range(8):
        rig.add(str(i), max_tokens=1)
    rig.runner.guilty = {str(i): RuntimeError() for i in range(num_guilty)}
    outputs = rig.step()
    assert sum(o.error is not None for o in outputs.values()) == num_guilty
    bound = {1: 1 + 2 * 3, 3: 1 + 2 * 5, 8: 2 * 8 - 1}
    assert len(rig.runner.batches) <= bound[num_guilty] + 1  # the canary


def test_a_guilty_request_leaves_the_prefix_cache_as_it_was():
    rig = Rig()
    rig.add("first", prompt=range(12), max_tokens=1)
    rig.run()
    rig.runner.guilty["bad"] = RuntimeError()
    rig.add("bad", prompt=[*range(12), *range(50, 58)])
    assert rig.step()["bad"].error == FAILED
    rig.add("next", prompt=[*range(12), *range(50, 58)], max_tokens=1)
    assert rig.run()["next"].last.num_cached_tokens == 12


def test_a_sequence_that_reads_blocks_of_the_guilty_one_is_recomputed():
    rig = Rig()
    rig.runner.guilty["bad"] = RuntimeError()
    rig.add("bad", prompt=range(12))
    rig.add("good", b"good", prompt=[*range(12), 99], max_tokens=4)
    answers = rig.run()
    assert answers["bad"].last.error == FAILED
    assert answers["good"].text == "good"


def test_guilty_requests_in_a_row_do_not_end_the_engine():
    rig = Rig()
    for i in range(3 * MAX_FAILED_STEPS):
        rig.runner.guilty[str(i)] = RuntimeError()
        rig.add(str(i))
        assert rig.step()[str(i)].error == FAILED
    rig.add("good", b"good", max_tokens=4)
    assert rig.run()["good"].text == "good"


def test_a_lost_device_is_not_retried():
    rig = Rig()
    rig.add("a")
    rig.add("b")
    rig.runner.failures.append(torch.AcceleratorError("lost", 700))
    with pytest.raises(torch.AcceleratorError):
        rig.step()
    assert len(rig.runner.batches) == 1


def test_a_keyboard_interrupt_is_nobodys_failure():
    rig = Rig()
    rig.add("a")
    rig.runner.failures.append(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        rig.step()


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("kind", ["plain", "async", "windows"])
def test_bystanders_get_the_tokens_they_get_alone(seed, kind):
    """Random requests with shared prefixes, aborts, preemptions, guilty rows and NaN."""
    rng = random.Random(seed)
    limits = {
        "num_blocks": rng.choice([12, 16, 60]),
        "max_num_seqs": rng.randrange(2, 7),
        "max_num_batched_tokens": rng.randrange(7, 30),
    }
    windows = []
    if kind == "windows":
        for window in (rng.randrange(1, 6), rng.randrange(6, 12)):
            per_seq = window_blocks_per_seq(window, limits["max_num_batched_tokens"], 4)
            windows.append(WindowSize(per_seq * rng.randrange(1, 4), window, per_seq))
    rig = Rig(**limits, async_scheduling=kind == "async", windows=windows)
    added, bad, aborted = {}, set(), set()
    answers: dict[str, Answer] = {}
    while len(added) < 20 or rig.engine.has_work:
        if rng.random() < 0.5 and len(added) < 20:
            name = str(len(added))
            prompt = [rng.randrange(2) for _ in range(rng.randrange(1, 18))]
            added[name] = {"prompt": prompt, "max_tokens": rng.randrange(1, 14)}
            rig.add(name, **added[name])
        if rng.random() < 0.08 and added:
            name = rng.choice(list(added))
            kind = rng.randrange(3)
            if kind == 0:
                rig.runner.guilty[name] = RuntimeError()
            elif kind == 1:
                rig.runner.guilty_late[name] = RuntimeError()
            else:
                rig.runner.failed_rows.add(name)
            bad.add(name)
        if rng.random() < 0.05:
            rig.runner.late_failures.append(RuntimeError("once"))
        if rng.random() < 0.04 and added:
            name = rng.choice(list(added))
            rig.engine.abort(name)
            aborted.add(name)
        for output in rig.outputs():
            answers.setdefault(output.request_id, Answer()).take(output)
    assert rig.num_used_blocks == 0
    if not aborted & rig.runner.failed_rows:  # NaN of an aborted prompt is not seen
        assert not rig.runner.nan_blocks
    for name in added.keys() - bad - aborted:
        last = answers[name].last
        assert last.num_cached_tokens <= last.num_prompt_tokens
        if last.error is None:
            assert answers[name].token_ids == alone(name, **added[name])
        else:  # a step of it alone met the failure that comes once
            assert last.error in {FAILED, ENGINE_FAILED}


# With a model


class Accuser:
    """A logits processor that raises for requests with ``logit_bias``, from a token on."""

    reads_tokens = False

    def __init__(self, error: BaseException, first: int) -> None:
        self._error = error
        self._first = first

    def applies(self, params: SamplingParams) -> bool:
        return bool(params.logit_bias)

    def apply(self, _logits: torch.Tensor, _rows: list[int], sequences: list[Sequence]) -> None:
        if any(sequence.num_sampled_tokens >= self._first for sequence in sequences):
            raise self._error


def of_model(*, async_scheduling: bool, accuser: Accuser | None = None) -> Engine:
    engine = build_engine("llama", async_scheduling=async_scheduling, max_num_batched_tokens=48)
    sampler = engine._pipeline._runner._sampler
    processors = (accuser,) if accuser is not None else ()
    engine._pipeline._runner._sampler = Sampler(processors=(*sampler._processors, *processors))
    return engine


KINDS = [
    {},
    {"temperature": 1.0},
    {"temperature": 0.8, "top_p": 0.9, "logprobs": 2},
    {"temperature": 1.2, "repetition_penalty": 1.3, "frequency_penalty": 0.5},
]


def bystander(i: int) -> EngineRequest:
    return request(str(i), [5] * 9 + [10 + i] * (3 + i), 12, seed=i, **KINDS[i % len(KINDS)])


@functools.cache
def alone_with_model(name: str) -> tuple[list[int], str]:
    """Tokens and text of a bystander that runs alone."""
    outputs = run(of_model(async_scheduling=False), [bystander(int(name))])[name]
    return token_ids(outputs), "".join(output.text for output in outputs)


@pytest.mark.parametrize("async_scheduling", [False, True])
@pytest.mark.parametrize("first", [0, 3])
@pytest.mark.parametrize("error", [RuntimeError("secret"), PanicException("secret")])
def test_a_processor_that_raises_ends_one_of_eight_streams(async_scheduling, first, error):
    requests = [bystander(i) for i in range(8)]
    guilty = request("guilty", [5] * 9 + [7], 12, logit_bias={3: 1.0})
    engine = of_model(async_scheduling=async_scheduling, accuser=Accuser(error, first))
    outputs = run(engine, [*requests[:4], guilty, *requests[4:]])
    assert outputs["guilty"][-1].error == failed_with(error)
    for each in requests:
        got = outputs[each.request_id]
        assert (token_ids(got), "".join(o.text for o in got)) == alone_with_model(each.request_id)
    assert engine.stats().num_free_blocks == engine.stats().num_blocks


@pytest.mark.parametrize("async_scheduling", [False, True])
def test_nan_in_the_cache_ends_one_request_and_is_cleared(async_scheduling):
    """The embedding of one token is NaN, and so are the keys and values computed from it."""
    model = copy.deepcopy(tiny_model("llama"))
    engine = build_engine("llama", async_scheduling=async_scheduling, model=model)
    model.get_input_embeddings().weight.data[7] = torch.nan
    [storage] = engine._pipeline._runner._storages
    prompt = [5] * 9 + [10, 11, 12]
    run(engine, [request("first", prompt, 4)])
    num_steps = engine.stats().num_steps
    guilty = request("guilty", [*prompt, 7, 9], 12)
    outputs = run(engine, [guilty, request("good", [3, 4, 5], 12)])
    assert outputs["guilty"][-1].error == LOGITS_NOT_FINITE
    assert outputs["good"][-1].finish_reason == "length"
    assert storage.not_finite(range(storage.num_blocks)) == []
    assert engine.stats().num_steps > num_steps
    again = run(engine, [request("again", [*prompt, 13], 4)])["again"]
    assert again[-1].num_cached_tokens == 12
