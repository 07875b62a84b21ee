from __future__ import annotations

import threading

from core.observe import load_progress
from core.observe.load_progress import LoadProgress, LoadStage, reporting
from tests.support.stages_seen import StagesSeen


def test_a_load_reports_its_stages_to_its_listener_only():
    progress = LoadProgress()
    with reporting(progress):
        load_progress.begin("packing", 4)
        load_progress.advance()
        load_progress.advance(2)
        assert progress.now == LoadStage("packing", 3, 4)
        thread = threading.Thread(target=load_progress.begin, args=("of another load",))
        thread.start()
        thread.join()
    load_progress.begin("after it")
    assert progress.now == LoadStage("packing", 3, 4)


def test_without_a_listener_nothing_happens():
    load_progress.begin("packing")
    load_progress.advance()
    with load_progress.within("compiling", 3):
        load_progress.advance()
    assert load_progress.listener() is None


def test_a_stage_within_another_one_returns_to_it():
    progress = StagesSeen()
    with reporting(progress):
        load_progress.begin("loading", 9)
        load_progress.advance(2)
        with load_progress.within("compiling", 3):
            load_progress.advance()
            assert progress.now == LoadStage("compiling", 1, 3)
        assert progress.now == LoadStage("loading", 2, 9)
    assert progress.names == ["loading", "compiling"]
