"""If the kernels cannot be compiled or loaded, torch's serve and one warning gives the reason."""

from __future__ import annotations

import copy
import logging
import sys
import tempfile
from pathlib import Path

import pytest
import torch

from core.assembly.accelerate import accelerate
from core.hook.hook import AttentionHook
from core.kernels.cpu import building, compiler, library
from core.load.loaded_model import LoadedModel
from tests.support.checkpoints import VOCAB_SIZE, tiny_model

SOURCE = 'extern "C" int answer() { return 42; }\n'
KERNELS = library.kernels()


@pytest.fixture(autouse=True)
def machine(tmp_path, monkeypatch):
    """A machine without cached kernels; the sources are few, so that a compiler is quick."""
    for name in ("home", "temporary", "bin", "source"):
        (tmp_path / name).mkdir()
    (tmp_path / "source" / "answer.cpp").write_text(SOURCE)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setattr(compiler, "SOURCES", tmp_path / "source")
    library.kernels_or_reason.cache_clear()
    yield tmp_path
    library.kernels_or_reason.cache_clear()


def warning(caplog) -> str:
    """The one warning of a machine without kernels, however often they are asked for."""
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        assert library.kernels() is None
        assert library.kernels() is None
    (record,) = caplog.records
    message = record.getMessage()
    assert message.startswith("no compiled CPU kernels, torch's slower ones are used: ")
    assert "\n" not in message
    return message


def make_compiler(machine: Path, monkeypatch, script: str) -> None:
    """Let the only compiler on this machine be a shell script."""
    path = machine / "bin" / "c++"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(machine / "bin"))


def test_no_compiler(machine, monkeypatch, caplog):
    monkeypatch.setenv("PATH", str(machine / "bin"))
    assert "no C++ compiler (c++, g++, clang++) on this machine" in warning(caplog)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("kill -SEGV $$", "c++ was killed by signal 11"),
        ("echo \"c++: error: unknown argument '-fopenmp'\" >&2; exit 1", "argument '-fopenmp'"),
        ("printf 'fatal \\377\\nmore' >&2; exit 4", "c++ failed: fatal"),
        ("exit 3", "c++ failed: exit status 3"),
        ("exit 0", "c++ made no library"),
    ],
)
def test_a_compiler_that_fails(script, reason, machine, monkeypatch, caplog):
    make_compiler(machine, monkeypatch, script)
    assert reason in warning(caplog)


def test_a_compiler_that_hangs(machine, monkeypatch, caplog):
    monkeypatch.setattr(building, "TIMEOUT", 0.05)
    make_compiler(machine, monkeypatch, "while :; do :; done")
    assert "c++ took more than" in warning(caplog)


def test_a_compiler_that_cannot_be_run(machine, monkeypatch, caplog):
    make_compiler(machine, monkeypatch, "")
    (machine / "bin" / "c++").write_bytes(b"\x7fELF but not a program")
    assert "cannot run" in warning(caplog)


def test_a_compiler_whose_result_cannot_be_loaded(machine, monkeypatch, caplog):
    make_compiler(machine, monkeypatch, 'while [ "$1" != -o ]; do shift; done; echo no > "$2"')
    assert "cannot load" in warning(caplog)


@pytest.mark.skipif(KERNELS is None, reason="no C++ compiler")
def test_a_library_without_the_kernels(caplog):
    assert "cannot load" in warning(caplog)


@pytest.mark.skipif(KERNELS is None, reason="no C++ compiler")
def test_a_torch_without_openmp(machine, monkeypatch, caplog):
    (machine / "maps").write_text("7f00-7f01 r-xp 00000000 00:00 0 /usr/lib/libc.so.6\n")
    monkeypatch.setattr(library, "MAPS", machine / "maps")
    assert "torch runs without an OpenMP runtime" in warning(caplog)


@pytest.mark.skipif(KERNELS is None, reason="no C++ compiler")
def test_a_system_without_proc(machine, monkeypatch, caplog):
    monkeypatch.setattr(library, "MAPS", machine / "no-proc" / "maps")
    assert "No such file or directory" in warning(caplog)


@pytest.mark.parametrize("is_there", [False, True])
def test_no_sources(is_there, machine, monkeypatch, caplog):
    make_compiler(machine, monkeypatch, "exit 0")
    (machine / "source" / "answer.cpp").unlink()
    if not is_there:
        (machine / "source").rmdir()
    assert f"no kernel sources in {machine / 'source'}" in warning(caplog)


def test_sources_that_cannot_be_read(machine, monkeypatch, caplog):
    make_compiler(machine, monkeypatch, "exit 0")
    (machine / "source" / "folder.cpp").mkdir()
    assert "Is a directory" in warning(caplog)


def test_nowhere_to_write(machine, monkeypatch, caplog):
    """Files take the place of both folders, which stops the superuser as well."""
    make_compiler(machine, monkeypatch, "exit 0")
    for folder in ("home", "temporary"):
        (machine / folder).rmdir()
        (machine / folder).write_text("")
    assert "Not a directory" in warning(caplog)


def test_a_cache_that_becomes_unwritable(machine, monkeypatch, caplog):
    make_compiler(machine, monkeypatch, "exit 0")
    monkeypatch.setattr(compiler, "cache_directories", lambda: [machine / "source" / "answer.cpp"])
    assert "cannot write to" in warning(caplog)


def test_no_home_and_no_temporary_folder(machine, monkeypatch, caplog):
    make_compiler(machine, monkeypatch, "exit 0")

    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    def no_folder() -> str:
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr(Path, "home", no_home)
    monkeypatch.setattr(tempfile, "gettempdir", no_folder)
    assert "no folder for kernels" in warning(caplog)


def test_an_unsupported_system(monkeypatch, caplog):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert "the kernels do not support darwin" in warning(caplog)


def loaded() -> LoadedModel:
    return LoadedModel(
        module=copy.deepcopy(tiny_model("llama")),
        device=torch.device("cpu"),
        dtype=torch.float32,
        vocab_size=VOCAB_SIZE,
        max_model_len=256,
        eos_token_ids=frozenset(),
        default_sampling={},
    )


def test_a_model_is_served_by_torch(machine, monkeypatch, caplog):
    monkeypatch.setenv("PATH", str(machine / "bin"))
    model = loaded()
    with caplog.at_level(logging.WARNING):
        done = accelerate(model, AttentionHook(model.module), "none")
    assert (done.attention_backend, done.description) == ("torch", "torch's own kernels")
    assert len(caplog.records) == 1
