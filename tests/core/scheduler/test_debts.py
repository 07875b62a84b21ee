"""A tenant whose tokens cost more than its share waits until the others have had theirs."""

from __future__ import annotations

import pytest

from core.scheduler.debts import Debts
from core.scheduler.prompt_rows import PromptRows
from core.state.sequence import Status
from tests.support.steps import Steps

DEMANDS = {"a": 500, "b": 400}
BUDGET = 20


def owing(**num_rows: int) -> Debts:
    debts = Debts()
    for name, num in num_rows.items():
        debts.count(name, num, 0)
    return debts


def turns(
    debts: Debts, num_steps: int, demands: dict[str, int] = DEMANDS, num_turns: int = 2
) -> str:
    """Who is in each of these steps."""
    steps = [debts.shares(demands, BUDGET, num_turns) for _ in range(num_steps)]
    return " ".join("".join(sorted(shares)) for shares in steps)


def test_a_tenant_waits_until_the_others_have_had_what_it_owes():
    debts = owing(a=45)
    assert debts.shares(DEMANDS, BUDGET, 2) == {"b": 20}
    assert debts.shares(DEMANDS, BUDGET, 2) == {"b": 20}
    assert debts.shares(DEMANDS, BUDGET, 2) == {"b": 10, "a": 10}


def test_small_debts_add_up_and_a_smaller_part_pays_them_back():
    debts = owing(a=6)
    debts.count("a", 4, 10)
    debts.count("a", 9, 10)  # less than its share, after which nothing is owed: no credit
    for num_rows, waits in ((19, False), (11, True)):
        debts.count("a", num_rows, 10)
        assert (turns(debts, 1) == "b") == waits


def test_it_waits_for_none_that_gets_all_it_needs():
    assert turns(owing(a=100), 1, {"a": 500, "b": 8}) == "ab"


def test_with_a_turn_a_step_it_waits_for_those_whose_turn_it_is_not():
    assert turns(owing(a=50), 3, num_turns=1) == "b b a", "10 rows are less than a share"
    debts = owing(a=50)
    assert turns(debts, 3, {"b": 400, "a": 500}, num_turns=1) == "b b b"
    assert turns(debts, 3, num_turns=1) == "b b a", "it pays in its own turns only"


def test_a_debtor_pays_what_each_of_the_others_got_on_average():
    demands = {"a": 500, "b": 400, "c": 400, "d": 400, "e": 400}
    assert turns(owing(a=27), 5, demands) == "bc bc bc bc ab", "5 of 20 rows a step; turns have 10"


def test_what_all_owe_is_forgiven():
    assert turns(owing(a=100, b=80), 3) == "b ab ab"


def test_one_without_prompts_pays_too():
    debts = owing(a=85)
    assert turns(debts, 4, {"b": 400, "c": 400}) == "bc bc bc bc", "10 rows each"
    assert turns(debts, 3) == "b b ab", "20 rows each; 5 are left"
    turns(debts, 1, {"b": 400})
    debts.count("a", 9, 0)
    assert turns(debts, 1) == "ab", "they were paid, and 9 are less than a share"


def test_a_debt_is_at_most_what_few_steps_have():
    assert turns(owing(a=10_000), 9) == "b " * 8 + "ab"


def test_steps_that_have_less_now_make_a_debt_smaller():
    debts = owing(a=10_000)
    assert debts.shares(DEMANDS, 10 * BUDGET, 2) == {"b": 10 * BUDGET}
    assert turns(debts, 9) == "b " * 8 + "ab"


def test_steps_that_have_more_now_pay_it_sooner():
    debts = owing(a=7 * BUDGET)
    assert turns(debts, 1) == "b"
    assert debts.shares(DEMANDS, 10 * BUDGET, 2) == {"b": 10 * BUDGET}
    assert turns(debts, 1) == "ab"


KEYS_PER_ROW, BLOCK = 300, 16


def beside_a_stream(document: range, keys_per_row: int, chunk_size: int) -> Steps:
    """The prefix cache has the document."""
    steps = Steps(
        num_blocks=2000,
        block_size=BLOCK,
        max_num_seqs=16,
        max_num_batched_tokens=512,
        prefill_chunk_size=chunk_size,
        max_step_seconds=0.1,
        keys_per_row=keys_per_row,
    )
    first = steps.add(document, "document", max_tokens=1)
    while first.status is not Status.FINISHED:
        steps.step()
    steps.add(range(200_000, 200_004), "stream", max_tokens=900)
    for _ in range(3):
        steps.step()
        steps.scheduler.observe(1, 1, 0.005)
    return steps


def rows_until_the_first_ends(
    steps: Steps, document: range, num_others: int, keys_per_row: int
) -> dict[str, int]:
    """Rows that a question about the document and other tenants' prompts got."""
    prompts = {"asked": steps.add([*document, *range(300_000, 300_150)], "asked", tenant="asks")}
    for i in range(num_others):
        start = 400_000 + 10_000 * i
        prompts[f"{i}"] = steps.add(range(start, start + 3000), f"{i}", tenant=f"{i}")
    rows, used = PromptRows(keys_per_row), dict.fromkeys(prompts, 0)
    while all(s.num_output_tokens == 0 for s in prompts.values()):
        plan, cost = steps.step(), 0
        for name in prompts.keys() & plan.keys():
            part = rows.of(prompts[name].num_computed_tokens - plan[name], plan[name])
            used[name] += part
            cost += part
        seconds = 0.005 + 0.0005 * cost
        steps.scheduler.observe(sum(plan.values()), len(plan), seconds, cost * keys_per_row)
    return used


@pytest.mark.parametrize("num_tokens", [3000, 12000])
@pytest.mark.parametrize("num_others", [1, 3])
def test_a_prompt_with_a_long_cached_beginning_takes_no_more_than_the_share_of_its_tenant(
    num_others, num_tokens
):
    """Two of its tokens, which a step has at least, cost 22 or 82 rows. A share is 16."""
    document = range(num_tokens)
    steps = beside_a_stream(document, KEYS_PER_ROW, BLOCK * (num_others + 1))
    used = rows_until_the_first_ends(steps, document, num_others, KEYS_PER_ROW)
    assert max(used.values()) < 1.4 * min(used.values()), used


@pytest.mark.parametrize(
    ("num_others", "chunk_size"), [(1, 31), (1, 16), (3, 16), (3, 32), (5, 64)]
)
def test_nor_does_it_where_tenants_take_turns(num_others, chunk_size):
    """Two of its tokens cost 69 rows."""
    document, keys_per_row = range(2000), 60
    steps = beside_a_stream(document, keys_per_row, chunk_size)
    used = rows_until_the_first_ends(steps, document, num_others, keys_per_row)
    assert max(used.values()) < 1.4 * min(used.values()), used


def test_a_cancelled_prompt_leaves_its_debt_to_the_next_of_its_tenant():
    document = range(6000)
    steps = beside_a_stream(document, 60, 2 * BLOCK)
    asked = steps.add([*document, *range(300_000, 300_150)], "asked", tenant="asks")
    steps.add(range(400_000, 403_000), "other", tenant="other")
    assert "asked" in steps.step()
    steps.scheduler.finish(asked)
    steps.add([*document, *range(500_000, 500_150)], "again", tenant="asks")
    waited = 0
    while "again" not in steps.step():
        waited += 1
    assert waited == 9, "two tokens cost 202 rows: a turn of the other, and eight that it pays"
