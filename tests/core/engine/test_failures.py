from __future__ import annotations

import pytest
import torch

from core.engine.engine import ENGINE_FAILED, LOGITS_NOT_FINITE, NOTHING_ALLOWED, failed_with
from core.engine.failures import MAX_FAILED_STEPS
from tests.support.scripted import POISON, Rig

FAILED = failed_with(RuntimeError())


def test_a_cuda_error_is_fatal_at_once():
    rig = Rig()
    rig.add("a")
    rig.runner.failures.append(torch.AcceleratorError("CUDA error: illegal memory access", 700))
    with pytest.raises(torch.AcceleratorError):
        rig.step()
    assert [output.request_id for output in rig.engine.fail_all("over")] == ["a"]


def test_many_failed_steps_in_a_row_are_fatal():
    rig = Rig()
    rig.runner.is_broken = True
    for i in range(MAX_FAILED_STEPS - 1):
        rig.add(str(i))
        output = rig.step()[str(i)]
        assert (output.error, output.is_retryable) == (ENGINE_FAILED, True)
    rig.add("19")
    with pytest.raises(RuntimeError, match="every step fails"):
        rig.step()
    assert rig.engine.stats().num_failed_steps == MAX_FAILED_STEPS
    assert [o.request_id for o in rig.engine.fail_all("over")] == ["19"]
    assert rig.num_used_blocks == 0


def test_a_successful_canary_resets_the_failure_count():
    rig = Rig()
    for i in range(3):
        rig.runner.is_broken = True
        for j in range(MAX_FAILED_STEPS - 1):
            rig.add(f"{i}.{j}")
            assert rig.step()[f"{i}.{j}"].error == ENGINE_FAILED
        rig.runner.is_broken = False
        rig.runner.guilty = {"bad": RuntimeError()}
        rig.add("bad")
        output = rig.step()["bad"]
        assert (output.error, output.is_retryable) == (FAILED, False)


def test_a_fatal_step_loses_no_ready_output():
    rig = Rig()
    rig.add("empty", max_tokens=0)
    rig.add("a")
    rig.runner.failures.append(torch.AcceleratorError("lost", 700))
    with pytest.raises(torch.AcceleratorError):
        rig.step()
    outputs = {o.request_id: (o.finish_reason, o.error) for o in rig.engine.fail_all("over")}
    assert outputs == {"empty": ("length", None), "a": (None, "over")}


def test_a_row_of_nan_fails_only_its_request():
    rig = Rig()
    rig.runner.failed_rows.add("bad")
    rig.add("bad", prompt=range(10))
    rig.add("good", b"good", max_tokens=4)
    outputs = rig.step()
    assert outputs["bad"].error == LOGITS_NOT_FINITE
    assert outputs["good"].error is None
    assert rig.run()["good"].text == "ood"
    assert rig.engine.stats().num_failed_steps == 0


def test_nan_drops_and_clears_only_the_blocks_that_contain_it():
    rig = Rig()
    rig.add("first", prompt=range(10), max_tokens=1)
    rig.run()
    rig.runner.failed_rows.add("bad")
    rig.add("bad", prompt=range(16))
    rig.step()
    assert len(rig.runner.cleared) == 2
    assert not rig.runner.nan_blocks
    rig.add("next", prompt=range(16), max_tokens=1)
    assert rig.run()["next"].last.num_cached_tokens == 8


def test_a_sequence_that_shares_a_block_of_nan_is_recomputed():
    rig = Rig()
    rig.runner.failed_rows.add("bad")
    rig.add("bad", prompt=range(10))
    rig.add("good", b"good", prompt=[*range(8), 99, 98, 97], max_tokens=4)
    answers = rig.run()
    assert answers["bad"].last.error == LOGITS_NOT_FINITE
    assert answers["good"].text == "good"
    assert rig.engine.stats().num_preemptions == 1


def test_a_row_with_no_allowed_token_touches_no_cache():
    rig = Rig()
    rig.runner.masked_rows.add("bad")
    rig.add("bad", prompt=range(10))
    output = rig.step()["bad"]
    assert (output.error, output.is_invalid) == (NOTHING_ALLOWED, True)
    assert rig.runner.cleared == []
    rig.add("next", prompt=range(10), max_tokens=1)
    assert rig.run()["next"].last.num_cached_tokens == 8


def test_a_detokenizer_error_fails_only_its_request():
    rig = Rig()
    rig.add("bad", [*b"a", POISON], max_tokens=4)
    rig.add("good", b"good", max_tokens=4)
    rig.step()
    outputs = rig.step()
    assert (outputs["bad"].error, outputs["bad"].finish_reason) == (failed_with(ValueError()), None)
    assert "bad" not in rig.run()
    assert rig.num_used_blocks == 0


def test_a_prompt_that_the_detokenizer_refuses_fails_only_its_request():
    rig = Rig()
    rig.add("good", b"good", max_tokens=4)
    rig.add("bad", prompt=[POISON])
    outputs = rig.step()
    assert outputs["bad"].error == failed_with(ValueError())
    assert rig.run()["good"].last.finish_reason == "length"
