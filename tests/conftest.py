"""What every test shares."""

import os
from importlib.metadata import PackageNotFoundError, version

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # tiny models: threads only wait for each other
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch

if not torch.cuda.is_available():  # kernels are interpreted; Triton reads this when imported
    os.environ.setdefault("TRITON_INTERPRET", "1")


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


_mend_interpreter()


def pytest_collection_modifyitems(items) -> None:
    """Mark the tests that run Triton's interpreter, which is slow: ``make check`` skips them."""
    for item in items:
        is_named = "triton" in item.path.name or "triton" in item.name
        if is_named or hasattr(getattr(item, "module", None), "IS_INTERPRETED"):
            item.add_marker("triton")
