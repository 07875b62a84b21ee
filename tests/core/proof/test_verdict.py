"""Verdicts are remembered by all that they depend on, and read without transformers."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest

import core
from core import builtin_model
from core.proof import verdict as module
from core.proof.twin import twins_of
from core.proof.verdict import Verdict, key_of, recall, remember

EXACT = Verdict(True, "", seconds=0.5)
WRONG = Verdict(False, "decoding gives other logits", seconds=0.25)
TWIN = {"model_type": "llama"}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    folder.mkdir()
    monkeypatch.setattr(module, "user_folders", lambda _kind: [folder])
    monkeypatch.setattr(module, "SHIPPED", tmp_path / "shipped")
    return folder


def test_a_verdict_is_remembered(cache: Path) -> None:
    assert recall("a") is None
    remember("a", EXACT)
    remember("b", WRONG)
    assert recall("a") == Verdict(True, "", is_remembered=True, seconds=0.5)
    assert recall("b") == Verdict(False, WRONG.reason, is_remembered=True, seconds=0.25)
    assert sorted(file.name for file in cache.iterdir()) == ["a.json", "b.json"]


def test_a_verdict_is_one_line() -> None:
    assert str(EXACT) == "proved exact (0.5 s)"
    assert str(WRONG) == "not proved exact (0.2 s): decoding gives other logits"
    assert str(Verdict(True, "", is_remembered=True)) == "proved exact (remembered)"


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"is_exact": true}', "\0"])
def test_a_broken_file_is_no_verdict(cache: Path, content: str) -> None:
    (cache / "a.json").write_text(content)
    assert recall("a") is None
    remember("a", EXACT)
    assert recall("a") is not None


def test_verdicts_come_with_an_environment(cache: Path) -> None:
    module.SHIPPED.mkdir()
    remember("a", EXACT, module.SHIPPED)
    assert not list(cache.iterdir())
    assert recall("a") is not None


def test_where_nothing_can_be_written_a_line_says_so(
    cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "roseinfer.core")

    def refuse(_kind: str) -> NoReturn:
        raise OSError("cannot use /home/x: Read-only file system")

    monkeypatch.setattr(module, "user_folders", refuse)
    remember("a", EXACT)
    assert recall("a") is None
    gone = cache / "gone"
    monkeypatch.setattr(module, "user_folders", lambda _kind: [gone])
    remember("a", EXACT)
    assert [record.getMessage() for record in caplog.records] == [
        "the model's proof runs at each start: cannot use /home/x: Read-only file system",
        f"the model's proof runs at each start: cannot write to {gone}: No such file or directory",
    ]


def test_the_key_has_all_that_a_verdict_depends_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {key_of(TWIN), key_of(dict(reversed(TWIN.items())))}
    assert len(keys) == 1
    keys.add(key_of(TWIN | {"tie_word_embeddings": True}))
    with monkeypatch.context() as patch:
        patch.setattr(module, "version", lambda name: f"{name} 1")
        keys.add(key_of(TWIN))
    with monkeypatch.context() as patch:
        patch.setattr(module, "variant", lambda: "another CPU")
        keys.add(key_of(TWIN))
    for change, file in enumerate(("kernels/cpu/source/layer.cpp",) * 2 + ("attention/cpu.py",)):
        source = tmp_path / file
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text(str(change))
        with monkeypatch.context() as patch:
            patch.setattr(core, "__file__", str(tmp_path / "__init__.py"))
            keys.add(key_of(TWIN))
    assert len(keys) == 7


READ = """
import json, sys
from core.proof.prove import prove
verdict = prove(json.loads(sys.argv[1]))
print(verdict.is_remembered, verdict.is_exact)
print(*[name for name in sys.modules if name.partition(".")[0] in ("transformers", "sympy")])
"""


def test_a_remembered_verdict_is_read_without_transformers(tmp_path: Path) -> None:
    values: dict[str, Any] = json.loads((builtin_model.path() / "config.json").read_text())
    folder = tmp_path / ".cache" / "roseinfer" / "verdicts"
    folder.mkdir(parents=True, mode=0o700)
    remember(key_of(twins_of(values)[0].values), EXACT, folder)
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", READ, json.dumps(values)],
        env={**os.environ, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == ["True True", ""]
