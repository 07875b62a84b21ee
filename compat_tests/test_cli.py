"""The command line: what goes wrong is one line and exit code 2."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from compat_tests.support.process import ROOT

FLAGS = (
    "--host",
    "--port",
    "--device",
    "--dtype",
    "--tokenizer",
    "--served-model-name",
    "--max-model-len",
    "--max-num-seqs",
    "--max-num-batched-tokens",
    "--block-size",
    "--kv-cache-memory",
    "--no-enable-prefix-caching",
    "--chat-template",
    "--seed",
    "--stream-interval",
    "--tokenizer-workers",
    "--drain-timeout",
    "--log-level",
)


def run(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "server", *arguments],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_help_is_worth_reading() -> None:
    text = run("serve", "--help").stdout
    for flag in FLAGS:
        assert flag in text, flag
    assert "ROSEINFER_" in text
    assert run("--help").returncode == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("serve", "--frobnicate"),
        ("serve", "--port", "70000"),
        ("serve", "--port", "x"),
        ("serve", "--max-num-seqs", "0"),
        ("serve", "--device", "tpu"),
        ("serve", "--kv-cache-memory", "lots"),
        ("frobnicate",),
    ],
)
def test_a_wrong_flag_is_one_line_and_code_2(arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1, result.stderr


def test_an_unloadable_model_is_one_line_and_code_2(tmp_path: Path) -> None:
    result = run("serve", str(tmp_path), "--port", "0", "--log-level", "error")
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    assert str(tmp_path) in lines[0]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--dtype", "int8"), "int8 is not one of auto, float32, bfloat16, float16; it is one of"),
        (
            ("--quantization", "int8"),
            "--quantization int8 needs a model that the compiled kernels compute: no compiled",
        ),
    ],
)
def test_what_cannot_be_done_without_a_compiler_or_at_all(
    arguments: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    """There is no compiler on the path of this process."""
    env = os.environ | {"PATH": str(tmp_path)}
    result = run("serve", "--port", "0", "--log-level", "error", *arguments, env=env)
    assert result.returncode == 2
    assert len(result.stderr.strip().splitlines()) == 1, result.stderr
    assert said in result.stderr


def test_weights_that_are_larger_than_memory_are_one_line_and_code_2(tmp_path: Path) -> None:
    weights = ROOT / "core" / "builtin_model" / "weights"
    shutil.copytree(weights, tmp_path / "big")
    with (tmp_path / "big" / "model.safetensors").open("wb") as file:
        file.truncate(2**40)  # without blocks on the disk
    result = run("serve", str(tmp_path / "big"), "--port", "0", "--log-level", "error")
    assert result.returncode == 2
    assert len(result.stderr.strip().splitlines()) == 1, result.stderr
    assert "take at least 1024.0 GiB and there is memory for" in result.stderr


def test_a_taken_port_is_one_line_and_code_2(server) -> None:
    result = run("serve", "--port", str(server.port), "--log-level", "error")
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
    assert str(server.port) in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1, result.stderr
