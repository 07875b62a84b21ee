"""The tiles of AMX, on CPUs that have them."""

import ctypes
import subprocess
from pathlib import Path

import pytest
import torch

from benchmarks.cpu_products import multiply
from core.gguf.blocks import BLOCK_TYPES, BlockType
from core.kernels.cpu.bindings import Kernels
from core.kernels.cpu.blocks import BlockFormat, pack_blocks
from core.kernels.cpu.compiler import FLAGS, SOURCES, compiled_library, find_compiler
from core.kernels.cpu.library import kernels, load
from core.kernels.cpu.linear import Format, pack
from tests.support.each import each
from tests.support.gguf_blocks import random_matrix

CPU = Path("/proc/cpuinfo")

pytestmark = [
    pytest.mark.skipif(kernels() is None, reason="no C++ compiler"),
    pytest.mark.skipif(
        not CPU.exists() or "amx_bf16" not in CPU.read_text(), reason="no AMX that Linux reports"
    ),
]

PROGRAM = """
#include "linear_amx.h"
extern "C" __attribute__((visibility("default"))) bool configure(char* stored) {
  if (!amx::is_permitted()) return false;
  amx::Tiles tiles;
  _tile_storeconfig(stored);
  return true;
}
"""


@pytest.mark.slow
def test_the_whole_configuration_is_loaded(tmp_path: Path) -> None:
    """The intrinsics of GCC 12 let it drop all but the first bytes."""
    source, library = tmp_path / "tiles.cpp", tmp_path / "tiles.so"
    source.write_text(PROGRAM)
    command = [
        find_compiler(),
        *FLAGS,
        f"-I{SOURCES / 'simd'}",
        "-shared",
        str(source),
        "-o",
        str(library),
    ]
    subprocess.run(command, check=True)  # noqa: S603 - the developer's own compiler
    stored = ctypes.create_string_buffer(64)
    configure = ctypes.CDLL(str(library)).configure
    configure.restype = ctypes.c_bool
    if not configure(stored):
        pytest.skip("tiles are not permitted")
    row_bytes, rows = [64, 0] * 8, [16] * 8
    assert list(stored.raw) == [1, *[0] * 15, *row_bytes, *[0] * 16, *rows, *[0] * 8]


def without_tiles() -> Kernels:
    """Linux may refuse tiles to a process."""
    return load(compiled_library(more_flags=("-DROSE_REFUSE_TILES",)))


@pytest.mark.slow
def test_int8_has_the_same_bits_without_tiles() -> None:
    """Sums of integers do not depend on the instruction."""
    tiles, vectors = kernels(), without_tiles()
    assert tiles is not None
    weight, x = torch.randn(100, 1500), torch.randn(37, 1500)
    expected = multiply(pack(tiles, [weight], [None], Format.INT8), x)
    assert torch.equal(multiply(pack(vectors, [weight], [None], Format.INT8), x), expected)


@pytest.mark.slow
@each("kind", [kind for kind in BLOCK_TYPES.values() if not kind.is_plain])
def test_blocks_have_the_same_bits_without_tiles(kind: BlockType) -> None:
    tiles, vectors, fmt = kernels(), without_tiles(), BlockFormat.of(kind.code)
    assert tiles is not None
    assert fmt is not None
    matrix, x = random_matrix(kind, 100, 1024), torch.randn(300, 1024)
    found, expected = (
        multiply(pack_blocks(library, fmt, [matrix.data], 1024, [None]), x)
        for library in (tiles, vectors)
    )
    assert torch.equal(found, expected)
