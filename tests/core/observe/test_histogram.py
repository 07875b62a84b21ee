import pytest

from core.observe.histogram import GAP_SECONDS, POWERS, SECONDS, Histogram


def test_a_value_counts_up_to_its_bound_as_prometheus_reads_it():
    histogram = Histogram((1.0, 2.0))
    for value in (0.0, 1.0, 1.5, 2.0, 2.1, 100.0):
        histogram.observe(value)
    read = histogram.read()
    assert read.counts == (2, 2, 2)
    assert read.num_values == 6
    assert read.total == pytest.approx(106.6)


def test_a_value_may_occur_many_times():
    histogram = Histogram((1.0, 2.0))
    histogram.observe(1.5, 7)
    histogram.observe(3.0, 0)
    read = histogram.read()
    assert (read.counts, read.total) == ((0, 7, 0), 10.5)


def test_what_was_read_does_not_change():
    histogram = Histogram((1.0,))
    before = histogram.read()
    histogram.observe(0.5)
    assert before.counts == (0, 0)
    assert histogram.read().counts == (1, 0)


def test_counts_of_equal_bounds_add_up():
    one, other = Histogram((1.0,)), Histogram((1.0,))
    one.observe(0.5)
    other.observe(2.0, 3)
    both = one.read() + other.read()
    assert (both.bounds, both.counts, both.total) == ((1.0,), (1, 3), 6.5)


@pytest.mark.parametrize("bounds", [SECONDS, GAP_SECONDS, POWERS])
def test_bounds_ascend(bounds):
    assert list(bounds) == sorted(set(bounds))
