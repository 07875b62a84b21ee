"""Compile the kernels once per CPU model, with the C++ compiler that the machine has."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

from core.observe import load_progress
from core.system.user_folders import user_folders

logger = logging.getLogger("roseinfer.core")

SOURCES = Path(__file__).parent / "source"

FLAGS = (
    "-std=c++17",
    "-O3",
    "-march=native",
    "-fopenmp",
    "-fPIC",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fvisibility=hidden",
    "-Wno-psabi",
)

COMPILERS = ("c++", "g++", "clang++")

TIMEOUT = 300.0
"""Seconds after which a running compiler is stopped."""

LOCK_TIMEOUT = TIMEOUT
"""Seconds to wait for another process that compiles."""

POLL_INTERVAL = 0.1
"""Seconds between two attempts to take a lock."""

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
        objects = _compile_source([compiler, *flags], sources, folder)
    library = folder / "kernels.so"
    _run([compiler, "-shared", *map(str, objects), "-o", str(library)])
    if not library.is_file():
        raise KernelsUnavailable(f"{compiler} made no library")
    return library


def _compile_source(command: list[str], sources: Sequence[Path], folder: Path) -> list[Path]:
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


def compiled_library(cache: Path | None = None, more_flags: tuple[str, ...] = ()) -> Path:
    """Return the path of the compiled kernels, compiling them if no cache holds them.

    Without a ``cache`` the user's folder is tried first, then one for temporary files. Of several
    processes that want the same library one compiles, where the file system has locks. Each works
    in a folder of its own and replaces the file atomically. A truncated file is compiled again. The
    sources are read once, so that a process gets its own kernels during an upgrade in place. Raises
    KernelsUnavailable.
    """
    if sys.platform != "linux":
        raise KernelsUnavailable(f"the kernels do not support {sys.platform}")
    compiler = find_compiler()
    flags = (*FLAGS, *more_flags)
    sources = _sources()
    name = _name(compiler, flags, sources)
    folders = cache_directories() if cache is None else [cache]
    if (cached := _whole_in(folders, name)) is not None:
        return cached
    reasons = []
    for folder in folders:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with _alone(folder / name):
                if (made := _whole_in([folder], name)) is not None:
                    return made  # by another process, meanwhile
                return _compile(compiler, flags, sources, folder / name)
        except OSError as error:
            reasons.append(f"cannot write to {folder}: {error}")
    raise KernelsUnavailable("; ".join(reasons))


def cached_library() -> Path | None:
    """Return the path of the compiled kernels if the user's cache holds them.

    Raises KernelsUnavailable if they could not even be compiled.
    """
    return _whole_in(cache_directories(), _name(find_compiler(), FLAGS, _sources()))


def find_compiler() -> str:
    """Return the path of a C++ compiler. Raises KernelsUnavailable if there is none."""
    for name in COMPILERS:
        found = shutil.which(name)
        if found is not None:
            return found
    raise KernelsUnavailable(
        f"no C++ compiler ({', '.join(COMPILERS)}) on this machine; install one, as "
        "`apt-get install g++`"
    )


def cache_directories() -> list[Path]:
    """Return the folders for compiled kernels that only this user can write to.

    Raises KernelsUnavailable if there is none: the process runs code from there.
    """
    try:
        return user_folders("kernels")
    except OSError as error:
        raise KernelsUnavailable(str(error)) from error


@contextlib.contextmanager
def _alone(library: Path) -> Iterator[None]:
    """Let one process at a time into the block, as long as none fails.

    Where the file system has no locks all may enter, and so may one that has waited as long as a
    compiler may run. Raises OSError if the library's folder cannot be written to.
    """
    lock = library.with_suffix(".lock")
    with os.fdopen(os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)) as file:
        _wait_for(file)
        try:
            yield
        finally:
            with contextlib.suppress(OSError):  # who waits for it finds the library all the same
                lock.unlink()


def _wait_for(file: IO[str]) -> None:
    """Take the lock of a file, or wait for it until ``LOCK_TIMEOUT``."""
    if _try_lock(file):
        return
    logger.info("another process compiles these kernels; waiting for it")
    end = time.monotonic() + LOCK_TIMEOUT
    while time.monotonic() < end:
        time.sleep(POLL_INTERVAL)
        if _try_lock(file):
            return
    logger.info("another process still compiles these kernels; compiling them too")


def _try_lock(file: IO[str]) -> bool:
    """Try to take the lock of a file; False if another process has it."""
    import fcntl  # noqa: PLC0415 - not on every system that imports this file

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass  # this file system has none
    return True


def _sources() -> dict[str, bytes]:
    """Read sources and headers, in folders by operation; by file name, which is unique."""
    paths = sorted(path for path in SOURCES.rglob("*") if path.suffix in {".cpp", ".h"})
    sources = {path.name: path.read_bytes() for path in paths}
    assert len(sources) == len(paths), "two sources have one name"
    if not any(map(_is_compiled, sources)):
        raise KernelsUnavailable(f"no kernel sources in {SOURCES}")
    return sources


def _is_compiled(name: str) -> bool:
    return name.endswith(".cpp")


def _name(compiler: str, flags: tuple[str, ...], sources: Mapping[str, bytes]) -> str:
    """Return a library's name, with a digest of sources, flags, compiler and CPU model."""
    digest = hashlib.sha256()
    for name, source in sources.items():
        digest.update(name.encode() + b"\0" + source + b"\0")
    stat = Path(compiler).resolve().stat()
    digest.update(repr((flags, compiler, stat.st_size, stat.st_mtime_ns)).encode())
    digest.update(_cpu().encode())
    return f"roseinfer-{digest.hexdigest()[:16]}.so"


def _cpu() -> str:
    """Describe what ``-march=native`` depends on: machines may share a home directory."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    kinds = ("model name", "cpu family", "model\t", "flags", "Features", "CPU part")
    described = sorted({line for line in lines if line.startswith(kinds)})
    return "\n".join([platform.machine(), *described])


def variant() -> str:
    """The kind of this CPU: its vector instructions, which choose among the sources' branches."""
    lines = _cpu().splitlines()
    flags = {flag for line in lines if line.startswith("flags") for flag in line.split()}
    vectors = sorted(flag for flag in flags if flag.startswith(("avx", "amx", "fma", "f16c")))
    return " ".join([platform.machine(), *vectors])


def _seal(library: Path) -> None:
    """Append the library's digest. Loading a truncated library crashes the process."""
    digest = hashlib.sha256(library.read_bytes()).digest()
    with library.open("ab") as file:
        file.write(digest)


def _whole_in(folders: list[Path], name: str) -> Path | None:
    """The first of these files that is complete."""
    return next((folder / name for folder in folders if _is_whole(folder / name)), None)


def _is_whole(library: Path) -> bool:
    try:
        content = library.read_bytes()
    except OSError:
        return False
    size = hashlib.sha256().digest_size
    return hashlib.sha256(content[:-size]).digest() == content[-size:]


def _compile(
    compiler: str, flags: tuple[str, ...], sources: Mapping[str, bytes], library: Path
) -> Path:
    """Compile into ``library``. Raises OSError if its folder cannot be written to."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory(dir=library.parent) as temporary:
        logger.info("compiling kernels for this CPU with %s; this is done once", compiler)
        folder = Path(temporary)
        copies = folder / "source"
        copies.mkdir()
        for name, source in sources.items():
            (copies / name).write_bytes(source)
        built = build(compiler, flags, [copies / n for n in sources if _is_compiled(n)], folder)
        _seal(built)
        built.replace(library)
    logger.info("compiled in %.1f s: %s", time.monotonic() - start, library)
    return library
