"""Kernels are compiled once per CPU model and source, into a cache that is safe to run from."""

import ctypes
import errno
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from core.kernels.cpu import compiler, library, structures
from core.kernels.cpu.compiler import KernelsUnavailable, build, cache_directories, compiled_library
from core.kernels.cpu.library import check_layouts

SOURCE = 'extern "C" int answer() { return 42; }\n'
SEEN = SOURCE.replace("int", '__attribute__((visibility("default"))) int')


@pytest.fixture
def sources(tmp_path, monkeypatch):
    """A small library in place of the kernels."""
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "answer.cpp").write_text(SOURCE)
    monkeypatch.setattr(compiler, "SOURCES", folder)
    return folder


@pytest.fixture
def home(tmp_path, monkeypatch):
    """The cache in a home directory that this test owns; temporary files go beside it."""
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    return home / ".cache" / "roseinfer" / "kernels"


needs_compiler = pytest.mark.skipif(library.kernels() is None, reason="no C++ compiler")


@pytest.mark.skipif(
    sys.platform != "linux" or not any(map(shutil.which, compiler.COMPILERS)),
    reason="no C++ compiler, or not Linux",
)
def test_with_a_compiler_there_are_kernels() -> None:
    """If they did not compile, all their tests would be skipped."""
    assert library.kernels() is not None


@needs_compiler
def test_a_library_is_compiled_once(sources, tmp_path) -> None:
    cache = tmp_path / "cache"
    first = compiled_library(cache)
    made = first.stat().st_mtime_ns
    assert compiled_library(cache) == first
    assert first.stat().st_mtime_ns == made
    assert list(cache.iterdir()) == [first]


@needs_compiler
def test_other_sources_cpus_or_flags_give_other_libraries(sources, tmp_path, monkeypatch) -> None:
    cache = tmp_path / "cache"
    first = compiled_library(cache)
    (sources / "answer.cpp").write_text(SOURCE.replace("42", "43"))
    second = compiled_library(cache)
    monkeypatch.setattr(compiler, "_cpu", lambda: "another")
    assert len({first, second, compiled_library(cache)}) == 3
    assert compiled_library(cache, ("-DANOTHER",)) != compiled_library(cache)


@needs_compiler
def test_a_truncated_library_is_compiled_again(sources, tmp_path) -> None:
    cache = tmp_path / "cache"
    library = compiled_library(cache)
    whole = library.read_bytes()
    library.write_bytes(whole[: len(whole) // 2])
    assert compiled_library(cache) == library
    assert library.stat().st_size == len(whole)


@needs_compiler
def test_an_upgrade_while_kernels_are_compiled_changes_nothing(
    sources, tmp_path, monkeypatch
) -> None:
    """The process has imported the code that calls these, and finds them under their name."""
    cache = tmp_path / "cache"
    (sources / "answer.cpp").write_text(SEEN)

    def build_beside_an_upgrade(*args: Any) -> Path:
        (sources / "answer.cpp").write_text(SEEN.replace("42", "43"))
        return build(*args)

    monkeypatch.setattr(compiler, "build", build_beside_an_upgrade)
    before = compiled_library(cache)
    monkeypatch.undo()
    monkeypatch.setattr(compiler, "SOURCES", sources)
    answers = [ctypes.CDLL(str(path)).answer() for path in (before, compiled_library(cache))]
    assert answers == [42, 43]
    (sources / "answer.cpp").write_text(SEEN)
    assert compiled_library(cache) == before


@needs_compiler
def test_a_compilation_error_is_reported(sources, tmp_path) -> None:
    (sources / "answer.cpp").write_text("int answer( { }\n")
    with pytest.raises(KernelsUnavailable, match=r"answer\.cpp.*error"):
        compiled_library(tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


@needs_compiler
def test_a_cache_that_cannot_be_written_to_is_reported(sources, tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(KernelsUnavailable, match="cannot write to"):
        compiled_library(tmp_path / "file" / "cache")


@needs_compiler
def test_the_cache_is_in_the_home_directory(sources, home) -> None:
    assert compiled_library().parent == home
    assert home.stat().st_mode & 0o777 == 0o700


@needs_compiler
def test_a_home_directory_that_cannot_be_written_to_is_passed_over(sources, home, tmp_path) -> None:
    (tmp_path / "home" / ".cache").write_text("a file where a folder should be")
    found = compiled_library()
    assert found.parent == tmp_path / "tmp" / f"roseinfer-kernels-{os.getuid()}"
    assert found.parent.stat().st_mode & 0o777 == 0o700


@needs_compiler
def test_a_library_in_a_cache_is_used_even_if_that_cannot_be_written_to(
    sources, home, monkeypatch
) -> None:
    found = compiled_library()
    monkeypatch.setattr(compiler, "_compile", lambda *_: pytest.fail("compiled again"))
    assert compiled_library() == found


def test_a_cache_that_others_can_write_to_is_not_used(home, tmp_path) -> None:
    home.mkdir(parents=True)
    home.chmod(0o777)
    (tmp_path / "tmp" / f"roseinfer-kernels-{os.getuid()}").write_text("not a folder")
    with pytest.raises(KernelsUnavailable, match=r"other users can write to .*; cannot use"):
        cache_directories()


@needs_compiler
def test_a_library_without_the_kernels_is_refused(sources, tmp_path) -> None:
    with pytest.raises(KernelsUnavailable, match="cannot load"):
        library.load(compiled_library(tmp_path / "cache"))


def test_a_broken_library_is_refused(tmp_path) -> None:
    (tmp_path / "broken.so").write_bytes(b"no library")
    with pytest.raises(KernelsUnavailable, match="cannot load"):
        library.load(tmp_path / "broken.so")


def test_a_structure_that_differs_from_its_mirror_is_refused(monkeypatch) -> None:
    if not isinstance(found := library.kernels_or_reason(), library.Kernels):
        pytest.skip("no C++ compiler")
    check_layouts(found.layout)
    fields = [*structures.LayerStep._fields_, ("more", ctypes.c_int64)]
    longer = type("LayerStep", (ctypes.Structure,), {"_fields_": fields})
    known = library.MIRRORS
    for name, mirror in (("LayerStep", longer), ("Other", structures.LayerStep)):
        monkeypatch.setattr(library, "MIRRORS", {**known, name: mirror})
        with pytest.raises(KernelsUnavailable, match=name):
            check_layouts(found.layout)


@needs_compiler
def test_processes_that_start_together_compile_once(sources, tmp_path, monkeypatch) -> None:
    waiting, built = threading.Event(), []
    monkeypatch.setattr(
        compiler.logger, "info", lambda text, *_: "waiting" in text and waiting.set()
    )

    def build_slowly(*args: Any) -> Path:
        built.append(args)
        assert waiting.wait(60), "nobody waits"
        return build(*args)

    monkeypatch.setattr(compiler, "build", build_slowly)
    with ThreadPoolExecutor(2) as pool:  # each opens the folder by itself, as processes do
        paths = list(pool.map(lambda _: compiled_library(tmp_path / "cache"), range(2)))
    assert paths[0] == paths[1]
    assert len(built) == 1


@needs_compiler
def test_a_file_system_without_locks_will_do(sources, tmp_path, monkeypatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(fcntl, "flock", refuse)
    assert compiled_library(tmp_path / "cache").exists()


@needs_compiler
def test_a_lock_that_is_not_released_is_passed_over(sources, tmp_path, monkeypatch) -> None:
    cache = tmp_path / "cache"
    made = compiled_library(cache)
    made.unlink()
    monkeypatch.setattr(compiler, "LOCK_TIMEOUT", 0.0)
    with made.with_suffix(".lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert compiled_library(cache) == made
    assert list(cache.iterdir()) == [made]


@needs_compiler
def test_a_lock_file_that_stays_is_no_failure(sources, tmp_path, monkeypatch) -> None:
    cache = tmp_path / "cache"

    def build_beside_a_folder(*args: Any) -> Path:
        [lock] = cache.glob("*.lock")
        lock.unlink()
        lock.mkdir()  # which cannot be unlinked
        return build(*args)

    monkeypatch.setattr(compiler, "build", build_beside_a_folder)
    assert compiled_library(cache).exists()


@needs_compiler
def test_the_common_header_is_read_once_for_all_sources(sources, tmp_path, monkeypatch) -> None:
    messages: list[str] = []
    run = subprocess.run

    def noted(*args: Any, **options: Any) -> Any:
        done = run(*args, **options)
        messages.append(done.stderr)
        return done

    monkeypatch.setattr(compiler.subprocess, "run", noted)
    (sources / compiler.COMMON).write_text(
        '#pragma once\n#pragma message("header is read")\n'
        '#define ROSE_EXPORT extern "C" __attribute__((visibility("default")))\n'
        "constexpr int ANSWER = 42;\n"
    )
    for name in ("answer", "other"):
        (sources / f"{name}.cpp").write_text(
            f'#include "{compiler.COMMON}"\nROSE_EXPORT int {name}() {{ return ANSWER; }}\n'
        )
    library = ctypes.CDLL(str(compiled_library(tmp_path / "cache")))
    assert (library.answer(), library.other()) == (42, 42)
    assert sum("header is read" in text for text in messages) == 1


@needs_compiler
@pytest.mark.parametrize("makes_it", ['echo half > "$header"', 'exec {compiler} "$@"'])
def test_a_precompiled_header_that_is_of_no_use_is_left_out(
    sources, tmp_path, monkeypatch, makes_it
) -> None:
    """One for which the disk is too small, and one that no source can be compiled with."""
    script = tmp_path / "c++"
    real = compiler.find_compiler()
    script.write_text(
        '#!/bin/sh\nfor target; do :; done\nheader="$(dirname "$target")/precompiled.h.gch"\n'
        f'case " $* " in *" c++-header "*) {makes_it.format(compiler=real)};; esac\n'
        'if [ -e "$header" ]; then echo "error: no use" >&2; exit 1; fi\n'
        f'exec {real} "$@"\n'
    )
    script.chmod(0o755)
    monkeypatch.setattr(compiler, "find_compiler", lambda: str(script))
    (sources / compiler.COMMON).write_text("constexpr int ANSWER = 43;\n")
    (sources / "answer.cpp").write_text(SEEN.replace("42", "ANSWER"))
    assert ctypes.CDLL(str(compiled_library(tmp_path / "cache"))).answer() == 43


def test_the_sources_that_take_longest_are_there() -> None:
    assert {f"{name}.cpp" for name in compiler.LONGEST} <= {
        source.name for source in compiler.SOURCES.rglob("*.cpp")
    }


def test_the_kind_of_a_cpu_is_its_vector_instructions(monkeypatch) -> None:
    monkeypatch.setattr(
        compiler, "_cpu", lambda: "x86_64\nflags\t\t: fpu sse2 fma avx2 avx512f\nmodel"
    )
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    assert compiler.variant() == "x86_64 avx2 avx512f fma"
