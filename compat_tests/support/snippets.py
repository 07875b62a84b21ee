"""Runs commands and programs of the documentation, as they stand, against a live server."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import safetensors.torch
import torch

from compat_tests.support.process import ROOT, ServerProcess
from tests.docs.markdown import PAGES, Block, page

DEFAULT = "127.0.0.1:8000"
"""The address in the documentation. It is replaced by that of the test's server."""

FRAMEWORKS = ROOT / ".venv-frameworks"
"""What ``make test-docs`` installs the packages of docs/frameworks.txt into."""

NO_NODE = FRAMEWORKS / "no-node-packages"
"""Says why Node's packages are not there, if they are not."""

NOT_RUN = re.compile(r"not run: (.+)")
RUN_WITH = re.compile(r"run with: (.+)")
IN_CLONE = "run in: a fresh clone"
IN_SMALL = "run in small"
SMALL = {
    "cpu_sampling": "--rounds 1",
    "fleet": "--replicas 4 --burst 1 --warm-up 5 --seconds 20",
    "front_end": "--rounds 1 --tokens 60 --streams 2",
    "host_step": "--steps 2 --rows 1",
    "overload": "--seconds 1 --tokens 8",
    "scheduling": "",
    "start_server": "my-model --rounds 1",
}
"""What is added to commands that take minutes: they are tested, their figures are not."""

LANGUAGES = {"sh", "python", "js"}
WEIGHTS = ROOT / "core" / "builtin_model" / "weights"
ROUTING = ROOT / "docs" / "routing.md"
HUB_IDS = ("Qwen/Qwen3-0.6B",)
COMMIT = "0" * 40
SERVER = re.compile(r"(?:\S*/)?(?:roseinfer|make) (serve|route)\b")
READY = {"serve": "Serving ", "route": "Listening on "}
"""What a server prints once it takes requests, by its command."""

QUICK_TESTS = "tests/docs/test_readme.py"
"""What runs where a page runs all tests."""

SAID = "Hello!\n"
"""What is typed into a program that reads its input, before its end."""

RECORDS = {"CHANGELOG.md", "RESULTS.md", "peers.md"}
"""Pages that say what was run, on other machines, not what to run."""

TIMEOUT = 240.0

_served: dict[str, str] = {}
"""What servers printed, by their commands: some pages show the same ones."""

Snippet = tuple[str, Block]


def snippets() -> Iterator[Snippet]:
    """Every block that can be run, with the name of its place."""
    for path in PAGES:
        if path.name not in RECORDS:
            for block in page(path).blocks:
                if block.language in LANGUAGES:
                    yield f"{page(path).name}:{block.line}", block


def examples() -> list[Path]:
    """The files of examples/."""
    suffixes = {".py", ".sh", ".mjs"}
    return sorted(file for file in (ROOT / "examples").iterdir() if file.suffix in suffixes)


def in_small(command: str) -> str:
    """A script's command with the arguments of SMALL, which replace those before them."""
    script = re.search(r"-m benchmarks\.(\w+)", command)
    assert script, f"not a script: {command}"
    return f"{command} {SMALL[script[1]]}"


def is_program(block: Block) -> bool:
    """Whether a shell block does more than ask a server."""
    return block.language == "sh" and not all(
        command.startswith("curl ") for command in block.commands
    )


def parameters() -> list:
    """Parameters of a test, one for each block. Marks become skips with their reasons."""
    made = []
    for name, block in snippets():
        marks: list[pytest.MarkDecorator] = []
        if reason := NOT_RUN.fullmatch(block.mark):
            marks.append(pytest.mark.skip(reason=f"not run: {reason[1]}"))
        elif block.mark == IN_CLONE:
            marks += [pytest.mark.docs, pytest.mark.xdist_group("clone")]
        elif is_program(block) or RUN_WITH.fullmatch(block.mark):
            marks.append(pytest.mark.docs)
        made.append(pytest.param(block, id=name, marks=marks))
    return made


def add_models(folder: Path) -> None:
    """Make what commands of the documentation name: the built-in model in all forms.

    That of a hub is in the cache of a hub, where a download would put it. The context is long, and
    the tokenizer splits texts as GPT-2's, which GGUF files have a name for.
    """
    model = folder / "my-model"
    shutil.copytree(WEIGHTS, model)
    _change(model / "config.json", "max_position_embeddings", 1 << 15)
    split = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    _change(model / "tokenizer.json", "pre_tokenizer", split | {"use_regex": True})
    torch.save(safetensors.torch.load_file(model / "model.safetensors"), folder / "weights.pt")
    for name in HUB_IDS:
        cached = folder / "hub" / f"models--{name.replace('/', '--')}"
        (cached / "refs").mkdir(parents=True)
        (cached / "refs" / "main").write_text(COMMIT)
        (cached / "snapshots").mkdir()
        (cached / "snapshots" / COMMIT).symlink_to(model)
    file = folder / "model-Q4_K_M.gguf"
    command = [sys.executable, "-m", "server", "quantize", str(model), str(file)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    models = [block.text for block in page(ROUTING).blocks if block.language == "toml"]
    (folder / "models.toml").write_text("\n".join(models))
    (folder / "gguf-files").mkdir()
    for place in ("model.gguf", "gguf-files/some.gguf", f"my-model/{file.name}"):
        (folder / place).symlink_to(file)


def _change(file: Path, key: str, value: object) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | {key: value}))


@dataclass(frozen=True)
class Workplace:
    """A folder in which the commands of a user run, and the server that they mean."""

    folder: Path
    server: ServerProcess

    @property
    def address(self) -> str:
        return f"{self.server.host}:{self.server.port}"

    def prepare(self) -> Workplace:
        """Make the programs that a user has on the path."""
        programs = {
            "roseinfer": f'exec "{sys.executable}" -m server "$@"',
            "python": f'exec "{sys.executable}" "$@"',
            "curl": f'exec "{shutil.which("curl")}" --silent --show-error --fail-with-body "$@"',
        }
        bin_folder = self.folder / "bin"
        bin_folder.mkdir()
        for name, line in programs.items():
            (bin_folder / name).write_text(f"#!/bin/sh\n{line}\n")
            (bin_folder / name).chmod(0o755)
        return self

    @property
    def environment(self) -> dict[str, str]:
        clean = {k: v for k, v in os.environ.items() if not k.startswith("ROSEINFER_")}
        return clean | {
            "PATH": f"{self.folder / 'bin'}{os.pathsep}{clean['PATH']}",
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
            "OPENAI_BASE_URL": f"http://{self.address}/v1",
            "OPENAI_API_KEY": "none",
            "HF_HUB_CACHE": str(self.folder / "hub"),
            "BIG_KEY": "key of a server in models.toml",
            "ROSEINFER_PORT": "0",  # for servers that a snippet starts
        }

    def run(self, block: Block) -> str:
        """What a block prints. Fails if it fails."""
        text = block.text.replace(DEFAULT, self.address)
        if is_program(block):
            commands = Block("sh", text).commands
            if block.mark == IN_SMALL:
                commands = [in_small(command) for command in commands]
            return "".join(self._command(command) for command in commands)
        suffix = {"python": ".py", "js": ".mjs", "sh": ".sh"}[block.language]
        file = self.folder / f"snippet{suffix}"
        file.write_text(text, encoding="utf-8")
        return self._program(file, needs_more=bool(RUN_WITH.fullmatch(block.mark)))

    def run_file(self, file: Path) -> str:
        """What a program prints. The file runs as it is: it asks ``OPENAI_BASE_URL``."""
        return self._program(Path(shutil.copy(file, self.folder)), needs_more=file.suffix == ".mjs")

    def _program(self, file: Path, *, needs_more: bool) -> str:
        """Run a file, with the packages of FRAMEWORKS if it needs them."""
        if needs_more and not FRAMEWORKS.exists():
            pytest.skip(f"{FRAMEWORKS.name} is missing; make test-docs makes it")
        if file.suffix == ".mjs":
            if NO_NODE.exists():
                pytest.skip(NO_NODE.read_text().strip())
            (self.folder / "node_modules").symlink_to(FRAMEWORKS / "node_modules")
        python = FRAMEWORKS / "bin" / "python" if needs_more else sys.executable
        program = {".py": str(python), ".mjs": "node", ".sh": "sh"}[file.suffix]
        options = ["-e"] if program == "sh" else []
        return self._finish([program, *options, str(file)])

    def _command(self, command: str) -> str:
        """Run one line of a block. A server is stopped once it serves."""
        if not SERVER.match(command):
            return self._finish(["sh", "-ec", f"{{ {command}; }} 2>&1"])  # some only log
        if command not in _served:
            _served[command] = self._serve(command)
        return _served[command]

    def _serve(self, command: str) -> str:
        """What a server prints until it serves. Fails if it does not serve.

        The end of `roseinfer` must be clean. That of make is not looked at: make fails when it is
        interrupted.
        """
        program = "make" if command.startswith("make ") else "roseinfer"
        process = subprocess.Popen(
            ["sh", "-ec", f"exec {command}"],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # as a terminal does: Ctrl-C reaches make and the server
        )
        timer = threading.Timer(TIMEOUT, os.killpg, (process.pid, signal.SIGKILL))
        timer.start()
        with process:
            assert process.stdout is not None
            assert process.stderr is not None
            ready = READY[SERVER.match(command)[1]]
            printed = ""
            for line in process.stdout:
                printed += line
                if line.startswith(ready):
                    os.killpg(process.pid, signal.SIGINT)
            errors = process.stderr.read()
            code = process.wait()
            timer.cancel()
        assert ready in printed, f"{command}\n{printed}\n{errors}"
        assert code == 0 or program == "make", f"{command}\n{printed}\n{errors}"
        return printed

    def _finish(self, command: list[str]) -> str:
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment,
            input=SAID,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
        assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        return done.stdout


class FreshClone(Workplace):
    """A clone of the repository: commands install into it, without a download."""

    @property
    def environment(self) -> dict[str, str]:
        ours = ("ROSEINFER_", "PYTHON", "MAKE", "MFLAGS", "ARGS")  # of the make that runs the tests
        clean = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
        return clean | {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{clean['PATH']}",  # its python3
            "PIP_NO_BUILD_ISOLATION": "0",  # pip reads it as the value of "build isolation"
            "PYTHONUNBUFFERED": "1",
            "PYTEST_ADDOPTS": QUICK_TESTS,  # as arguments of the documented command
            "ROSEINFER_PORT": "0",
        }
