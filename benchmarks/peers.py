"""The compared servers: command line, environment, and extra request fields of each.

Everything else is the same for all contenders: the model's directory (or a GGUF file made from it),
a free loopback port, GET /health for readiness, all cores. ``benchmarks/peers.md`` says how to get
each of them.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from benchmarks.floors import Cost
from benchmarks.probe import num_cores
from benchmarks.shapes import Shape

SLOTS = 64
"""Concurrent requests of every server: the most that a scenario has."""

MAX_CONTEXT = 1280
"""Tokens of the longest request. Servers that reserve a context per slot reserve this many."""

VLLM_CACHE_GIB = {True: 4, False: 6}
"""GiB of KV cache, by whether the model's context is short."""

WEIGHT_BYTES = {"float32": 4.0, "bfloat16": 2.0, "int8": 1.0, "q8_0": 34 / 32}
"""Bytes per element. q8_0 has a two-byte scale for every 32 elements."""

GREEDY = {"temperature": 0.0, "ignore_eos": True}

OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "DO_NOT_TRACK": "1"}


@dataclass(frozen=True, kw_only=True)
class BenchModel:
    """A model on disk. ``gguf`` is the folder of its ``NAME-TYPE.gguf`` files."""

    name: str
    directory: Path
    shape: Shape
    gguf: Path | None = None

    @property
    def context(self) -> int:
        """Tokens of context per slot."""
        return min(self.shape.max_model_len, MAX_CONTEXT)

    def gguf_file(self, kind: str) -> Path:
        """The path of the file of this type, which may not exist."""
        assert self.gguf is not None
        return self.gguf / f"{self.name}-{kind}.gguf"


class Contender(Protocol):
    """One server in one configuration."""

    @property
    def name(self) -> str:
        """Its name in the results."""

    @property
    def weights(self) -> str:
        """The type of the weights: a key of WEIGHT_BYTES."""

    @property
    def is_variant(self) -> bool:
        """Whether it runs only the scenarios of ``--variant-scenarios``."""

    @property
    def extra(self) -> Mapping[str, Any]:
        """Fields of every request besides model, prompt and max_tokens."""

    def missing(self, model: BenchModel) -> str | None:
        """The reason why it cannot serve this model, or None."""

    def command(self, model: BenchModel, port: int) -> list[str]:
        """Its command line."""

    def environment(self, model: BenchModel) -> dict[str, str]:
        """Variables added to the common environment."""

    def model_name(self, model: BenchModel) -> str:
        """The ``model`` of requests."""

    def versions(self) -> str:
        """The measured versions, in one line."""


def cost_of(contender: Contender, model: BenchModel) -> Cost:
    """The cost model of a contender, for floors."""
    kv_bytes = 4 if contender.weights == "float32" else 2
    return Cost(shape=model.shape, weight_bytes=WEIGHT_BYTES[contender.weights], kv_bytes=kv_bytes)


@dataclass(frozen=True, kw_only=True)
class Roseinfer:
    """This repository, run by this interpreter."""

    dtype: str = "bfloat16"
    quantization: str | None = None
    is_in_process: bool = False
    extra: Mapping[str, Any] = field(default_factory=lambda: dict(GREEDY))

    @property
    def name(self) -> str:
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
        return self.quantization or self.dtype

    @property
    def is_variant(self) -> bool:
        return self.quantization is not None or self.is_in_process

    def missing(self, model: BenchModel) -> str | None:  # noqa: ARG002
        return None

    def command(self, model: BenchModel, port: int) -> list[str]:
        flags = [str(model.directory), "--device", "cpu", "--dtype", self.dtype]
        if self.quantization is not None:
            flags += ["--quantization", self.quantization]
        if self.is_in_process:
            return [sys.executable, "-m", "benchmarks.in_process", *flags]
        where = ["--host", "127.0.0.1", "--port", str(port), "--log-level", "warning"]
        return [sys.executable, "-m", "server", "serve", *flags, *where]

    def environment(self, model: BenchModel) -> dict[str, str]:  # noqa: ARG002
        return {}

    def model_name(self, model: BenchModel) -> str:
        return model.directory.name

    def versions(self) -> str:
        commit = _output_of("git", "describe", "--always", "--dirty", "--exclude=*")
        return f"commit {commit}, {_packages(Path(sys.executable), 'torch', 'transformers')}"


@dataclass(frozen=True, kw_only=True)
class LlamaServer:
    """llama.cpp's server with default settings except threads and slots. ``kind``: bf16, q8_0."""

    program: Path
    kind: str = "bf16"
    extra: Mapping[str, Any] = field(default_factory=lambda: dict(GREEDY))

    @property
    def name(self) -> str:
        return f"llama.cpp {self.kind}"

    @property
    def weights(self) -> str:
        return "bfloat16" if self.kind == "bf16" else self.kind

    @property
    def is_variant(self) -> bool:
        return self.kind != "bf16"

    def missing(self, model: BenchModel) -> str | None:
        if model.gguf is None:
            return "--gguf is not given"
        file = model.gguf_file(self.kind)
        return None if file.is_file() else f"{file} does not exist"

    def command(self, model: BenchModel, port: int) -> list[str]:
        threads = str(num_cores())
        slots = ["--parallel", str(SLOTS), "-c", str(SLOTS * model.context), "--no-kv-unified"]
        return [
            *(str(self.program), "-m", str(model.gguf_file(self.kind))),
            *("--host", "127.0.0.1", "--port", str(port)),
            *("-t", threads, "-tb", threads, *slots, "--no-ui", "--offline"),
        ]

    def environment(self, model: BenchModel) -> dict[str, str]:  # noqa: ARG002
        return {}

    def model_name(self, model: BenchModel) -> str:
        return model.name

    def versions(self) -> str:
        lines = _output_of(str(self.program), "--version").splitlines()
        return next((line for line in lines if line.startswith("version")), "unknown")


@dataclass(frozen=True, kw_only=True)
class TransformersServe:
    """transformers' own server, with continuous batching. It refuses ``ignore_eos``."""

    program: Path
    dtype: str = "bfloat16"
    extra: Mapping[str, Any] = field(default_factory=lambda: {"temperature": 0.0})
    is_variant: bool = False

    @property
    def name(self) -> str:
        return f"transformers serve {self.dtype}"

    @property
    def weights(self) -> str:
        return self.dtype

    def missing(self, model: BenchModel) -> str | None:  # noqa: ARG002
        return None

    def command(self, model: BenchModel, port: int) -> list[str]:
        return [
            *(str(self.program), "serve", str(model.directory)),
            *("--device", "cpu", "--dtype", self.dtype, "--continuous-batching"),
            *("--host", "127.0.0.1", "--port", str(port)),
        ]

    def environment(self, model: BenchModel) -> dict[str, str]:  # noqa: ARG002
        return {"OMP_NUM_THREADS": str(num_cores()), **OFFLINE}

    def model_name(self, model: BenchModel) -> str:
        return str(model.directory)

    def versions(self) -> str:
        return _packages(self.program.with_name("python"), "transformers", "torch")


@dataclass(frozen=True, kw_only=True)
class Vllm:
    """vLLM's CPU build with threads on every core; its default leaves one core to the front end."""

    program: Path
    extra: Mapping[str, Any] = field(default_factory=lambda: dict(GREEDY))
    name: str = "vLLM"
    weights: str = "bfloat16"
    is_variant: bool = False

    def missing(self, model: BenchModel) -> str | None:  # noqa: ARG002
        return None

    def command(self, model: BenchModel, port: int) -> list[str]:
        length = min(model.shape.max_model_len, 4096)
        return [
            *(str(self.program), "serve", str(model.directory), "--dtype", "bfloat16"),
            *("--host", "127.0.0.1", "--port", str(port)),
            *("--max-num-seqs", str(SLOTS), "--max-model-len", str(length)),
        ]

    def environment(self, model: BenchModel) -> dict[str, str]:
        return {
            "VLLM_CPU_KVCACHE_SPACE": str(VLLM_CACHE_GIB[model.shape.max_model_len <= 1024]),
            "VLLM_CPU_OMP_THREADS_BIND": f"0-{num_cores() - 1}",
            "VLLM_NO_USAGE_STATS": "1",
            **OFFLINE,
        }

    def model_name(self, model: BenchModel) -> str:
        return str(model.directory)

    def versions(self) -> str:
        return _packages(self.program.with_name("python"), "vllm", "torch")


def _packages(python: Path, *names: str) -> str:
    """Versions of packages in the environment of this interpreter."""
    program = "import sys\nfrom importlib.metadata import version\n"
    program += "print(', '.join(f'{n} {version(n)}' for n in sys.argv[1:]))"
    return _output_of(str(python), "-c", program, *names)


def _output_of(*command: str) -> str:
    """The output of a command, or ``unknown`` if it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return (done.stdout + done.stderr).strip()
