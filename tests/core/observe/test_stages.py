"""Stages of a load."""

from core.observe.stages import Stages


def test_the_parts_add_up_to_the_whole(monkeypatch):
    now = iter([10.0, 11.0, 13.5, 14.0])
    monkeypatch.setattr("core.observe.stages.time.monotonic", lambda: next(now))
    stages = Stages()
    for name in ("imports", "weights", "imports"):
        stages.end(name)
    assert str(stages) == "4.0 s: imports 1.50, weights 2.50"
