"""What a storm of broken requests says when something breaks."""

from __future__ import annotations

from compat_tests.support.process import ServerProcess
from tests.bystander.arena import Arena
from tests.bystander.routed import stalls_of_both
from tests.bystander.stand import Seen
from tests.bystander.storms import broken_by, report

SEEN = Seen(
    gap=0.25,
    chats=((200, 0.5), (500, 0.1)),
    healths=((200, 0.01), (0, 0.02)),
    num_events=9,
    num_changed=2,
    num_refused=0,
    cuts=("ConnectionEnded: here",),
)


def test_a_fault_has_the_answer_and_the_request() -> None:
    arena = Arena(ServerProcess.__new__(ServerProcess), 1)
    arena.note(503, "not a fault", sent=b"GET /1")
    arena.note(500, "its answer", sent=b"GET /\xff")
    assert arena.faults == ["500: its answer\nto b'GET /\\xff'"]
    text = report([*arena.faults, *broken_by(SEEN)], arena, SEEN)
    for part in (
        *("its answer", "GET /", "ConnectionEnded: here", "changed 2 times", "{503: 1, 500: 1}"),
        *("tiny chat was answered [500]", "/health was [0]", "gap 0.250 s", "tiny chat 0.500 s"),
    ):
        assert part in text, part


def test_stalls_of_a_routed_server_are_the_routers_too() -> None:
    router = {"num_busy_stalls": 1, "longest_busy_stall_ms": 300}
    server = {"num_busy_stalls": 2, "longest_busy_stall_ms": 80}
    for both in (stalls_of_both(router, server), stalls_of_both(server, router)):
        assert both == {"num_busy_stalls": 3, "longest_busy_stall_ms": 300}
