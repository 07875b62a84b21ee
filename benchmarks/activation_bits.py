"""Rounds a model's weights and activations in torch and measures how far its output moves.

    python -m benchmarks.activation_bits MODEL_DIRECTORY TEXT_FILE [--tokens 400]

It needs no kernel, so it can say whether one is worth writing. Each line is one way to round the
linear layers: weights to 8 bits with a scale per row, and activations to integers with a scale for
so many columns of a row. It gives the distance from the float32 model over the text: KL divergence
in nats per token, the share of equal best tokens, and the perplexity of the rounded model.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn
from transformers import AutoModelForCausalLM, AutoTokenizer


class Rounding(NamedTuple):
    """The largest integer of an activation, and the columns of a row with a scale in common."""

    most: int
    columns: int


ROUNDINGS = {
    "16 bits, 256 columns": Rounding(32767, 256),
    "16 bits, 1,024 columns": Rounding(32639, 1024),
    "8 bits, 32 columns": Rounding(127, 32),
    "8 bits, 64 columns": Rounding(127, 64),
    "8 bits, 256 columns": Rounding(127, 256),
}


def rounded(x: torch.Tensor, most: int, columns: int) -> torch.Tensor:
    """``x`` as integers up to ``most`` times a scale for each run of columns."""
    runs = []
    for run in torch.split(x, columns, -1):
        scale = (run.abs().amax(-1, keepdim=True) / most).clamp_min(1e-30)
        runs.append((run / scale).round() * scale)
    return torch.cat(runs, -1)


class RoundedLinear(nn.Module):
    """A linear layer whose weights and inputs are rounded."""

    def __init__(self, original: nn.Linear, rounding: Rounding) -> None:
        super().__init__()
        weight = original.weight.data
        self._weight = rounded(weight, 127, weight.shape[1])
        self._bias = original.bias
        self._rounding = rounding

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply ``[..., in_features]``."""
        return nn.functional.linear(rounded(x, *self._rounding), self._weight, self._bias)


def logprobs(folder: Path, ids: torch.Tensor, rounding: Rounding | None) -> torch.Tensor:
    """Of every position: [num_tokens, vocab_size]."""
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
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
    parser.add_argument("model", type=Path)
    parser.add_argument("text", type=Path)
    parser.add_argument("--tokens", type=int, default=400)
    options = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    ids = torch.tensor(tokenizer(options.text.read_text("utf-8")).input_ids[: options.tokens])
    reference = logprobs(options.model, ids, None)
    for name, rounding in ROUNDINGS.items():
        found = logprobs(options.model, ids, rounding)
        kl = (reference.exp() * (reference - found)).sum(-1).mean().item()
        share = (reference.argmax(-1) == found.argmax(-1)).float().mean().item()
        perplexity = math.exp(-found[:-1].gather(1, ids[1:, None]).mean().item())
        print(f"{name:24} KL {kl:.5f}  equal {share:.1%}  perplexity {perplexity:.3f}", flush=True)


if __name__ == "__main__":
    main()
