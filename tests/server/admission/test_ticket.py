import pytest

from core.contract.errors import InvalidRequest, QueueFull
from server.admission.admission import Admission, Ticket
from server.settings.settings import Settings
from server.tenants.tenant import Tenant

LIMITS = {
    "choices": 4,
    "body_bytes": 100,
    "memory": 100,
    "prompt_tokens": 100,
    "output_tokens": 100,
    "compilations": 1,
}


class Stream:
    num_output_tokens = 7
    num_closed = 0

    def __init__(self, num_requests=1):
        self.num_requests = num_requests

    def __len__(self):
        return self.num_requests

    def close(self):
        self.num_closed += 1


@pytest.fixture
def admission():
    admission = Admission(Settings())
    for name, limit in LIMITS.items():
        getattr(admission, name).limit = limit
    return admission


def held(admission):
    return [getattr(admission, name).held for name in LIMITS]


def ticket(admission, **options):
    return Ticket(admission, Tenant("a"), **options)


def test_an_answer_that_is_never_sent_is_closed_with_the_ticket(admission):
    stream = Stream()
    with ticket(admission) as one:
        one.attach(stream, lambda _error: None)
    assert stream.num_closed == 1


def test_a_refused_growth_keeps_what_is_held_until_the_end(admission):
    with ticket(admission, declared_bytes=60) as one, ticket(admission) as two:
        one.translated(num_prompt_tokens=50, num_output_tokens=90)
        with pytest.raises(QueueFull):
            two.translated(num_prompt_tokens=40, num_output_tokens=20)
        assert held(admission) == [2, 60, 0, 90, 90, 0]
    assert held(admission) == [0] * 6
    assert admission.num_refused == 1


def test_the_last_choice_that_ends_returns_the_tokens_and_the_answer_keeps_a_place(admission):
    with ticket(admission, declared_bytes=60) as one:
        one.decoded(70)
        one.chosen(2)
        one.translated(num_prompt_tokens=50, num_output_tokens=90)
        one.attach(Stream(2), lambda _error: None)
        one.choice_ended()
        assert held(admission) == [1, 0, 70, 50, 90, 0]
        one.choice_ended()
        assert held(admission) == [1, 0, 70, 0, 0, 0]
    assert held(admission) == [0] * 6


def test_texts_in_one_place_return_their_tokens_with_the_last_one(admission):
    with ticket(admission) as one:
        one.chosen(1)
        one.translated(num_prompt_tokens=50, num_output_tokens=3)
        one.attach(Stream(3), lambda _error: None)
        for _ in range(2):
            one.choice_ended()
            assert held(admission) == [1, 0, 0, 50, 3, 0]
        one.choice_ended()
        assert held(admission) == [1, 0, 0, 0, 0, 0]
    assert held(admission) == [0] * 6


def test_a_stream_that_cannot_be_closed_keeps_nothing(admission):
    def close():
        raise RuntimeError

    stream = Stream()
    stream.close = close
    one = ticket(admission, declared_bytes=60)
    with pytest.raises(RuntimeError), one:
        one.attach(stream, lambda _error: None)
    assert held(admission) == [0] * 6
    assert admission.num_tickets == 0


def test_a_ticket_that_is_refused_holds_nothing(admission):
    with ticket(admission, declared_bytes=60):
        with pytest.raises(QueueFull):
            ticket(admission, declared_bytes=60)
        assert held(admission) == [1, 60, 0, 0, 0, 0]
        assert admission.num_tickets == 1
    assert held(admission) == [0] * 6


def test_compilations_are_bounded(admission):
    with ticket(admission) as one, ticket(admission) as two:
        with one.compiling(), pytest.raises(QueueFull), two.compiling():
            pass
        with two.compiling():
            assert admission.compilations.held == 1
    assert held(admission) == [0] * 6


def test_objects_of_a_body_are_held_to_the_end_of_the_answer(admission):
    with ticket(admission, declared_bytes=60) as one, ticket(admission) as two:
        one.decoded(80)
        assert held(admission)[1:3] == [0, 80]
        with pytest.raises(QueueFull):
            two.decoded(30)
        one.stored_found(10)
        one.translated(num_prompt_tokens=1, num_output_tokens=1)
        one.attach(Stream(), lambda _error: None)
        one.choice_ended()
        assert held(admission)[1:3] == [0, 90]
        with pytest.raises(InvalidRequest, match=r"\b101 bytes.*\b100\b"):
            two.decoded(101)
    assert held(admission) == [0] * 6


def test_a_whole_answer_is_never_refused_and_refuses_later_bodies(admission):
    with ticket(admission) as one, ticket(admission) as two, ticket(admission) as three:
        one.rendered(90)
        two.rendered(10**9)
        assert admission.memory.held == 90 + 10**9
        with pytest.raises(QueueFull):
            three.decoded(1)
    assert held(admission) == [0] * 6
    with ticket(admission) as four:
        four.decoded(100)
