"""The contenders and models of a comparison, as the command line selects them."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

from bench.random_model import cached_random_model
from benchmarks.openvino import OpenVino
from benchmarks.peers import (
    OWN_FILE,
    BenchModel,
    Contender,
    LlamaServer,
    Roseinfer,
    TransformersServe,
    Vllm,
)
from benchmarks.scenarios import CONTEXTS
from benchmarks.shapes import shape_of, shape_of_file
from core.gguf.names import SUFFIX

CONVERT = Path(__file__).with_name("to_gguf.py")

GGUF_KINDS = ("bf16", "q8_0")
"""Types of GGUF files that the converter makes."""


def find_contenders(options: argparse.Namespace, gemm: dict[str, float]) -> list[Contender]:
    """Roseinfer, then the peers that are given or on the path, then the variants."""
    found: list[Contender] = [Roseinfer(dtype=options.dtype)]
    llama, flags = _llama_server(options), tuple(options.llama_flags.split())
    vllm = options.vllm_bin or _on_path("vllm")
    if llama is not None:
        found.append(LlamaServer(program=llama, flags=flags))
    if vllm is not None:
        found.append(Vllm(program=vllm))
    if options.openvino_python is not None:
        found.append(OpenVino(python=options.openvino_python))
    if options.transformers_bin is not None:
        dtype = options.transformers_dtype
        if dtype == "auto":  # a CPU without bfloat16 instructions is very slow in bfloat16
            dtype = max(("bfloat16", "float32"), key=lambda name: gemm.get(name, 0.0))
        found.append(TransformersServe(program=options.transformers_bin, dtype=dtype))
    found += [
        Roseinfer(dtype=options.dtype, quantization="int8"),
        Roseinfer(dtype=options.dtype, is_in_process=True),
    ]
    if not CONTEXTS.keys().isdisjoint(options.variant_scenarios):
        found.append(Roseinfer(dtype=options.dtype, kv_cache="int8"))
    if llama is not None:
        found.append(LlamaServer(program=llama, kind="q8_0", flags=flags))
        if options.gguf is not None and any(options.gguf.glob("*-q4_k_m.gguf")):
            found.append(Roseinfer(dtype=options.dtype, gguf="q4_k_m"))
            found.append(LlamaServer(program=llama, kind="q4_k_m", flags=flags))
    if options.openvino_python is not None:
        found.append(OpenVino(python=options.openvino_python, kind="int8"))
    return _chosen(found, options)


def find_contenders_of_file(options: argparse.Namespace) -> list[Contender]:
    """Those for a model that is a GGUF file: roseinfer and llama.cpp, on this very file."""
    found: list[Contender] = [Roseinfer(gguf=OWN_FILE)]
    llama, flags = _llama_server(options), tuple(options.llama_flags.split())
    if llama is not None:
        found.append(LlamaServer(program=llama, kind=OWN_FILE, flags=flags))
    return _chosen(found, options)


def _chosen(found: list[Contender], options: argparse.Namespace) -> list[Contender]:
    chosen = options.contenders
    return [contender for contender in found if not chosen or contender.name in chosen]


def _llama_server(options: argparse.Namespace) -> Path | None:
    return options.llama_server or _on_path("llama-server")


def is_file(name: str) -> bool:
    """Whether the name of a model is the path of a GGUF file."""
    return name.endswith(SUFFIX)


def find_model(name: str, options: argparse.Namespace) -> BenchModel:
    """A model by its shape, directory or GGUF file.

    Makes missing GGUF files of a shape or directory if ``--llama-tree`` is given.
    """
    if is_file(name):
        path = Path(name)
        return BenchModel(name=path.stem, directory=path, shape=shape_of_file(path))
    directory = Path(name) if (Path(name) / "config.json").is_file() else cached_random_model(name)
    model = BenchModel(
        name=Path(name).name,
        directory=directory,
        shape=shape_of(directory),
        gguf=options.gguf,
        openvino=options.openvino_models,
    )
    if options.llama_tree is not None and options.gguf is not None:
        options.gguf.mkdir(parents=True, exist_ok=True)
        for kind in GGUF_KINDS:
            file = model.gguf_file(kind)
            if not file.is_file():
                python = options.convert_python or sys.executable
                print(f"making {file}", flush=True)
                command = [python, str(CONVERT), str(options.llama_tree), str(directory)]
                subprocess.run([*command, str(file), kind], check=True, capture_output=True)
    return model


def _on_path(name: str) -> Path | None:
    found = shutil.which(name)
    return Path(found) if found else None
