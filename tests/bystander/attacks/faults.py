"""Requests whose steps fail, on a server whose runner fails on demand."""

from __future__ import annotations

from compat_tests.support.faults import FAIL_AT_ONCE, FAIL_MIDWAY, NO_NUMBERS
from tests.bystander.arena import CHAT, Arena, attack


@attack("steps that fail, at the prompt and midway, and NaN logits", is_faulty=True)
def failing_steps(arena: Arena) -> None:
    arena.may_fail = True
    seeds = [FAIL_AT_ONCE, FAIL_MIDWAY, NO_NUMBERS] * arena.amount(20)

    def send(seed: int) -> None:
        arena.post(CHAT, arena.chat(seed=seed, ignore_eos=True, stream=seed == FAIL_MIDWAY))

    arena.together(send, seeds, width=4)
