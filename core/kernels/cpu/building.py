"""Build a library from C++ sources with a compiler of this machine."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from core import load_progress

TIMEOUT = 300.0
"""Seconds after which a running compiler is stopped."""

COMMON = "common.h"
"""The header that is compiled once for all sources, if it is beside them."""

LONGEST = ("attention", "linear", "block_wide", "block_narrow")
"""Sources that take longest, which therefore begin first."""


class KernelsUnavailable(Exception):
    """The kernels cannot be compiled or loaded. The message gives the reason in one line."""


def build(compiler: str, flags: Sequence[str], sources: Sequence[Path], folder: Path) -> Path:
    """Compile the sources in parallel and link them in ``folder``; returns the library.

    The OpenMP runtime is not linked: the process uses torch's and must not load a second one.
    Raises KernelsUnavailable.
    """
    sources = sorted(sources, key=lambda source: (source.stem not in LONGEST, source.stem))
    command = [compiler, *flags]
    with load_progress.within("compiling kernels", len(sources)):
        command += _common(command, sources[0].parent / COMMON, folder)

        def compile_one(source: Path) -> Path:
            target = folder / f"{source.stem}.o"
            _run([*command, "-c", str(source), "-o", str(target)])
            return target

        objects = []
        with ThreadPoolExecutor() as pool:
            for compiled in pool.map(compile_one, sources):
                objects.append(compiled)
                load_progress.advance()
    library = folder / "kernels.so"
    _run([compiler, "-shared", *map(str, objects), "-o", str(library)])
    if not library.is_file():
        raise KernelsUnavailable(f"{compiler} made no library")
    return library


def _common(command: list[str], header: Path, folder: Path) -> list[str]:
    """Compile a header that every source includes, and return the flags that include it.

    Without it, each source would read the compiler's intrinsics and the standard library anew.
    """
    if not header.is_file():
        return []
    included = folder / "precompiled.h"
    included.write_text(f'#include "{header}"\n')
    # both GCC and clang look for a file of this name beside a header that is named on the command
    # line, and read the header itself if there is none that fits
    _run([*command, "-x", "c++-header", str(included), "-o", f"{included}.gch"])
    return ["-include", str(included)]


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
