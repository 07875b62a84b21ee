from hypothesis import given
from hypothesis import strategies as st

from server.bridge.bridge import ChoiceShare, further_choices


def test_one_response_leaves_a_share_of_the_batch():
    for max_num_seqs in range(2, 300):
        assert 1 + further_choices(max_num_seqs) < max_num_seqs
        assert 1 + further_choices(max_num_seqs) >= max_num_seqs * 3 // 4 - 1
    assert further_choices(1) == 0


class Line:
    def __init__(self, limit):
        self.submitted = []
        self.choices = ChoiceShare(limit, self.submitted.append)

    def enter(self, name, num_choices):
        self.choices.enter(name, [f"{name}{i}" for i in range(num_choices)])


def test_every_first_choice_passes():
    line = Line(2)
    line.enter("a", 500)
    for name in "bcd":
        line.enter(name, 3)
    line.enter("e", 1)
    assert line.submitted == ["a0", "a1", "a2", "b0", "c0", "d0", "e0"]


def test_responses_share_what_is_left():
    line = Line(2)
    for name in "ab":
        line.enter(name, 10)
    assert line.submitted == ["a0", "a1", "a2", "b0"]
    line.choices.end("a")
    line.choices.end("a")
    line.choices.end("b")
    assert line.submitted[4:] == ["a3", "b1", "a4"]


def test_what_has_left_is_not_submitted():
    line = Line(1)
    line.enter("a", 10)
    line.enter("b", 3)
    line.choices.leave("a")
    line.choices.leave("a")
    assert line.submitted == ["a0", "a1", "b0", "b1"]
    line.choices.end("a")  # an output that was on its way
    assert len(line.submitted) == 4


moves = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 8)), max_size=60)


@given(st.integers(0, 6), moves)
def test_every_choice_is_submitted_once_and_never_too_many_run(limit, moves):
    line = Line(limit)
    sizes, ended, names = {}, {}, iter(range(10**6))
    open_ = []

    def running(name):
        return sum(s.startswith(f"{name}-") for s in line.submitted) - ended[name]

    def check():
        beyond = sum(max(running(name) - 1, 0) for name in open_)
        assert beyond <= limit
        waiting = any(running(n) + ended[n] < sizes[n] for n in open_)
        assert beyond == limit or not waiting  # work conserving
        for name in open_:
            assert running(name) >= (ended[name] < sizes[name])

    for letter, size in moves:
        if size:
            name = f"{letter}{next(names)}"
            sizes[name], ended[name] = size, 0
            open_.append(name)
            line.choices.enter(name, [f"{name}-{i}" for i in range(size)])
        elif open_:
            name = open_[0]
            if ended[name] < sizes[name]:
                ended[name] += 1
                line.choices.end(name)
            else:
                line.choices.leave(open_.pop(0))
        check()
    while open_:
        name = open_[-1]
        if ended[name] < sizes[name]:
            ended[name] += 1
            line.choices.end(name)
        else:
            line.choices.leave(open_.pop())
        check()
    assert sorted(line.submitted) == sorted(
        f"{n}-{i}" for n, size in sizes.items() for i in range(size)
    )
