"""Which models are loaded and unloaded: by hand, and under drawn events."""

import math

from hypothesis import given
from hypothesis import strategies as st

from server.router.config.policy import MemoryBudget, ModelSlot, ModelState, next_due, plan

ONE = MemoryBudget(max_loaded=1)


def slot(name, state=ModelState.UNLOADED, **fields):
    return ModelSlot(name, state=state, **fields)


def wanting(name, since=0.0, **fields):
    return slot(name, wanted_since=since, num_waiting=1, **fields)


def test_a_wanted_model_is_loaded():
    a, b = slot("a"), wanting("b")
    assert plan([a, b], ONE, 1.0) == [(ModelState.LOADING, b)]


def test_an_idle_model_makes_room_at_once():
    a, b = slot("a", ModelState.READY), wanting("b")
    assert plan([a, b], ONE, 1.0) == [(ModelState.STOPPING, a)]
    assert b.displaced == [a]


def test_a_busy_model_drains_first():
    a, b = slot("a", ModelState.READY, num_inside=1), wanting("b")
    assert plan([a, b], ONE, 1.0) == [(ModelState.DRAINING, a)]
    a.state = ModelState.DRAINING
    assert plan([a, b], ONE, 1.0) == []
    a.num_inside = 0
    assert plan([a, b], ONE, 1.0) == [(ModelState.STOPPING, a)]
    a.state = ModelState.STOPPING
    assert plan([a, b], ONE, 1.0) == []  # its memory is free only when it has exited
    a.state = ModelState.UNLOADED
    assert plan([a, b], ONE, 1.0) == [(ModelState.LOADING, b)]


def test_a_busy_model_stays_for_a_while():
    room = MemoryBudget(max_loaded=1, min_loaded=5.0)
    a, b = slot("a", ModelState.READY, num_inside=1, ready_since=10.0), wanting("b")
    assert plan([a, b], room, 12.0) == []
    assert next_due([a, b], room, 12.0) == 15.0
    assert plan([a, b], room, 15.0) == [(ModelState.DRAINING, a)]


def test_a_draining_model_is_kept_if_nobody_wants_its_place_any_more():
    a, b = slot("a", ModelState.DRAINING, num_inside=1), slot("b")
    assert plan([a, b], ONE, 1.0) == [(ModelState.READY, a)]


def test_an_idle_model_goes_before_a_busy_one_and_the_oldest_before_others():
    room = MemoryBudget(max_loaded=3)
    busy = slot("busy", ModelState.READY, num_inside=1, last_used=0.0)
    old, new = (
        slot("old", ModelState.READY, last_used=1.0),
        slot("new", ModelState.READY, last_used=2.0),
    )
    assert plan([new, busy, old, wanting("d")], room, 9.0) == [(ModelState.STOPPING, old)]


def test_memory_is_counted_and_several_models_may_have_to_go():
    room = MemoryBudget(memory=10)
    a, b = (
        slot("a", ModelState.READY, memory=4),
        slot("b", ModelState.READY, memory=4, last_used=1.0),
    )
    big = wanting("big", memory=9)
    assert plan([a, b, big], room, 2.0) == [(ModelState.STOPPING, a), (ModelState.STOPPING, b)]
    small = wanting("small", memory=2)
    assert plan([a, b, small], room, 2.0) == [(ModelState.LOADING, small)]


def test_nobody_overtakes_one_that_waits_for_room():
    room = MemoryBudget(memory=10)
    a = slot("a", ModelState.READY, memory=8, num_inside=1)
    big, small = wanting("big", 0.0, memory=9), wanting("small", 1.0, memory=1)
    assert plan([a, big, small], room, 2.0) == [(ModelState.DRAINING, a)]


def test_a_model_that_failed_pauses_and_one_that_nobody_waits_for_displaces_nothing():
    a, b = slot("a", ModelState.READY), wanting("b", retry_at=5.0)
    assert plan([a, b], ONE, 1.0) == []
    assert next_due([a, b], ONE, 1.0) == 5.0
    back = slot("back", wanted_since=0.0)
    assert plan([a, back], ONE, 1.0) == []
    assert back.wanted_since is None


def test_an_idle_model_is_unloaded_after_its_time():
    a = slot("a", ModelState.READY, keep_alive=10.0, last_used=1.0)
    assert plan([a], MemoryBudget(), 10.5) == []
    assert next_due([a], MemoryBudget(), 10.5) == 11.0
    assert plan([a], MemoryBudget(), 11.0) == [(ModelState.STOPPING, a)]
    forever = slot("b", ModelState.READY, keep_alive=math.inf)
    assert plan([forever], MemoryBudget(), 1e9) == []
    assert next_due([forever], MemoryBudget(), 1.0) is None


def test_the_plan_and_its_timer_agree_on_every_number():
    """A sum and a difference of floats may differ: then the timer would be the last one."""
    for last_used in (0.1, 0.3, 1234.567, 98765.4321):
        for keep_alive in (0.1, 0.2, 0.7):
            a = slot("a", ModelState.READY, keep_alive=keep_alive, last_used=last_used)
            due = next_due([a], MemoryBudget(), last_used)
            assert plan([a], MemoryBudget(), due) == [(ModelState.STOPPING, a)]
            busy = slot("a", ModelState.READY, num_inside=1, ready_since=last_used)
            slots, room = [busy, wanting("b")], MemoryBudget(max_loaded=1, min_loaded=keep_alive)
            assert plan(slots, room, next_due(slots, room, last_used)) == [
                (ModelState.DRAINING, busy)
            ]


class World:
    """Does what the policy says, as the fleet does, and checks its promises at every step."""

    def __init__(self, room, memories):
        self.room = room
        self.now = 0.0
        self.slots = [ModelSlot(f"m{i}", memory=m, keep_alive=20.0) for i, m in enumerate(memories)]

    def settle(self):
        for _ in range(100):
            actions = plan(self.slots, self.room, self.now)
            for state, slot in actions:
                self.act(state, slot)
            self.check()
            if not actions:
                return
        raise AssertionError("the plan does not settle")

    def act(self, state, slot):
        match state:
            case ModelState.LOADING:
                assert slot.state is ModelState.UNLOADED
                slot.state = ModelState.LOADING
            case ModelState.DRAINING:
                assert slot.state is ModelState.READY
                slot.state = ModelState.DRAINING
            case ModelState.READY:
                assert slot.state is ModelState.DRAINING
                self.admit(slot)
            case ModelState.STOPPING:
                assert slot.num_inside == 0, "a model was unloaded under its streams"
                slot.state = ModelState.STOPPING

    def check(self):
        held = [slot for slot in self.slots if slot.is_held]
        assert self.room.fits(held), [(slot.name, slot.state) for slot in held]

    def admit(self, slot):
        slot.state, slot.wanted_since = ModelState.READY, None
        slot.num_inside += slot.num_waiting
        slot.num_waiting = 0

    def event(self, kind, slot):
        self.now += 1.0
        if kind == "ask" and slot.state is ModelState.READY:
            slot.num_inside += 1
            slot.last_used = self.now
        elif kind == "ask":
            slot.num_waiting += 1
            if slot.wanted_since is None:
                slot.wanted_since = self.now
        elif kind == "end" and slot.num_inside:
            slot.num_inside -= 1
        elif kind == "leave" and slot.num_waiting:
            slot.num_waiting -= 1
            if not slot.num_waiting:
                slot.wanted_since = None
        elif kind == "loaded" and slot.state is ModelState.LOADING:
            slot.ready_since = slot.last_used = self.now
            slot.displaced.clear()
            self.admit(slot)
        elif kind == "failed" and slot.state is ModelState.LOADING:
            slot.state, slot.wanted_since, slot.num_waiting = ModelState.UNLOADED, None, 0
            slot.retry_at = self.now + 3
            for other in slot.displaced:
                if other.wanted_since is None:
                    other.wanted_since = self.now
            slot.displaced.clear()
        elif kind == "exited" and slot.state is ModelState.STOPPING:
            slot.state = ModelState.UNLOADED
            if slot.num_waiting and slot.wanted_since is None:
                slot.wanted_since = self.now
        self.settle()


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["ask", "ask", "end", "end", "leave", "loaded", "failed", "exited"]),
        st.integers(0, 3),
    ),
    max_size=80,
)


@given(EVENTS, st.integers(1, 3), st.sampled_from([math.inf, 4, 6]), st.sampled_from([0.0, 3.0]))
def test_under_any_events_nothing_is_unloaded_under_its_streams(
    events, max_loaded, memory, min_loaded
):
    room = MemoryBudget(max_loaded=max_loaded, memory=memory, min_loaded=min_loaded)
    world = World(room, [1, 2, 3, 4])
    for kind, number in events:
        world.event(kind, world.slots[number])
    # If every stream ends, every process starts and stops, everyone who waits gets in.
    for _ in range(200):
        for slot in world.slots:
            for kind in ("end", "loaded", "exited"):
                world.event(kind, slot)
        if not any(slot.num_waiting or slot.num_inside for slot in world.slots):
            break
    assert not any(slot.num_waiting for slot in world.slots)
