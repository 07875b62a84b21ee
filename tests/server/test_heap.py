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


def test_what_was_imported_is_never_looked_at_again():
    imported = [[] for _ in range(1000)]
    num_frozen = gc.get_freeze_count()
    heap.keep()
    assert gc.get_freeze_count() >= num_frozen + len(imported)
    assert not any(found is imported for found in gc.get_objects())
