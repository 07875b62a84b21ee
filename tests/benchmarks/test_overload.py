"""What of a peak's goodput an overload keeps, and of the processors that its client left."""

from benchmarks.overload import Goodput


def test_a_client_that_takes_a_processor_leaves_half_of_two():
    peak = Goodput(num_good=200, seconds=10, client=0, num_processors=2)
    overload = Goodput(num_good=100, seconds=10, client=10, num_processors=2)
    assert (peak.per_second, peak.per_processor_second) == (20, 10)
    assert (overload.per_second, overload.per_processor_second) == (10, 10)
    assert overload.kept(peak) == (
        "overload keeps 50% of the goodput, 100% per second of processor time that the client left"
    )


def test_what_refusals_cost_the_server_is_missing():
    peak = Goodput(num_good=190, seconds=10, client=1, num_processors=2)
    overload = Goodput(num_good=72, seconds=10, client=4, num_processors=2)
    assert "keeps 38% of the goodput, 45% per second" in overload.kept(peak)
