"""Rounds a model's weights and activations in torch and measures how far its output moves.

    python -m benchmarks.activation_bits MODEL TEXT_FILE [--tokens 400]

It needs no kernel, so it can say whether one is worth writing. Each line is one way to round the
linear layers: weights to 8 bits with a scale per row, and activations to integers with a scale for
so many columns of a row. Rotated ones have both multiplied by random signs and a Hadamard matrix in
blocks before, as source/linear/rotate.h does. It gives the distance from the float32
model over the text: KL divergence in nats per token, the share of equal best tokens, and the
perplexity of the rounded model.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from core.contract.config import ModelConfig
from core.module.loader import load_model
from core.text.tokenizer import Tokenizer


class Rounding(NamedTuple):
    """The largest integer of an activation, and the columns of a row with a scale in common.

    ``rotated`` is the number of columns of a block that is rotated, or 0.
    """

    most: int
    columns: int
    rotated: int = 0


ROUNDINGS = {
    "16 bits, 256 columns": Rounding(32767, 256),
    "16 bits, 1,024 columns": Rounding(32639, 1024),
    "8 bits, 32 columns": Rounding(127, 32),
    "8 bits, 64 columns": Rounding(127, 64),
    "8 bits, 256 columns": Rounding(127, 256),
    "16 bits, rotated": Rounding(32767, 256, 256),
    "8 bits, 32 columns, rotated": Rounding(127, 32, 32),
    "8 bits, 256 columns, rotated": Rounding(127, 256, 256),
}


def rounded(x: torch.Tensor, most: int, columns: int) -> torch.Tensor:
    """``x`` as integers up to ``most`` times a scale for each run of columns."""
    runs = []
    for run in torch.split(x, columns, -1):
        scale = (run.abs().amax(-1, keepdim=True) / most).clamp_min(1e-30)
        runs.append((run / scale).round() * scale)
    return torch.cat(runs, -1)


def rotation(size: int) -> torch.Tensor:
    """Random signs times a Hadamard matrix: ``[size, size]``, orthogonal; size is a power of 2."""
    matrix = torch.ones(1, 1)
    while len(matrix) < size:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    signs = torch.randint(2, (size, 1), generator=torch.Generator().manual_seed(0)) * 2 - 1
    result: torch.Tensor = signs * matrix / size**0.5
    return result


def turned(x: torch.Tensor, block: int) -> torch.Tensor:
    """``x`` rotated in blocks of columns, and in smaller ones behind the last whole block."""
    runs, start, size = [], 0, x.shape[-1]
    while block and start < size:
        while block > size - start:
            block //= 2
        runs.append(x[..., start : start + block] @ rotation(block))
        start += block
    return torch.cat(runs, -1) if runs else x


class RoundedLinear(nn.Module):
    """A linear layer whose weights and inputs are rounded."""

    def __init__(self, original: nn.Linear, rounding: Rounding) -> None:
        super().__init__()
        weight = turned(original.weight.data, rounding.rotated)
        self._weight = rounded(weight, 127, weight.shape[1])
        self._bias = original.bias
        self._rounding = rounding

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply ``[..., in_features]``."""
        most, columns, block = self._rounding
        sharp = rounded(turned(x, block), most, columns)
        return nn.functional.linear(sharp, self._weight, self._bias)


def logprobs(source: str, ids: torch.Tensor, rounding: Rounding | None) -> torch.Tensor:
    """Of every position: [num_tokens, vocab_size]."""
    model: Any = load_model(ModelConfig(model=source, device="cpu", dtype="float32")).module
    names = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    for name in names if rounding else ():
        assert rounding is not None
        parent, _, last = name.rpartition(".")
        module = model.get_submodule(name)
        setattr(model.get_submodule(parent), last, RoundedLinear(module, rounding))
    with torch.inference_mode():
        result: torch.Tensor = model(ids[None]).logits[0].log_softmax(-1)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("text", type=Path)
    parser.add_argument("--tokens", type=int, default=400)
    options = parser.parse_args()
    text = options.text.read_text("utf-8")
    tokens = Tokenizer.load(options.model).encode(text, add_special_tokens=True)
    ids = torch.tensor(tokens[: options.tokens])
    reference = logprobs(options.model, ids, None)
    for name, rounding in ROUNDINGS.items():
        found = logprobs(options.model, ids, rounding)
        kl = (reference.exp() * (reference - found)).sum(-1).mean().item()
        share = (reference.argmax(-1) == found.argmax(-1)).float().mean().item()
        perplexity = math.exp(-found[:-1].gather(1, ids[1:, None]).mean().item())
        print(f"{name:28} KL {kl:.5f}  equal {share:.1%}  perplexity {perplexity:.3f}", flush=True)


if __name__ == "__main__":
    main()
