from __future__ import annotations

import pytest
import torch

from core.engine import REQUEST_FAILED
from core.failures import MAX_FAILED_STEPS
from tests.support.scripted import POISON, Rig


def test_a_failed_step_ends_exactly_its_requests():
    rig = Rig(max_num_seqs=2)
    rig.add("a", b"aaaa", max_tokens=4)
    rig.add("b", b"bbbb", max_tokens=4)
    rig.add("c", b"cccc", max_tokens=4)
    rig.step()
    rig.runner.failures.append(RuntimeError("secret"))
    outputs = rig.step()
    assert {r: (o.error, o.finish_reason) for r, o in outputs.items()} == {
        "a": (REQUEST_FAILED, None),
        "b": (REQUEST_FAILED, None),
    }
    answers = rig.run()
    ends = {r: (a.text, a.last.finish_reason, a.last.stop_reason) for r, a in answers.items()}
    assert ends == {"c": ("cccc", "length", None)}
    assert rig.num_used_blocks == 0


def test_a_failed_step_does_not_end_other_sequences():
    rig = Rig(max_num_seqs=3, max_num_batched_tokens=4)
    rig.add("wide", prompt=range(4), max_tokens=3)
    rig.step()
    rig.add("long", prompt=range(100, 110), max_tokens=2)
    rig.add("next", prompt=range(200, 210), max_tokens=2)
    rig.step()
    rig.runner.failures.append(RuntimeError("boom"))
    assert set(rig.step()) == {"wide", "long"}
    assert rig.run()["next"].last.finish_reason == "length"


def test_a_failed_step_empties_the_prefix_cache():
    rig = Rig()
    rig.add("a", prompt=range(10), max_tokens=5)
    rig.runner.failures.append(RuntimeError("half-way"))
    rig.step()
    rig.add("b", prompt=range(10), max_tokens=1)
    last = rig.run()["b"].last
    assert (last.num_cached_tokens, last.error) == (0, None)


def test_an_out_of_memory_error_fails_only_its_step():
    rig = Rig()
    rig.add("a")
    rig.runner.failures.append(torch.OutOfMemoryError("CUDA out of memory"))
    assert rig.step()["a"].error == REQUEST_FAILED
    rig.add("b", b"b", max_tokens=1)
    assert rig.run()["b"].text == "b"


def test_a_cuda_error_is_fatal_at_once():
    rig = Rig()
    rig.add("a")
    rig.runner.failures.append(torch.AcceleratorError("CUDA error: illegal memory access", 700))
    with pytest.raises(torch.AcceleratorError):
        rig.step()
    assert [output.request_id for output in rig.engine.fail_all("over")] == ["a"]


def test_many_failed_steps_in_a_row_are_fatal():
    rig = Rig()
    rig.runner.broken_ids.update(map(str, range(20)))
    for i in range(MAX_FAILED_STEPS - 1):
        rig.add(str(i))
        assert rig.step()[str(i)].error == REQUEST_FAILED
    rig.add("19")
    with pytest.raises(RuntimeError, match="breaks every step"):
        rig.step()
    assert rig.engine.stats().num_failed_steps == MAX_FAILED_STEPS
    assert [o.request_id for o in rig.engine.fail_all("over")] == ["19"]
    assert rig.num_used_blocks == 0


def test_a_successful_step_resets_the_failure_count():
    rig = Rig()
    rig.runner.broken_ids.add("bad")
    for i in range(3 * MAX_FAILED_STEPS):
        rig.add("bad")
        assert rig.step()["bad"].error
        rig.add(str(i), b"x", max_tokens=1)
        assert rig.step()[str(i)].text == "x"


def test_a_fatal_step_loses_no_ready_output():
    rig = Rig()
    rig.add("empty", max_tokens=0)
    rig.add("a")
    rig.runner.failures.append(torch.AcceleratorError("lost", 700))
    with pytest.raises(torch.AcceleratorError):
        rig.step()
    outputs = {o.request_id: (o.finish_reason, o.error) for o in rig.engine.fail_all("over")}
    assert outputs == {"empty": ("length", None), "a": (None, "over")}


def test_a_row_without_a_usable_token_fails_only_its_request():
    rig = Rig()
    rig.runner.failed_rows.add("bad")
    rig.add("bad", prompt=range(10))
    rig.add("good", b"good", max_tokens=4)
    outputs = rig.step()
    assert outputs["bad"].error
    assert outputs["good"].error is None
    assert rig.run()["good"].text == "ood"
    assert rig.engine.stats().num_failed_steps == 0


def test_blocks_of_a_failed_row_leave_the_prefix_cache():
    rig = Rig()
    rig.runner.failed_rows.add("bad")
    rig.add("bad", prompt=range(10))
    rig.step()
    rig.add("next", prompt=range(10), max_tokens=1)
    assert rig.run()["next"].last.num_cached_tokens == 0


def test_a_detokenizer_error_fails_only_its_request():
    rig = Rig()
    rig.add("bad", [*b"a", POISON], max_tokens=4)
    rig.add("good", b"good", max_tokens=4)
    rig.step()
    outputs = rig.step()
    assert (outputs["bad"].error, outputs["bad"].finish_reason) == (REQUEST_FAILED, None)
    assert "bad" not in rig.run()
    assert rig.num_used_blocks == 0


def test_a_prompt_that_the_detokenizer_refuses_fails_only_its_request():
    rig = Rig()
    rig.add("good", b"good", max_tokens=4)
    rig.add("bad", prompt=[POISON])
    outputs = rig.step()
    assert outputs["bad"].error == REQUEST_FAILED
    assert rig.run()["good"].last.finish_reason == "length"
