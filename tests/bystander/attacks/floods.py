"""More requests than there is room for."""

from __future__ import annotations

from tests.bystander.arena import CHAT, COMPLETIONS, Arena, attack


@attack(
    "full queue and 20 prompts of 300 KB",
    may_refuse=True,
    flags=("--max-num-seqs", "8", "--max-queued-requests", "8"),
)
def full_queue(arena: Arena) -> None:
    long = arena.chat("Tell me a story.", max_tokens=600, ignore_eos=True)
    large = arena.chat("lorem ipsum dolor sit amet " * 11_000)

    def send(number: int) -> None:
        arena.post(CHAT, long if number < 40 else large, timeout=60)

    arena.together(send, range(60), width=60)


@attack(
    "burst of 1,500 tiny requests under 1,024 descriptors",
    may_refuse=True,
    num_descriptors=1024,
    is_flood=True,
)
def burst(arena: Arena) -> None:
    body = arena.chat("hi", max_tokens=1)
    arena.all_at_once([arena.whole(CHAT, body)] * 1500, wait=60)
    if arena.statuses[0]:
        arena.fault(f"{arena.statuses[0]} requests were never answered")


@attack("burst of 200 tiny requests", is_quick=True, may_refuse=True, is_flood=True)
def small_burst(arena: Arena) -> None:
    body = arena.chat("hi", max_tokens=1)
    arena.together(lambda _: arena.post(CHAT, body, timeout=60), range(200), width=50)
    if arena.statuses[0]:
        arena.fault(f"{arena.statuses[0]} requests were never answered")


@attack("500 streams that leave at once", may_refuse=True)
def leavers(arena: Arena) -> None:
    body = arena.chat(max_tokens=1500, ignore_eos=True, stream=True)
    arena.together(
        lambda number: arena.leave(CHAT, body, after=0.01 * (number % 20), reset=number % 2 == 0),
        range(arena.amount(500)),
        width=64,
    )


@attack("errors without pause: 2,000 refused requests")
def refusals(arena: Arena) -> None:
    body = arena.completion(temperature=9)
    arena.together(lambda _: arena.post(COMPLETIONS, body), range(arena.amount(2000)), width=16)
