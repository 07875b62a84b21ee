"""The module of a frame without a search through all modules."""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
from types import FunctionType

from core.quick_frames import quick_frames


def test_it_finds_the_module_that_python_finds(monkeypatch) -> None:
    frame = sys._getframe()
    expected = inspect.getmodule(frame)
    looked_at = []
    monkeypatch.setattr(os.path, "realpath", looked_at.append)
    with quick_frames():
        assert inspect.getmodule(frame) is expected is sys.modules[__name__]
    assert looked_at == []


def test_a_frame_of_no_module_and_other_objects_are_left_to_python() -> None:
    code = compile("import sys; frame = sys._getframe()", "nowhere.py", "exec")
    names: dict[str, object] = {"__name__": "no.such.module"}
    FunctionType(code, names)()
    found = {}
    for where in ("quick", "original"):
        with quick_frames() if where == "quick" else contextlib.nullcontext():
            found[where] = [inspect.getmodule(names["frame"]), inspect.getmodule(quick_frames)]
    assert found["quick"] == found["original"] == [None, sys.modules["core.quick_frames"]]


def test_the_original_is_back_afterwards() -> None:
    original = inspect.getmodule
    with quick_frames():
        assert inspect.getmodule is not original
    assert inspect.getmodule is original
