"""Compares quantised models with a float32 reference, token by token, over 20,000 tokens of text.

    python -m benchmarks.quality FILE... [--reference MODEL] [--llama PROGRAM] [--tokens 20480]

FILE is a GGUF file, or a model with ``=int4`` or ``=int8`` behind it for ``--quantization``. The
reference is transformers' own forward pass in float32: of the values of the first FILE, or of
MODEL. With PROGRAM, which benchmarks/llama_logits.cpp tells how to build, llama.cpp computes the
same tokens of each GGUF file.

Each line gives the perplexity relative to the reference with its standard error, the KL divergence
from it in nats per token, and the share of tokens with the same best successor. Half of the text is
our documentation, half comes from the generators of the built-in model's corpus.
"""

from __future__ import annotations

import argparse
import math
import subprocess
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from benchmarks.quality_text import WINDOW, windows
from core.assembly.build import load_engine
from core.batch.model_input import ModelInput
from core.contract.config import EngineConfig, ModelConfig, Quantization
from core.contract.messages import EngineRequest
from core.contract.params import SamplingParams
from core.module.loader import load_model

SHOWN = 8
"""Sequences after which the figures so far are printed, as they are at the end."""

PIECE = 64
"""Rows of log-probabilities that exist at a time."""


class Contender(Protocol):
    """Gives logits ``[num_tokens, vocab_size]`` of a sequence, float32."""

    name: str

    def logits(self, ids: list[int]) -> torch.Tensor: ...


class Reference:
    """transformers' own forward pass in float32."""

    name = "reference"

    def __init__(self, model: str) -> None:
        config = ModelConfig(model=model, device="cpu", dtype="float32")
        self._model: Any = load_model(config).module

    @torch.inference_mode()
    def logits(self, ids: list[int]) -> torch.Tensor:
        logits: torch.Tensor = self._model(torch.tensor([ids])).logits[0]
        return logits


class Ours:
    """The engine, as it serves."""

    def __init__(self, model: str) -> None:
        source, _, quantization = model.partition("=")
        self.name = f"roseinfer {Path(source).name} {quantization}".strip()
        chosen: Quantization = quantization or "none"  # type: ignore[assignment]
        config = EngineConfig(
            max_model_len=2 * WINDOW, kv_cache_memory=256 << 20, enable_prefix_caching=False
        )
        loaded = load_engine(ModelConfig(model=source, device="cpu", quantization=chosen), config)
        self.tokenizer = loaded.tokenizer
        self._engine = loaded.engine
        self._rows: list[torch.Tensor] = []
        runner: Any = self._engine._pipeline._runner  # noqa: SLF001 - to see all logits
        self._forward, runner._forward = runner._forward, self._recorded  # noqa: SLF001

    def _recorded(self, batch: ModelInput) -> Any:
        logits = self._forward(batch)
        self._rows.append(logits.values.clone())  # the memory is written again
        return logits

    def logits(self, ids: list[int]) -> torch.Tensor:
        self._rows.clear()
        params = SamplingParams(max_tokens=1, temperature=0.0, prompt_logprobs=0)
        request = EngineRequest(request_id="scored", prompt_token_ids=tuple(ids), params=params)
        self._engine.add(request)
        while self._engine.has_work:
            self._engine.step()
        return torch.cat(self._rows)


class LlamaCpp:
    """llama.cpp, in a process of its own."""

    def __init__(self, program: str, file: str, vocab_size: int) -> None:
        self.name = f"llama.cpp {Path(file).name}"
        self._vocab_size = vocab_size
        command = [program, file, str(torch.get_num_threads())]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def logits(self, ids: list[int]) -> torch.Tensor:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(np.array([len(ids), *ids], np.int32).tobytes())
        stdin.flush()
        data = bytearray(stdout.read(len(ids) * self._vocab_size * 4))
        return torch.frombuffer(data, dtype=torch.float32).view(len(ids), self._vocab_size)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


class Distance:
    """Sums over tokens."""

    def __init__(self) -> None:
        self._losses: list[torch.Tensor] = []
        self._kl = 0.0
        self._num_equal = 0
        self._num_tokens = 0

    def add(self, reference: torch.Tensor, found: torch.Tensor, ids: list[int]) -> None:
        next_ids = torch.tensor([*ids[1:], 0])[:, None]
        for at in range(0, len(ids), PIECE):
            rows = slice(at, at + PIECE)
            wanted = reference[rows].log_softmax(-1)
            actual = found[rows].log_softmax(-1)
            self._kl += (wanted.exp() * (wanted - actual)).sum().item()
            self._num_equal += int((wanted.argmax(-1) == actual.argmax(-1)).sum())
            more = (wanted - actual).gather(1, next_ids[rows])[:, 0].double()
            self._losses.append(more[:-1] if at + PIECE >= len(ids) else more)
        self._num_tokens += len(ids)

    def __str__(self) -> str:
        losses = torch.cat(self._losses)
        mean, error = losses.mean().item(), (losses.std() / len(losses) ** 0.5).item()
        return (
            f"perplexity {math.exp(mean) - 1:+.2%} ± {error:.2%}, "
            f"KL {self._kl / self._num_tokens:.5f}, "
            f"equal {self._num_equal / self._num_tokens:.1%}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("--reference", metavar="MODEL")
    parser.add_argument("--llama", metavar="PROGRAM")
    parser.add_argument("--tokens", type=int, default=40 * WINDOW)
    options = parser.parse_args()
    ours = [Ours(file) for file in options.files]
    reference = Reference(options.reference or options.files[0].partition("=")[0])
    tokenizer = ours[0].tokenizer
    contenders: list[Contender] = [*ours]
    peers = []
    if options.llama:
        files = [file for file in options.files if file.endswith(".gguf")]
        peers = [LlamaCpp(options.llama, file, tokenizer.vocab_size) for file in files]
        contenders += peers
    distances = [Distance() for _ in contenders]
    for number, ids in enumerate(windows(tokenizer, options.tokens), start=1):
        wanted = reference.logits(ids)
        for contender, distance in zip(contenders, distances, strict=True):
            distance.add(wanted, contender.logits(ids), ids)
        if number % SHOWN == 0 or number * WINDOW >= options.tokens:
            print(f"{number * WINDOW} tokens", flush=True)
            for contender, distance in zip(contenders, distances, strict=True):
                print(f"{contender.name:40} {distance}", flush=True)
    for peer in peers:
        peer.close()


if __name__ == "__main__":
    main()
