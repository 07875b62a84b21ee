"""Compiling: once for a CPU and a source, and never in the way of a server that can do without."""

import logging

import pytest

from core.kernels.cpu import compiler, library
from core.kernels.cpu.compiler import CompilationFailed, compiled_library

SOURCE = 'extern "C" int answer() { return 42; }\n'


@pytest.fixture
def sources(tmp_path, monkeypatch):
    """A small library in place of the kernels."""
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "answer.cpp").write_text(SOURCE)
    monkeypatch.setattr(compiler, "SOURCES", folder)
    return folder


needs_compiler = pytest.mark.skipif(library.kernels() is None, reason="no C++ compiler")


@needs_compiler
def test_a_library_is_compiled_once(sources, tmp_path) -> None:
    cache = tmp_path / "cache"
    first = compiled_library(cache)
    made = first.stat().st_mtime_ns
    assert compiled_library(cache) == first
    assert first.stat().st_mtime_ns == made
    assert list(cache.iterdir()) == [first]


@needs_compiler
def test_another_source_or_cpu_is_another_library(sources, tmp_path, monkeypatch) -> None:
    cache = tmp_path / "cache"
    first = compiled_library(cache)
    (sources / "answer.cpp").write_text(SOURCE.replace("42", "43"))
    second = compiled_library(cache)
    monkeypatch.setattr(compiler, "_cpu", lambda: "another")
    assert len({first, second, compiled_library(cache)}) == 3
    assert compiled_library(cache, ("-DANOTHER",)) != compiled_library(cache)


@needs_compiler
def test_a_library_that_was_cut_short_is_made_again(sources, tmp_path) -> None:
    cache = tmp_path / "cache"
    library = compiled_library(cache)
    whole = library.read_bytes()
    library.write_bytes(whole[: len(whole) // 2])
    assert compiled_library(cache) == library
    assert library.stat().st_size == len(whole)


@needs_compiler
def test_what_does_not_compile_says_why(sources, tmp_path) -> None:
    (sources / "answer.cpp").write_text("int answer( { }\n")
    with pytest.raises(CompilationFailed, match=r"answer\.cpp.*error"):
        compiled_library(tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


@needs_compiler
def test_a_cache_that_cannot_be_written_to_says_so(sources, tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CompilationFailed, match="cannot write"):
        compiled_library(tmp_path / "file" / "cache")


@needs_compiler
def test_a_library_without_the_kernels_is_refused(sources, tmp_path) -> None:
    with pytest.raises(CompilationFailed, match="cannot load"):
        library.load(compiled_library(tmp_path / "cache"))


def test_a_broken_library_is_refused(tmp_path) -> None:
    (tmp_path / "broken.so").write_bytes(b"no library")
    with pytest.raises(CompilationFailed, match="cannot load"):
        library.load(tmp_path / "broken.so")


def test_without_a_compiler_there_are_no_kernels_and_one_warning(monkeypatch, caplog) -> None:
    monkeypatch.setattr(compiler, "COMPILERS", ("no-such-compiler",))
    library.kernels.cache_clear()
    try:
        with caplog.at_level(logging.WARNING):
            assert library.kernels() is None
            assert library.kernels() is None
        messages = [record.message for record in caplog.records]
        assert len(messages) == 1
        assert "no C++ compiler (no-such-compiler)" in messages[0]
    finally:
        library.kernels.cache_clear()
