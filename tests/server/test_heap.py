import gc

from server import heap


def test_the_heap_grows_and_settles():
    usual = gc.get_threshold()
    heap.grow()
    assert gc.get_threshold()[0] == heap.START_THRESHOLD
    made_in_start_up = [[] for _ in range(1000)]
    num_frozen = gc.get_freeze_count()
    heap.settle()
    assert gc.get_threshold() == usual
    assert gc.get_freeze_count() >= num_frozen + len(made_in_start_up)
