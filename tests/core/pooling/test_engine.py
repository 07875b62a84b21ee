"""PoolingEngine: turns of tenants, failures, aborts."""

import pytest
import torch

from core.contract.messages import EngineRequest
from core.contract.params import SamplingParams
from core.engine.engine import ENGINE_FAILED, failed_with
from core.engine.failures import MAX_FAILED_STEPS
from core.pooling.engine import FIRST_TOKENS, PoolingEngine


class Runner:
    """Its vectors are the prompts' first ids; ids that ``fails`` names fail."""

    def __init__(self, fails=()):
        self.batches, self.fails = [], set(fails)

    def run(self, batch):
        names = [request.request_id for request in batch]
        self.batches.append(names)
        if self.fails & set(names):
            raise RuntimeError("secret /root/weights.bin")
        return torch.tensor([[float(request.prompt_token_ids[0])] for request in batch])


def request(name, *, tenant="", priority=0, length=1, value=1):
    return EngineRequest(
        request_id=name,
        prompt_token_ids=(value, *[1] * (length - 1)),
        params=SamplingParams(max_tokens=0),
        tenant=tenant,
        priority=priority,
    )


def engine(runner, **limits):
    defaults = {"max_num_seqs": 8, "max_num_batched_tokens": 100, "num_token_ids": 1000}
    return PoolingEngine(runner, **(defaults | limits))


def finished(engine):
    outputs = []
    while engine.has_work:
        outputs += engine.step()
    return {output.request_id: output for output in outputs}


def test_tenants_take_turns():
    runner = Runner()
    driven = engine(runner, max_num_seqs=2)
    for name in ("a1", "a2", "a3"):
        driven.add(request(name, tenant="a"))
    driven.add(request("b1", tenant="b"))
    finished(driven)
    assert runner.batches == [["a1", "b1"], ["a2", "a3"]]


def test_lower_priorities_go_first():
    runner = Runner()
    driven = engine(runner, max_num_seqs=1)
    for name, priority in (("x", 1), ("y", 0), ("z", -1), ("w", 0)):
        driven.add(request(name, priority=priority))
    finished(driven)
    assert runner.batches == [["z"], ["y"], ["w"], ["x"]]


def test_padding_counts():
    runner = Runner()
    driven = engine(runner, max_num_batched_tokens=100)
    for name, length in (("a", 10), ("b", 40), ("c", 40), ("d", 200)):
        driven.add(request(name, length=length))
    assert all(output.finish_reason for output in finished(driven).values())
    assert runner.batches == [["a", "b"], ["c"], ["d"]]


def test_only_the_guilty_request_fails():
    runner = Runner(fails={"b"})
    driven = engine(runner)
    for name in "abc":
        driven.add(request(name))
    outputs = finished(driven)
    assert [outputs[name].finish_reason for name in "abc"] == ["stop", None, "stop"]
    assert "RuntimeError" in outputs["b"].error
    assert "secret" not in outputs["b"].error
    assert driven.stats().num_failed_steps == 2


def test_a_vector_that_is_not_finite_is_an_error():
    class Broken(Runner):
        def run(self, batch):
            return super().run(batch) * torch.tensor([[float("nan")], [1.0]])

    driven = engine(Broken())
    driven.add(request("a"))
    driven.add(request("b"))
    outputs = finished(driven)
    assert "NaN" in outputs["a"].error
    assert outputs["b"].finish_reason == "stop"


def test_it_gives_up_after_many_failures_of_its_own():
    driven = engine(Runner(fails={"canary", *map(str, range(20))}), max_num_seqs=1)
    for i in range(20):
        driven.add(request(str(i)))
    for _ in range(MAX_FAILED_STEPS - 1):
        [output] = driven.step()
        assert (output.error, output.is_retryable) == (ENGINE_FAILED, True)
    with pytest.raises(RuntimeError):
        driven.step()


@pytest.mark.parametrize("max_num_seqs", [1, 8, 30])
def test_texts_at_fault_do_not_end_the_engine(max_num_seqs):
    runner = Runner(fails=map(str, range(30)))
    driven = engine(runner, max_num_seqs=max_num_seqs)
    for i in range(30):
        driven.add(request(str(i)))
    outputs = finished(driven)
    assert {output.error for output in outputs.values()} == {failed_with(RuntimeError())}
    assert not any(output.is_retryable for output in outputs.values())
    assert runner.batches.count(["canary"]) == -(-30 // max_num_seqs)


def test_a_canary_that_succeeds_ends_the_count():
    runner = Runner(fails={"bad"})
    driven = engine(runner)
    for _ in range(2 * MAX_FAILED_STEPS):
        runner.fails ^= {"canary"}
        driven.add(request("bad"))
        [output] = driven.step()
        assert output.is_retryable is ("canary" in runner.fails)


def test_a_batch_counts_once():
    runner = Runner(fails={"canary", *"abcdefgh"})
    driven = engine(runner)
    for _ in range(MAX_FAILED_STEPS - 1):
        for name in "abcdefgh":
            driven.add(request(name))
        assert {output.error for output in driven.step()} == {ENGINE_FAILED}
    assert runner.batches.count(["canary"]) == MAX_FAILED_STEPS - 1


def test_a_lost_device_is_the_end():
    class Lost(Runner):
        def run(self, batch):
            raise torch.AcceleratorError("CUDA error: illegal memory access", 700)

    driven = engine(Lost())
    driven.add(request("a"))
    with pytest.raises(torch.AcceleratorError):
        driven.step()


def test_abort_and_fail_all():
    runner = Runner()
    driven = engine(runner)
    for name in "abc":
        driven.add(request(name, tenant=name))
    driven.abort("b")
    driven.abort("b")
    driven.abort("nobody")
    assert driven.stats().num_waiting == 2
    assert {output.error for output in driven.fail_all("over")} == {"over"}
    assert not driven.has_work
    assert runner.batches == []


def test_the_work_of_a_text_is_its_step():
    runner = Runner(fails=["b"])
    driven = engine(runner, max_num_seqs=2)
    live = []
    run = runner.run
    runner.run = lambda batch: (live.append((driven.work("a"), driven.work("c"))), run(batch))[1]
    for name in ("a", "b", "c"):
        driven.add(request(name, length=3))
    assert driven.work("a") is None, "it waits"
    outputs = finished(driven)
    assert live[0][0].num_rows == 2
    assert live[0][1] is None
    for name, num_rows in (("a", 2), ("b", 2), ("c", 1)):
        work = outputs[name].work
        assert (work.num_steps, work.num_rows, work.max_rows) == (1, num_rows, num_rows)
        assert work.started_at <= work.until
        assert work.num_prompt_tokens == 3
    assert outputs["b"].error
    assert driven.work("c") is None, "it has ended"


def test_a_step_is_bounded_by_time(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("core.pooling.engine.time.perf_counter", lambda: clock[0])

    class Slow(Runner):
        def run(self, batch):
            clock[0] += 0.001 * sum(len(request.prompt_token_ids) for request in batch)
            return super().run(batch)

    runner = Slow()
    driven = engine(runner, max_num_seqs=512, max_num_batched_tokens=4096, max_step_seconds=0.1)
    for number in range(200):
        driven.add(request(f"a{number}", tenant="a", length=10))
    driven.step()
    assert len(runner.batches[0]) == FIRST_TOKENS // 10  # nothing is known yet
    driven.add(request("b", tenant="b", length=10))
    driven.step()
    driven.step()
    assert "b" in runner.batches[1]
    assert {len(batch) for batch in runner.batches[1:]} == {10}  # 100 tokens take 0.1 s


def test_a_long_text_goes_before_a_short_one_once():
    runner = Runner()
    driven = engine(runner)
    for number in range(3):
        driven.add(request(f"a{number}", tenant="a", length=90))
    driven.step()
    driven.add(request("b", tenant="b", length=20))
    finished(driven)
    assert runner.batches == [["a0"], ["a1"], ["b"], ["a2"]]


def test_a_text_that_left_is_not_computed():
    runner = Runner()
    driven = engine(runner)
    for number in range(3):
        driven.add(request(f"a{number}", tenant="a", length=90))
    driven.abort("a1")
    driven.abort("a1")
    assert (driven.stats().num_waiting, driven.stats().num_aborts) == (2, 1)
    finished(driven)
    assert runner.batches == [["a0"], ["a2"]]
    assert not driven.has_work


@pytest.mark.parametrize("prompt", [(), (1, -1), (1, 10), (None,)])
def test_a_text_that_cannot_be_computed_ends_alone(prompt):
    driven = engine(Runner(), num_token_ids=10)
    driven.add(request("good"))
    bad = EngineRequest(
        request_id="bad", prompt_token_ids=prompt, params=SamplingParams(max_tokens=0)
    )
    driven.add(bad)
    driven.add(request("last"))
    outputs = finished(driven)
    assert outputs["bad"].error
    assert outputs["good"].finish_reason == outputs["last"].finish_reason == "stop"
    driven.add(bad)
    driven.abort("bad")
    assert not driven.has_work
    driven.add(bad)
    assert [output.request_id for output in driven.fail_all("over")] == ["bad"]
