import gc

from server import heap


def test_start_up_collects_rarely_and_its_objects_are_frozen():
    usual = gc.get_threshold()
    heap.collect_rarely()
    assert gc.get_threshold()[0] == heap.START_THRESHOLD
    made_in_start_up = [[] for _ in range(1000)]
    num_frozen = gc.get_freeze_count()
    heap.freeze()
    assert gc.get_threshold() == usual
    assert gc.get_freeze_count() >= num_frozen + len(made_in_start_up)
