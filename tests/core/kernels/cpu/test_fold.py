"""Folding two results of attention rounds in one way, also if no operators become an FMA."""

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from core.kernels.cpu.compiler import FLAGS, SOURCES, find_compiler
from core.kernels.cpu.library import kernels
from tests.support.each import each

pytestmark = pytest.mark.skipif(kernels() is None, reason="no C++ compiler")

CPU = Path("/proc/cpuinfo")

PROGRAM = Path(__file__).with_name("fold.cpp")

Floats = npt.NDArray[np.float32]


def folded(library: Path, acc: Floats, part: Floats, shares: tuple[float, float]) -> Floats:
    found = acc.copy()
    pointers = [x.ctypes.data_as(ctypes.c_void_p) for x in (found, part)]
    count = ctypes.c_int64(len(acc))
    ctypes.CDLL(str(library)).fold_values(*pointers, count, *map(ctypes.c_float, shares))
    return found


@pytest.mark.skipif(
    not CPU.is_file() or " fma " not in CPU.read_text("utf-8"), reason="needs FMA of x86-64"
)
@each("width", (4, 8, 16))
def test_the_product_of_what_was_before_is_not_rounded(width: int, tmp_path: Path) -> None:
    """The share of the other part may have a unit of int8 values as a factor."""
    library = tmp_path / f"fold{width}.so"
    flags = [*FLAGS, "-march=haswell", "-O1", "-ffp-contract=off", f"-DROSE_WIDTH={width}"]
    headers = [f"-I{path}" for path in SOURCES.iterdir()]
    command = [
        find_compiler(),
        *flags,
        *headers,
        "-shared",
        str(PROGRAM),
    ]
    subprocess.run([*command, "-o", str(library)], check=True)  # noqa: S603 - ours
    random = np.random.default_rng(0)
    acc, part = random.normal(size=(2, 4096)).astype(np.float32)
    shares = float(np.float32(0.3)), float(np.float32(0.0123))
    rounded = (part * np.float32(shares[1])).astype(np.float64)
    expected = (acc.astype(np.float64) * shares[0] + rounded).astype(np.float32)
    assert np.array_equal(folded(library, acc, part, shares), expected)
