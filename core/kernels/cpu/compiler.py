"""Compiling the kernels, once for each kind of CPU, with whatever compiler the machine has."""

from __future__ import annotations

import hashlib
import logging
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

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
"""Seconds after which a compiler is taken to hang."""


class CompilationFailed(Exception):
    """The kernels cannot be had; the message says why in one line."""


def compiled_library(cache: Path | None = None, more_flags: tuple[str, ...] = ()) -> Path:
    """Path of the compiled kernels, compiling them if this CPU has none yet.

    Raises CompilationFailed. Several processes may do this at once: each builds in a folder of
    its own, and the last to finish replaces the file by one that is the same. A file that was cut
    short, by a full disk or a lost machine, is made again.
    """
    if sys.platform != "linux":
        raise CompilationFailed(f"the kernels have not been made to work on {sys.platform}")
    compiler = find_compiler()
    flags = (*FLAGS, *more_flags)
    cache = cache_directory() if cache is None else cache
    library = cache / f"roseinfer-{_fingerprint(compiler, flags)}.so"
    if _is_whole(library):
        return library
    logger.info("compiling kernels for this CPU with %s, once; about 10 s", compiler)
    start = time.monotonic()
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            built = _build(compiler, flags, Path(folder))
            _seal(built)
            built.replace(library)
    except OSError as error:
        raise CompilationFailed(f"cannot write to {cache}: {error}") from error
    logger.info("compiled in %.1f s: %s", time.monotonic() - start, library)
    return library


def find_compiler() -> str:
    """Path of a C++ compiler, by the usual names."""
    for name in COMPILERS:
        found = shutil.which(name)
        if found is not None:
            return found
    raise CompilationFailed(f"no C++ compiler ({', '.join(COMPILERS)}) on this machine")


def cache_directory() -> Path:
    """Where compiled kernels are kept: in the user's cache, or beside temporary files."""
    try:
        cache = Path.home() / ".cache" / "roseinfer" / "kernels"
        cache.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # no home, or one that cannot be written to
        cache = Path(tempfile.gettempdir()) / f"roseinfer-kernels-{os.getuid()}"
        cache.mkdir(mode=0o700, exist_ok=True)
    found = cache.stat()
    if found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise CompilationFailed(f"others can write to {cache}")  # code is loaded from there
    return cache


def _fingerprint(compiler: str, flags: tuple[str, ...]) -> str:
    """Changes when the sources, the flags, the compiler or the kind of CPU do."""
    digest = hashlib.sha256()
    for source in sorted(SOURCES.iterdir()):
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    stat = Path(compiler).resolve().stat()
    digest.update(repr((flags, compiler, stat.st_size, stat.st_mtime_ns)).encode())
    digest.update(_cpu().encode())
    return digest.hexdigest()[:16]


def _cpu() -> str:
    """What ``-march=native`` looks at: a home directory may be shared by different machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    kinds = ("model name", "cpu family", "model\t", "flags", "Features", "CPU part")
    described = sorted({line for line in lines if line.startswith(kinds)})
    return "\n".join([platform.machine(), *described])


def _seal(library: Path) -> None:
    """End a library with its own digest: what has lost its end crashes whoever loads it."""
    digest = hashlib.sha256(library.read_bytes()).digest()
    with library.open("ab") as file:
        file.write(digest)


def _is_whole(library: Path) -> bool:
    try:
        content = library.read_bytes()
    except OSError:
        return False
    size = hashlib.sha256().digest_size
    return hashlib.sha256(content[:-size]).digest() == content[-size:]


def _build(compiler: str, flags: tuple[str, ...], folder: Path) -> Path:
    """Compile all sources side by side and link them.

    The OpenMP runtime is not linked: the process has torch's, and must not get a second one.
    """

    def compile_one(source: Path) -> Path:
        target = folder / f"{source.stem}.o"
        _run([compiler, *flags, "-c", str(source), "-o", str(target)])
        return target

    with ThreadPoolExecutor() as pool:
        objects = list(pool.map(compile_one, sorted(SOURCES.glob("*.cpp"))))
    library = folder / "kernels.so"
    _run([compiler, "-shared", *map(str, objects), "-o", str(library)])
    return library


def _run(command: list[str]) -> None:
    try:
        subprocess.run(  # noqa: S603 - the operator's own compiler
            command, check=True, capture_output=True, text=True, timeout=TIMEOUT
        )
    except subprocess.TimeoutExpired as error:
        raise CompilationFailed(f"{command[0]} took more than {TIMEOUT:.0f} s") from error
    except subprocess.CalledProcessError as error:
        first = next((line for line in error.stderr.splitlines() if "error" in line), "")
        raise CompilationFailed(f"{command[0]} failed: {first or error}"[:300]) from error
