"""The servers that are compared: how each is started, and what it is asked in its own way.

A contender says its command line, its environment, the name that requests call its model by, and
the fields that every request gets. Everything else is the same for all: the model's directory (or
a GGUF file made from it), a free loopback port, GET /health for readiness, all cores.
``benchmarks/peers.md`` tells how to get each.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from benchmarks.floors import Cost
from benchmarks.limits import num_cores
from benchmarks.shapes import Shape

SLOTS = 64
"""Requests that a server may run together: as many as a scenario ever has."""

MAX_CONTEXT = 1280
"""Tokens that the longest request needs: servers that reserve a context for each slot get these."""

VLLM_CACHE_GIB = {True: 4, False: 6}
"""Of the KV cache, for a model of a short context and for others."""

WEIGHT_BYTES = {"float32": 4.0, "bfloat16": 2.0, "int8": 1.0, "q8_0": 34 / 32}
"""Of an element; q8_0 has a two-byte scale for every 32."""

GREEDY = {"temperature": 0.0, "ignore_eos": True}

OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "DO_NOT_TRACK": "1"}


@dataclass(frozen=True, kw_only=True)
class BenchModel:
    """A model as it lies on disk. ``gguf`` is the folder of its ``NAME-TYPE.gguf`` files."""

    name: str
    directory: Path
    shape: Shape
    gguf: Path | None = None

    @property
    def context(self) -> int:
        """Tokens of context that a slot is given."""
        return min(self.shape.max_model_len, MAX_CONTEXT)

    def gguf_file(self, kind: str) -> Path:
        """The file of this type, which may not exist."""
        assert self.gguf is not None
        return self.gguf / f"{self.name}-{kind}.gguf"


class Contender(Protocol):
    """One server in one configuration. ``weights`` is how it holds them: a key of WEIGHT_BYTES."""

    @property
    def name(self) -> str:
        """What it is called in results."""

    @property
    def weights(self) -> str:
        """How it holds the weights."""

    @property
    def is_side_show(self) -> bool:
        """Whether it runs only the scenarios that side shows run."""

    @property
    def extra(self) -> Mapping[str, Any]:
        """Fields of every request beside the prompt."""

    def missing(self, model: BenchModel) -> str | None:
        """What it lacks to serve this model, if anything."""

    def command(self, model: BenchModel, port: int) -> list[str]:
        """What starts it."""

    def environment(self, model: BenchModel) -> dict[str, str]:
        """What it needs beside the environment of everyone."""

    def model_name(self, model: BenchModel) -> str:
        """What requests call the model."""

    def versions(self) -> str:
        """What exactly was measured, in one line."""


def cost_of(contender: Contender, model: BenchModel) -> Cost:
    """What this contender's work is made of, at least."""
    kv_bytes = 4 if contender.weights == "float32" else 2
    return Cost(shape=model.shape, weight_bytes=WEIGHT_BYTES[contender.weights], kv_bytes=kv_bytes)


@dataclass(frozen=True, kw_only=True)
class Roseinfer:
    """This repository, served by this interpreter."""

    dtype: str = "bfloat16"
    quantization: str | None = None
    is_in_process: bool = False
    extra: Mapping[str, Any] = field(default_factory=lambda: dict(GREEDY))

    @property
    def name(self) -> str:
        """``roseinfer``, and what is unusual about it."""
        parts = ["roseinfer"]
        if self.quantization is not None:
            parts.append(self.quantization)
        elif self.dtype != "bfloat16":
            parts.append(self.dtype)
        if self.is_in_process:
            parts.append("in process")
        return " ".join(parts)

    @property
    def weights(self) -> str:
        """How it holds the weights."""
        return self.quantization or self.dtype

    @property
    def is_side_show(self) -> bool:
        """Everything but the plain server is."""
        return self.quantization is not None or self.is_in_process

    def missing(self, model: BenchModel) -> str | None:  # noqa: ARG002
        """Nothing: we are here."""
        return None

    def command(self, model: BenchModel, port: int) -> list[str]:
        """``serve``, or the program that runs the engine without HTTP."""
        flags = [str(model.directory), "--device", "cpu", "--dtype", self.dtype]
        if self.quantization is not None:
            flags += ["--quantization", self.quantization]
        if self.is_in_process:
            return [sys.executable, "-m", "benchmarks.in_process", *flags]
        where = ["--host", "127.0.0.1", "--port", str(port), "--log-level", "warning"]
        return [sys.executable, "-m", "server", "serve", *flags, *where]

    def environment(self, model: BenchModel) -> dict[str, str]:  # noqa: ARG002
        """Nothing: what a user gets is measured."""
        return {}

    def model_name(self, model: BenchModel) -> str:
        """As it was named on the command line."""
        return str(model.directory)

    def versions(self) -> str:
        """The commit, and torch and transformers."""
        commit = _said("git", "describe", "--always", "--dirty", "--exclude=*")
        return f"commit {commit}, {_packages(Path(sys.executable), 'torch', 'transformers')}"


@dataclass(frozen=True, kw_only=True)
class LlamaServer:
    """llama.cpp's server, all defaults but threads and slots. ``kind`` is bf16 or q8_0."""

    program: Path
    kind: str = "bf16"
    extra: Mapping[str, Any] = field(default_factory=lambda: dict(GREEDY))

    @property
    def name(self) -> str:
        """``llama.cpp`` and the type of the weights."""
        return f"llama.cpp {self.kind}"

    @property
    def weights(self) -> str:
        """How it holds the weights."""
        return "bfloat16" if self.kind == "bf16" else self.kind

    @property
    def is_side_show(self) -> bool:
        """The quantised one is."""
        return self.kind != "bf16"

    def missing(self, model: BenchModel) -> str | None:
        """The GGUF file, perhaps."""
        if model.gguf is None:
            return "no --gguf folder is named"
        file = model.gguf_file(self.kind)
        return None if file.is_file() else f"there is no {file}"

    def command(self, model: BenchModel, port: int) -> list[str]:
        """``llama-server`` with a context of its own for each slot."""
        threads = str(num_cores())
        slots = ["--parallel", str(SLOTS), "-c", str(SLOTS * model.context), "--no-kv-unified"]
        return [
            *(str(self.program), "-m", str(model.gguf_file(self.kind))),
            *("--host", "127.0.0.1", "--port", str(port)),
            *("-t", threads, "-tb", threads, *slots, "--no-ui", "--offline"),
        ]

    def environment(self, model: BenchModel) -> dict[str, str]:  # noqa: ARG002
        """Nothing."""
        return {}

    def model_name(self, model: BenchModel) -> str:
        """Any: it has one model."""
        return model.name

    def versions(self) -> str:
        """What the program says of itself."""
        lines = _said(str(self.program), "--version").splitlines()
        return next((line for line in lines if line.startswith("version")), "unknown")


@dataclass(frozen=True, kw_only=True)
class TransformersServe:
    """transformers' own server, with continuous batching. It refuses ``ignore_eos``."""

    program: Path
    dtype: str = "bfloat16"
    extra: Mapping[str, Any] = field(default_factory=lambda: {"temperature": 0.0})
    is_side_show: bool = False

    @property
    def name(self) -> str:
        """``transformers serve`` and the type of the weights."""
        return f"transformers serve {self.dtype}"

    @property
    def weights(self) -> str:
        """How it holds the weights."""
        return self.dtype

    def missing(self, model: BenchModel) -> str | None:  # noqa: ARG002
        """Nothing."""
        return None

    def command(self, model: BenchModel, port: int) -> list[str]:
        """``transformers serve``."""
        return [
            *(str(self.program), "serve", str(model.directory)),
            *("--device", "cpu", "--dtype", self.dtype, "--continuous-batching"),
            *("--host", "127.0.0.1", "--port", str(port)),
        ]

    def environment(self, model: BenchModel) -> dict[str, str]:  # noqa: ARG002
        """All cores, no network."""
        return {"OMP_NUM_THREADS": str(num_cores()), **OFFLINE}

    def model_name(self, model: BenchModel) -> str:
        """The directory."""
        return str(model.directory)

    def versions(self) -> str:
        """Of its environment."""
        return _packages(self.program.with_name("python"), "transformers", "torch")


@dataclass(frozen=True, kw_only=True)
class Vllm:
    """vLLM's CPU build, with threads on every core: by default it keeps one for its front end."""

    program: Path
    extra: Mapping[str, Any] = field(default_factory=lambda: dict(GREEDY))
    name: str = "vLLM"
    weights: str = "bfloat16"
    is_side_show: bool = False

    def missing(self, model: BenchModel) -> str | None:  # noqa: ARG002
        """Nothing."""
        return None

    def command(self, model: BenchModel, port: int) -> list[str]:
        """``vllm serve``."""
        length = min(model.shape.max_model_len, 4096)
        return [
            *(str(self.program), "serve", str(model.directory), "--dtype", "bfloat16"),
            *("--host", "127.0.0.1", "--port", str(port)),
            *("--max-num-seqs", str(SLOTS), "--max-model-len", str(length)),
        ]

    def environment(self, model: BenchModel) -> dict[str, str]:
        """Threads, cache, no reports. LD_PRELOAD of an allocator is the operator's."""
        return {
            "VLLM_CPU_KVCACHE_SPACE": str(VLLM_CACHE_GIB[model.shape.max_model_len <= 1024]),
            "VLLM_CPU_OMP_THREADS_BIND": f"0-{num_cores() - 1}",
            "VLLM_NO_USAGE_STATS": "1",
            **OFFLINE,
        }

    def model_name(self, model: BenchModel) -> str:
        """The directory."""
        return str(model.directory)

    def versions(self) -> str:
        """Of its environment."""
        return _packages(self.program.with_name("python"), "vllm", "torch")


def clean_environment() -> dict[str, str]:
    """The environment that every server gets: ours, but for what would favour or slow one."""
    dropped = ("ROSEINFER_", "OMP_", "GOMP_", "KMP_", "MKL_")
    return {key: value for key, value in os.environ.items() if not key.startswith(dropped)}


def _packages(python: Path, *names: str) -> str:
    """Versions of packages as an environment has them."""
    program = "import sys\nfrom importlib.metadata import version\n"
    program += "print(', '.join(f'{n} {version(n)}' for n in sys.argv[1:]))"
    return _said(str(python), "-c", program, *names)


def _said(*command: str) -> str:
    """All that a command prints, or that it failed."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return (done.stdout + done.stderr).strip()
