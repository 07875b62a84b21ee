"""What every test shares."""

import atexit
import gc
import os
import signal
from collections import Counter
from importlib.metadata import PackageNotFoundError, version

import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # tiny models: threads only wait for each other
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

RARELY = (50_000, 50, 100)
"""Thresholds of the garbage collector: what tests leave behind is small beside torch."""


def pytest_configure(config) -> None:
    """Prepare a process that runs tests. The one that only hands them out imports no torch."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # tests end what they started
    if hasattr(config, "workerinput") or not getattr(config.option, "numprocesses", None):
        _choose_interpreter()
        if hasattr(config, "workerinput"):
            config.pluginmanager.register(LongFilesFirst())
        gc.set_threshold(*RARELY)
        _allow_slow_examples()
        atexit.register(gc.unfreeze)  # the last collection frees what libraries count at exit


@pytest.fixture(scope="module", autouse=True)
def _frozen_heap():
    """Exclude what was imported so far from garbage collections, also those that tests ask for."""
    gc.freeze()


def _allow_slow_examples() -> None:
    """Put no limit of time on the examples of a property: on a busy machine any is slow."""
    settings.register_profile(
        "roseinfer", deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("roseinfer")


def _choose_interpreter() -> None:
    """Run Triton's kernels in its interpreter where there is no GPU; Triton reads it at import."""
    import torch  # noqa: PLC0415 - slow to import

    if not torch.cuda.is_available():
        os.environ.setdefault("TRITON_INTERPRET", "1")
    _mend_interpreter()


def _mend_interpreter() -> None:
    """Triton up to 3.6 makes indices of arrays of one element, which numpy refuses since 2.4."""
    try:
        release = tuple(map(int, version("triton").split(".")[:2]))
    except PackageNotFoundError:
        return
    if os.environ.get("TRITON_INTERPRET") != "1" or release > (3, 6):
        return
    from triton.runtime import interpreter  # noqa: PLC0415 - slow to import

    patch = interpreter._patch_lang_tensor

    def mended(tensor: type, scope: object) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda index: int(index.handle.data.item()))

    interpreter._patch_lang_tensor = mended


def pytest_collection_modifyitems(items) -> None:
    """Mark the tests that run Triton's interpreter, which is slow: ``make check`` skips them."""
    for item in items:
        is_named = "triton" in item.path.name or "triton" in item.name
        if is_named or hasattr(getattr(item, "module", None), "IS_INTERPRETED"):
            item.add_marker("triton")


class LongFilesFirst:
    """Order of files where several processes share them: none should end alone with a long one.

    ``--dist=loadfile --no-loadscope-reorder`` hands them out in the order of collection. Slow tests
    and those of server processes are the longest; of the others, files with many tests.
    """

    @pytest.hookimpl(trylast=True)  # when what is not selected is gone
    def pytest_collection_modifyitems(self, items) -> None:
        sizes = Counter(item.path for item in items)
        slow = {item.path for item in items if item.get_closest_marker("slow")}

        def place(item) -> tuple[bool, bool, int, str]:
            is_quick = "compat_tests" not in item.path.parts and item.path not in slow
            return is_quick, item.path not in slow, -sizes[item.path], str(item.path)

        items.sort(key=place)
