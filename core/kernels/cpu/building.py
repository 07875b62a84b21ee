"""Build a library from C++ sources with a compiler of this machine."""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from core.observe import load_progress

logger = logging.getLogger("roseinfer.core")

TIMEOUT = 300.0
"""Seconds after which a running compiler is stopped."""

COMMON = "common.h"
"""The header that is compiled once for all sources, if it is beside them."""

LONGEST = ("attention", "linear", "block_wide", "block_narrow")
"""Sources that take longest, which therefore begin first."""

_STAGE = "compiling kernels"


class KernelsUnavailable(Exception):
    """The kernels cannot be compiled or loaded. The message gives the reason in one line."""


def build(compiler: str, flags: Sequence[str], sources: Sequence[Path], folder: Path) -> Path:
    """Compile the sources in parallel and link them in ``folder``; returns the library.

    The OpenMP runtime is not linked: the process uses torch's and must not load a second one.
    Raises KernelsUnavailable, and OSError if ``folder`` cannot be written to.
    """
    sources = sorted(sources, key=lambda source: (source.stem not in LONGEST, source.stem))
    with load_progress.within(_STAGE, len(sources)):
        objects = _compile([compiler, *flags], sources, folder)
    library = folder / "kernels.so"
    _run([compiler, "-shared", *map(str, objects), "-o", str(library)])
    if not library.is_file():
        raise KernelsUnavailable(f"{compiler} made no library")
    return library


def _compile(command: list[str], sources: Sequence[Path], folder: Path) -> list[Path]:
    """Compile the sources, with a header that all of them get if there is one; returns objects.

    It is compiled first: else each source would read the compiler's intrinsics and the standard
    library anew. What cannot be compiled with it is compiled without.
    """
    header = sources[0].parent / COMMON
    if not header.is_file():
        return _compile_each(command, sources, folder)
    included = folder / "precompiled.h"
    included.write_text(f'#include "{header}"\n')
    # GCC and clang take the file of this name instead of the header that the command line names
    precompiled = folder / "precompiled.h.gch"
    including = [*command, "-include", str(included)]
    try:
        _run([*command, "-x", "c++-header", str(included), "-o", str(precompiled)])
        return _compile_each(including, sources, folder)
    except KernelsUnavailable as error:
        # the folder may be too small for it, GCC has to map it to the address that it was written
        # for, and one that does not fit is an error for clang
        logger.info("compiling the kernels without a precompiled header: %s", error)
        precompiled.unlink(missing_ok=True)
    return _compile_each(including, sources, folder)


def _compile_each(command: list[str], sources: Sequence[Path], folder: Path) -> list[Path]:
    """Compile the sources in parallel; returns the objects in their order."""

    def compile_one(source: Path) -> Path:
        target = folder / f"{source.stem}.o"
        _run([*command, "-c", str(source), "-o", str(target)])
        return target

    load_progress.begin(_STAGE, len(sources))
    objects = []
    with ThreadPoolExecutor() as pool:
        for compiled in pool.map(compile_one, sources):
            objects.append(compiled)
            load_progress.advance()
    return objects


def _run(command: list[str]) -> None:
    compiler = command[0]
    try:
        done = subprocess.run(  # noqa: S603 - the operator's own compiler
            command, capture_output=True, text=True, errors="replace", timeout=TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise KernelsUnavailable(f"{compiler} took more than {TIMEOUT:.0f} s") from error
    except OSError as error:
        raise KernelsUnavailable(f"cannot run {compiler}: {error}") from error
    if done.returncode < 0:
        raise KernelsUnavailable(f"{compiler} was killed by signal {-done.returncode}")
    if done.returncode > 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        first = next((line for line in lines if "error" in line), "".join(lines[:1]))
        raise KernelsUnavailable(
            f"{compiler} failed: {first or f'exit status {done.returncode}'}"[:300]
        )
