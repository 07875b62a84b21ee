"""Triton's compiler and assembler accept every kernel, without a GPU.

The interpreter does not check the compiler's rules of types and shapes, so a kernel that it runs
may not compile. Each target is a process of its own, without the interpreter.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

from tests.support.triton_compiler import SHARED_MEMORY

ROOT = Path(__file__).parents[4]


@pytest.mark.slow
@pytest.mark.parametrize("capability", [90])
def test_every_kernel_compiles(capability: int, tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "TRITON_CACHE_DIR": str(tmp_path),
        "TRITON_INTERPRET": "0",
    }
    done = subprocess.run(  # noqa: S603 - our own script
        [sys.executable, "-m", "tests.support.triton_compiler", str(capability)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    compiled = json.loads(done.stdout.splitlines()[-1])
    names = {name for name, _ in compiled}
    attention = {"_write_kernel", "_decode_kernel", "_merge_kernel", "_chunk_kernel"}
    assert names == {*attention, "_draw_kernel", "_quantised_kernel"}
    for name, shared in compiled:
        assert shared <= SHARED_MEMORY[capability], name
