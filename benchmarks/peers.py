"""The compared servers: command line, environment, and extra request fields of each.

Everything else is the same for all contenders: the model's directory (or a GGUF file made from it),
a free loopback port, GET /health for readiness, all cores. ``benchmarks/peers.md`` says how to get
each of them.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from benchmarks.floors import Cost
from benchmarks.probe import num_cores
from benchmarks.scenarios import SLOT_CONTEXT, SLOTS
from benchmarks.shapes import Shape
from server.settings.settings import default_name

VLLM_CACHE_GIB = {True: 4, False: 6}
"""GiB of KV cache, by whether the model's context is short."""

WEIGHT_BYTES = {"float32": 4.0, "bfloat16": 2.0, "int8": 1.0, "q8_0": 34 / 32}
"""Bytes per element. q8_0 has a two-byte scale for every 32 elements. Other types of GGUF files
mix several; ``cost_of`` takes their mean from the size of the file."""

WHOLE = {"ignore_eos": True}
"""Every answer has its ``max_tokens``."""

OWN_FILE = "gguf"
"""The type of a model that is a GGUF file itself."""

OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "DO_NOT_TRACK": "1"}


@dataclass(frozen=True, kw_only=True)
class BenchModel:
    """A model on disk, and the room that a server must have for its requests.

    ``directory`` is the GGUF file of a model that is one. ``gguf`` is the folder of the
    ``NAME-TYPE.gguf`` files of the others, ``openvino`` that of ``NAME-TYPE`` folders.
    ``slots``: concurrent requests; ``slot_context``: tokens of the longest one.
    """

    name: str
    directory: Path
    shape: Shape
    gguf: Path | None = None
    openvino: Path | None = None
    slots: int = SLOTS
    slot_context: int = SLOT_CONTEXT

    @property
    def context(self) -> int:
        """Tokens of context per slot."""
        return min(self.shape.max_model_len, self.slot_context)

    def with_room(self, room: tuple[int, int]) -> BenchModel:
        """The same model for servers with ``Scenario.room``."""
        slots, slot_context = room
        return replace(self, slots=slots, slot_context=slot_context)

    def gguf_file(self, kind: str) -> Path:
        """The path of the file of this type, which may not exist."""
        if kind == OWN_FILE:
            return self.directory
        assert self.gguf is not None
        return self.gguf / f"{self.name}-{kind}.gguf"

    def missing_gguf(self, kind: str) -> str | None:
        """The reason why there is no such file, or None."""
        if self.gguf is None and kind != OWN_FILE:
            return "--gguf is not given"
        file = self.gguf_file(kind)
        return None if file.is_file() else f"{file} does not exist"


class Contender(Protocol):
    """One server in one configuration."""

    @property
    def name(self) -> str:
        """Its name in the results."""

    @property
    def weights(self) -> str:
        """The type of the weights: a key of WEIGHT_BYTES, or a type of GGUF file."""

    @property
    def is_variant(self) -> bool:
        """Whether it runs only the scenarios of ``--variant-scenarios``."""

    @property
    def extra(self) -> Mapping[str, Any]:
        """Fields of every request besides model, prompt, max_tokens and sampling."""

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
    shape, weights = model.shape, contender.weights
    if weights in WEIGHT_BYTES:
        weight_bytes = WEIGHT_BYTES[weights]
    else:
        file_bytes = model.gguf_file(weights).stat().st_size
        weight_bytes = file_bytes / (shape.layer_params + shape.head_params)
    kv_bytes = 4.0 if weights == "float32" else 2.0
    if getattr(contender, "kv_cache", None) == "int8":
        kv_bytes = 1 + 4 / shape.head_dim  # a float32 scale per token and head
    return Cost(shape=shape, weight_bytes=weight_bytes, kv_bytes=kv_bytes)


@dataclass(frozen=True, kw_only=True)
class Roseinfer:
    """This repository, run by this interpreter. ``gguf``: serve the GGUF file of this type.

    ``kv_cache`` is the type of the KV cache, if it is not that of the weights.
    """

    dtype: str = "bfloat16"
    quantization: str | None = None
    gguf: str | None = None
    kv_cache: str | None = None
    is_in_process: bool = False
    extra: Mapping[str, Any] = field(default_factory=lambda: dict(WHOLE))

    @property
    def name(self) -> str:
        parts = ["roseinfer"]
        if kind := self.quantization or self.gguf:
            parts.append(kind)
        elif self.dtype != "bfloat16":
            parts.append(self.dtype)
        if self.kv_cache is not None:
            parts.append(f"{self.kv_cache} KV")
        if self.is_in_process:
            parts.append("in process")
        return " ".join(parts)

    @property
    def weights(self) -> str:
        return self.quantization or self.gguf or self.dtype

    @property
    def is_variant(self) -> bool:
        is_plain = self.weights in (self.dtype, OWN_FILE) and self.kv_cache is None
        return not is_plain or self.is_in_process

    def missing(self, model: BenchModel) -> str | None:
        return self.gguf and model.missing_gguf(self.gguf)

    def command(self, model: BenchModel, port: int) -> list[str]:
        flags = [self._source(model), "--device", "cpu"]
        if self.gguf is None:  # a file is served in the type of its blocks
            flags += ["--dtype", self.dtype]
        if self.quantization is not None:
            flags += ["--quantization", self.quantization]
        if self.kv_cache is not None:
            flags += ["--kv-cache-dtype", self.kv_cache]
        if self.is_in_process:
            return [sys.executable, "-m", "benchmarks.in_process", *flags]
        where = ["--host", "127.0.0.1", "--port", str(port), "--log-level", "warning"]
        return [sys.executable, "-m", "server", "serve", *flags, *where]

    def environment(self, model: BenchModel) -> dict[str, str]:  # noqa: ARG002
        return {}

    def model_name(self, model: BenchModel) -> str:
        return default_name(self._source(model))

    def _source(self, model: BenchModel) -> str:
        return str(model.gguf_file(self.gguf) if self.gguf else model.directory)

    def versions(self) -> str:
        commit = output_of("git", "describe", "--always", "--dirty", "--exclude=*")
        return f"commit {commit}, {packages(Path(sys.executable), 'torch', 'transformers')}"


@dataclass(frozen=True, kw_only=True)
class LlamaServer:
    """llama.cpp's server with default settings except threads, slots and ``flags``.

    ``kind`` is the type of its GGUF file.
    """

    program: Path
    kind: str = "bf16"
    flags: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=lambda: dict(WHOLE))

    @property
    def name(self) -> str:
        return f"llama.cpp {self.kind}"

    @property
    def weights(self) -> str:
        return "bfloat16" if self.kind == "bf16" else self.kind

    @property
    def is_variant(self) -> bool:
        return self.kind not in ("bf16", OWN_FILE)

    def missing(self, model: BenchModel) -> str | None:
        return model.missing_gguf(self.kind)

    def command(self, model: BenchModel, port: int) -> list[str]:
        threads = str(num_cores())
        tokens = model.slots * model.context
        slots = ["--parallel", str(model.slots), "-c", str(tokens), "--no-kv-unified"]
        return [
            *(str(self.program), "-m", str(model.gguf_file(self.kind))),
            *("--host", "127.0.0.1", "--port", str(port)),
            *("-t", threads, "-tb", threads, *slots, "--no-ui", "--offline", *self.flags),
        ]

    def environment(self, model: BenchModel) -> dict[str, str]:  # noqa: ARG002
        return {}

    def model_name(self, model: BenchModel) -> str:
        return model.name

    def versions(self) -> str:
        lines = output_of(str(self.program), "--version").splitlines()
        return next((line for line in lines if line.startswith("version")), "unknown")


@dataclass(frozen=True, kw_only=True)
class TransformersServe:
    """transformers' own server, with continuous batching. It refuses ``ignore_eos``."""

    program: Path
    dtype: str = "bfloat16"
    extra: Mapping[str, Any] = field(default_factory=dict)
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
        return packages(self.program.with_name("python"), "transformers", "torch")


@dataclass(frozen=True, kw_only=True)
class Vllm:
    """vLLM's CPU build with threads on every core; its default leaves one core to the front end."""

    program: Path
    extra: Mapping[str, Any] = field(default_factory=lambda: dict(WHOLE))
    name: str = "vLLM"
    weights: str = "bfloat16"
    is_variant: bool = False

    def missing(self, model: BenchModel) -> str | None:  # noqa: ARG002
        return None

    def command(self, model: BenchModel, port: int) -> list[str]:
        length = min(model.shape.max_model_len, max(4096, model.context))
        return [
            *(str(self.program), "serve", str(model.directory), "--dtype", "bfloat16"),
            *("--host", "127.0.0.1", "--port", str(port)),
            *("--max-num-seqs", str(model.slots), "--max-model-len", str(length)),
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
        return packages(self.program.with_name("python"), "vllm", "torch")


def packages(python: Path, *names: str) -> str:
    """Versions of packages in the environment of this interpreter."""
    program = "import sys\nfrom importlib.metadata import version\n"
    program += "print(', '.join(f'{n} {version(n)}' for n in sys.argv[1:]))"
    return output_of(str(python), "-c", program, *names)


def output_of(*command: str) -> str:
    """The output of a command, or ``unknown`` if it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return (done.stdout + done.stderr).strip()
