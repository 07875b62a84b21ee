"""Kernels are compiled once per CPU model and source, into a cache that is safe to run from."""

import os
import shutil
import sys
import tempfile

import pytest

from core.kernels.cpu import compiler, library
from core.kernels.cpu.compiler import KernelsUnavailable, cache_directories, compiled_library

SOURCE = 'extern "C" int answer() { return 42; }\n'


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
