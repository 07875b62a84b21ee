"""Watched: what it leaves behind."""

import contextlib
import gc
import weakref

import pytest

from server.admission.deadline import Watched

pytestmark = pytest.mark.anyio


async def test_a_failure_is_freed_at_once(request):
    """Its traceback has the frames of the application, and they the body of the request."""
    left = []

    class Failed(Exception):
        def __init__(self):
            left.append(weakref.ref(self))

    async def app(scope, receive, send):
        raise Failed

    async def receive():
        raise AssertionError("nothing is read")

    request.addfinalizer(gc.enable)
    gc.disable()
    with contextlib.suppress(Failed):
        await Watched(receive).run(app, {}, receive)
    assert left[0]() is None
