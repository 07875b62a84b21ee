"""A tenant whose tokens cost more than its share waits until the others have had theirs."""

from __future__ import annotations

import pytest

from core.scheduler.debts import Debts
from core.scheduler.prompt_rows import PromptRows
from core.sequence import Status
from tests.support.steps import Steps

SHARES, DEMANDS = {"a": 10, "b": 10}, {"a": 500, "b": 400}


def owing(*parts: int) -> Debts:
    """Debts in which ``a`` got these parts of steps, with a share of 10 each."""
    debts = Debts()
    debts.keep(SHARES)
    for num_rows in parts:
        debts.count("a", num_rows, 10)
    return debts


def test_a_tenant_waits_until_the_others_have_had_what_it_owes():
    debts = owing(55)
    for _ in range(2):
        assert debts.waiting_out(SHARES, DEMANDS) == {"a"}
        debts.pay(["a"], 20)
    assert debts.waiting_out(SHARES, DEMANDS) == set()


def test_small_debts_add_up_and_a_smaller_part_pays_them_back():
    assert owing(16, 4, 19).waiting_out(SHARES, DEMANDS) == set(), "it owes 9"
    assert owing(16, 4, 19, 11).waiting_out(SHARES, DEMANDS) == {"a"}


def test_it_waits_for_none_that_gets_all_it_needs():
    assert owing(100).waiting_out({"a": 12, "b": 8}, {"a": 500, "b": 8}) == set()


def test_if_all_owe_none_waits():
    debts = owing(100)
    debts.count("b", 100, 10)
    assert debts.waiting_out(SHARES, DEMANDS) == set()


@pytest.mark.parametrize("meanwhile", [{"a": 0}, {"b": 0, "c": 0}])
def test_a_debt_is_forgotten_with_the_prompts_that_it_is_owed_to_or_made_by(meanwhile):
    debts = owing(100)
    debts.keep(meanwhile)
    debts.keep(SHARES)
    assert debts.waiting_out(SHARES, DEMANDS) == set()


KEYS_PER_ROW, BLOCK = 300, 16


@pytest.mark.parametrize("num_tokens", [3000, 12000])
@pytest.mark.parametrize("num_others", [1, 3])
def test_a_prompt_with_a_long_cached_beginning_takes_no_more_than_the_share_of_its_tenant(
    num_others, num_tokens
):
    """Two of its tokens, which a step has at least, cost 22 or 82 rows. A share is 16."""
    steps = Steps(
        num_blocks=2000,
        block_size=BLOCK,
        max_num_seqs=16,
        max_num_batched_tokens=512,
        prefill_chunk_size=BLOCK * (num_others + 1),
        max_step_seconds=0.1,
        keys_per_row=KEYS_PER_ROW,
    )
    document = range(num_tokens)
    first = steps.add(document, "document", max_tokens=1)
    while first.status is not Status.FINISHED:
        steps.step()
    steps.add(range(200_000, 200_004), "stream", max_tokens=900)
    for _ in range(3):
        steps.step()
        steps.scheduler.observe(1, 1, 0.005)
    prompts = {"asked": steps.add([*document, *range(300_000, 300_150)], "asked", tenant="asks")}
    for i in range(num_others):
        start = 400_000 + 10_000 * i
        prompts[f"{i}"] = steps.add(range(start, start + 3000), f"{i}", tenant=f"{i}")
    rows, used = PromptRows(KEYS_PER_ROW), dict.fromkeys(prompts, 0)
    while all(s.num_output_tokens == 0 for s in prompts.values()):
        plan, cost = steps.step(), 0
        for name in prompts.keys() & plan.keys():
            part = rows.of(prompts[name].num_computed_tokens - plan[name], plan[name])
            used[name] += part
            cost += part
        seconds = 0.005 + 0.0005 * cost
        steps.scheduler.observe(sum(plan.values()), len(plan), seconds, cost * KEYS_PER_ROW)
    assert max(used.values()) < 1.4 * min(used.values()), used
