"""Perplexity of the built-in model on held-out text, by the format of its weights.

    python -m benchmarks.quantization [--batches 40]

The first line is transformers' own model in float32. The others have its linear layers replaced by
the compiled kernels, in each format. The model is small, and quantization costs a small model more
than a large one.
"""

from __future__ import annotations

import argparse
import math
from typing import Any

import torch
from core.fusion.cpu.catalogue import fuse_for_cpu
from transformers import AutoModelForCausalLM, AutoTokenizer

from core import builtin_model
from core.kernels.cpu.library import kernels
from core.kernels.cpu.linear import Format
from training.corpus import held_out_examples
from training.packing import encode, pack
from training.tokenizer import END_OF_TEXT
from training.train import mean_loss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--batches", type=int, default=40, help="of 2,048 tokens each")
    options = parser.parse_args()
    compiled = kernels()
    assert compiled is not None, "this needs the compiled kernels"
    tokenizer = AutoTokenizer.from_pretrained(builtin_model.path())
    pad = int(tokenizer.convert_tokens_to_ids(END_OF_TEXT))
    batches = pack(encode(held_out_examples(1), tokenizer), pad, 1)[: options.batches]
    for fmt in (None, *Format):
        model: Any = AutoModelForCausalLM.from_pretrained(builtin_model.path(), dtype=torch.float32)
        model.eval().requires_grad_(requires_grad=False)
        if fmt is not None:
            fuse_for_cpu(compiled, model, [], fmt)  # fused layers accept packed batches only
        loss = mean_loss(model, batches)
        name = "transformers" if fmt is None else fmt.name.lower()
        print(f"{name:12} loss {loss:.5f}  perplexity {math.exp(loss):.4f}", flush=True)


if __name__ == "__main__":
    main()
