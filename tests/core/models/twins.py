"""Twins of cases: made and saved by transformers, computed by the plain executor."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.metadata import version
from itertools import cycle
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
import torch
from transformers import CONFIG_MAPPING, AutoConfig, AutoModelForCausalLM

from core.attention.base import AttentionBackend
from core.attention.cpu_backend import PagedCPUBackend
from core.attention.torch_backend import PagedTorchBackend
from core.batch.logits import Logits
from core.batch.model_input import ModelInput
from core.executors.compiled import CompiledExecutor
from core.executors.layer_calls import CallBuilder
from core.executors.plain import PlainExecutor, Weights, attention_layers, read_weights
from core.kernels.cpu.bindings import Kernels
from core.kernels.cpu.linear import Format
from core.kv.layer_spec import LayerSpec
from core.kv.storage import KVStorage
from core.models.families import describe
from core.models.spec import DecoderSpec
from core.proof.trial import draw
from core.weights.packer import Packer
from core.weights.roles import RoleReader, SafetensorsFiles
from tests.core.models.cases import SIZES, Case

BLOCK_SIZE = 4
MAX_BLOCKS = 32
"""Blocks of each sequence."""

CHUNKS = (0, 1, 5, 2, 11, 1)
"""Tokens that sequences compute in a step, in turns."""


def needs_class(family: str) -> None:
    """Skip where this release of transformers does not have the family."""
    if family not in CONFIG_MAPPING:
        pytest.skip(f"transformers {version('transformers')} has no {family}")


def config_of(case: Case) -> Any:
    needs_class(case.family)
    known = AutoConfig.for_model(case.family).to_dict()
    sizes = {name: value for name, value in SIZES.items() if name in known}
    return AutoConfig.for_model(case.family, **sizes | case.fields)


class Twin:
    """A checkpoint of a case, and the logits that transformers computes from it."""

    def __init__(self, case: Case, folder: Path) -> None:
        self.case, self.folder = case, folder
        model = _eager(AutoModelForCausalLM.from_config, config_of(case))
        draw(model)
        model.save_pretrained(folder)
        model = _eager(AutoModelForCausalLM.from_pretrained, folder)
        with torch.inference_mode():
            self.prompts = [_prompt(length) for length in case.lengths]
            self.logits = [model(p[None], use_cache=False).logits[0] for p in self.prompts]
        self.values = json.loads((folder / "config.json").read_text())
        self.spec, self.names = describe(self.values, case.max_model_len)

    def weights(self, spec: DecoderSpec) -> Weights:
        return read_weights(self.tensors(), spec, self.names)

    def worst(self, spec: DecoderSpec, *, in_chunks: bool) -> float:
        """The largest difference of the plain executor, as a share of the largest logit."""
        weights = self.weights(spec)
        layers = attention_layers(spec, weights)
        backend = PagedTorchBackend(storage_of(layers, len(self.prompts)), layers)
        return self.difference(Run(PlainExecutor(spec, weights, backend), backend), in_chunks)

    def worst_compiled(self, kernels: Kernels, *, in_chunks: bool) -> float:
        """The same of the compiled executor. Raises Undescribed for what it does not compute."""
        return self.difference(self.compiled(kernels, Format.FLOAT32), in_chunks)

    def compiled(self, kernels: Kernels, fmt: Format) -> Run:
        """The compiled executor, with weights in a format."""
        reader = RoleReader(self.tensors(), self.spec, self.names)
        calls = CallBuilder(self.spec, reader, Packer(kernels, fmt)).build()
        executor = CompiledExecutor(kernels, calls, self.spec_of)
        executor.fix_length(self.case.max_model_len)
        return compiled_run(executor, len(self.prompts))

    def spec_of(self, max_model_len: int) -> DecoderSpec:
        return describe(self.values, max_model_len)[0]

    def difference(self, run: Run, in_chunks: bool) -> float:
        computed = run.in_chunks(self.prompts) if in_chunks else run.whole(self.prompts)
        pairs = zip(computed, self.logits, strict=True)
        return max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)

    def tensors(self) -> SafetensorsFiles:
        return SafetensorsFiles(self.folder.glob("*.safetensors"))


def _eager(make: Any, source: Any) -> Any:
    return make(source, dtype=torch.float32, attn_implementation="eager").eval()


def _prompt(length: int) -> torch.Tensor:
    return torch.randint(3, 97, (length,), generator=torch.Generator().manual_seed(length))


def storage_of(layers: Sequence[LayerSpec], num_seqs: int) -> KVStorage:
    return KVStorage(
        layers,
        num_blocks=num_seqs * MAX_BLOCKS,
        block_size=BLOCK_SIZE,
        dtype=torch.float32,
        device=torch.device("cpu"),
    )


class Run:
    """An executor over a KV cache."""

    def __init__(self, executor: Callable[[ModelInput], Logits], backend: AttentionBackend) -> None:
        self._executor, self._backend = executor, backend

    def whole(self, prompts: list[torch.Tensor]) -> list[torch.Tensor]:
        return [self._step([(0, prompt, 0)])[0] for prompt in prompts]

    def in_chunks(self, prompts: list[torch.Tensor]) -> list[torch.Tensor]:
        """All prompts together, in ragged pieces."""
        found: list[list[torch.Tensor]] = [[] for _ in prompts]
        done = [0] * len(prompts)
        sizes = cycle(CHUNKS)
        while any(at < len(prompt) for at, prompt in zip(done, prompts, strict=True)):
            pieces = []
            for i, prompt in enumerate(prompts):
                if len(piece := prompt[done[i] : done[i] + next(sizes)]):
                    pieces.append((i, piece, done[i]))
                    done[i] += len(piece)
            next(sizes)
            if pieces:
                for (i, _, _), logits in zip(pieces, self._step(pieces), strict=True):
                    found[i].append(logits)
        return [torch.cat(parts) for parts in found]

    def _step(self, pieces: list[Piece]) -> list[torch.Tensor]:
        """The logits of all next tokens of sequences."""
        batch = batch_of(pieces)
        count = len(batch.token_ids)
        values = self.step(replace(batch, logits_indices=torch.arange(count).flip(0))).values
        return list(values.flip(0).split([len(tokens) for _, tokens, _ in pieces]))

    @torch.inference_mode()
    def step(self, batch: ModelInput) -> Logits:
        """Compute a step. The next one may overwrite its logits."""
        self._backend.plan(batch)
        return self._executor(batch)


Piece: TypeAlias = tuple[int, torch.Tensor, int]
"""Number of a sequence, its next tokens, and how many are computed."""


def batch_of(pieces: list[Piece]) -> ModelInput:
    """A step of these tokens, of which each sequence's last gets logits."""
    counts = np.array([len(tokens) for _, tokens, _ in pieces])
    positions = [torch.arange(len(tokens)) + start for _, tokens, start in pieces]
    firsts = [i * MAX_BLOCKS * BLOCK_SIZE for i, _, _ in pieces]
    return ModelInput(
        token_ids=torch.cat([tokens for _, tokens, _ in pieces]),
        positions=torch.cat(positions),
        slots=torch.cat([p + first for p, first in zip(positions, firsts, strict=True)]),
        logits_indices=torch.from_numpy(np.cumsum(counts) - 1),
        query_starts=np.cumsum([0, *counts]),
        context_lens=np.array([start + len(tokens) for _, tokens, start in pieces]),
        block_tables=np.array(
            [[i * MAX_BLOCKS + b for b in range(MAX_BLOCKS)] for i, _, _ in pieces]
        ),
    )


def compiled_run(executor: CompiledExecutor, num_seqs: int) -> Run:
    """The run of an executor whose context is fixed, over a cache of its own."""
    backend = PagedCPUBackend(storage_of(executor.layers, num_seqs), executor.layers)
    executor.attach(backend)
    return Run(executor, backend)
