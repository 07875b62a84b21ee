"""Trains the built-in model from scratch: ``python -m training.train --out DIRECTORY``."""

import argparse
import json
import math
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from torch.nn import functional
from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from training.corpus import held_out_examples, training_examples
from training.evaluate import report
from training.muon import Muon
from training.packing import Batch, encode, pack, render
from training.tokenizer import CONTEXT, END_OF_TEXT, TURN_END, train_tokenizer

MATRIX_RATE = 0.003
VECTOR_RATE = 0.003
DECAY = 0.1
WARM_UP = 0.02


def configuration(tokenizer: PreTrainedTokenizerFast) -> Qwen3Config:
    """A Qwen3 decoder of two million parameters."""
    return Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=160,
        intermediate_size=448,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.convert_tokens_to_ids(TURN_END),
        pad_token_id=tokenizer.convert_tokens_to_ids(END_OF_TEXT),
        dtype="float32",
    )


def loss_of(model: Qwen3ForCausalLM, batch: Batch) -> torch.Tensor:
    """The weighted mean cross-entropy of a batch."""
    hidden = model.model(input_ids=batch.ids, use_cache=False).last_hidden_state[:, :-1]
    weights = batch.weights[:, 1:]
    used = weights > 0
    losses = functional.cross_entropy(
        model.lm_head(hidden[used]), batch.ids[:, 1:][used], reduction="none"
    )
    return (losses * weights[used]).sum() / weights.sum()


def learn(model: Qwen3ForCausalLM, batches: Sequence[Batch], minutes: float) -> int:
    """Train with one step per batch; returns the number of steps.

    The learning rate decays to zero at the last batch or at the time limit, whichever is first.
    """
    matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n]
    others = [p for n, p in model.named_parameters() if p.ndim != 2 or "embed" in n]
    muon = Muon(matrices)
    adam = torch.optim.AdamW(others, betas=(0.9, 0.98), weight_decay=0.0)
    began = time.monotonic()
    average = 0.0
    taken = 0
    for step, batch in enumerate(batches):
        done = max(step / len(batches), (time.monotonic() - began) / (60 * minutes))
        if done >= 1:
            break
        factor = min((step + 1) / (WARM_UP * len(batches) + 1), 1.0)
        factor *= 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * done))
        loss = loss_of(model, batch)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(others, 1.0)
        adam.param_groups[0]["lr"] = VECTOR_RATE * factor
        adam.step()
        adam.zero_grad()
        muon.step(MATRIX_RATE * factor, DECAY)
        taken += 1
        average = loss.item() if step == 0 else 0.98 * average + 0.02 * loss.item()
        if step % 50 == 0:
            spent = time.monotonic() - began
            print(f"step {step}/{len(batches)} loss {average:.4f} {spent:.0f} s", flush=True)
    return taken


@torch.no_grad()
def mean_loss(model: Qwen3ForCausalLM, batches: Sequence[Batch]) -> float:
    return sum(loss_of(model, batch).item() for batch in batches) / len(batches)


def save(model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, out: Path) -> None:
    """Write the Hugging Face files. Values are rounded to bfloat16 and stored as float32."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.to(torch.bfloat16).float())
    model.generation_config = GenerationConfig(
        eos_token_id=[
            int(tokenizer.convert_tokens_to_ids(TURN_END)),
            int(tokenizer.convert_tokens_to_ids(END_OF_TEXT)),
        ],
        pad_token_id=int(tokenizer.convert_tokens_to_ids(END_OF_TEXT)),
        do_sample=True,
        temperature=0.3,
        top_p=0.9,
    )
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    for file in out.iterdir():
        file.chmod(0o644)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for the model's files")
    parser.add_argument("--examples", type=int, default=75_000)
    parser.add_argument("--minutes", type=float, default=45.0, help="limit of the training loop")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--start-from", type=Path, help="continue from the model in this folder")
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    began = time.monotonic()
    examples = training_examples(options.seed, options.examples)
    if options.start_from is None:
        plain = train_tokenizer([])
        tokenizer = train_tokenizer(render(example, plain) for example in examples[:30_000])
    else:
        tokenizer = PreTrainedTokenizerFast.from_pretrained(options.start_from)
    pad = int(tokenizer.convert_tokens_to_ids(END_OF_TEXT))
    encoded = encode(examples, tokenizer)
    batches = pack(encoded, pad, options.seed)
    held_out = pack(encode(held_out_examples(options.seed), tokenizer), pad, options.seed)
    tokens = sum(len(example.ids) for example in encoded)
    print(f"{len(examples)} examples, {tokens} tokens, {len(batches)} batches", flush=True)
    if options.start_from is None:
        model = Qwen3ForCausalLM(configuration(tokenizer))
    else:
        model = Qwen3ForCausalLM.from_pretrained(options.start_from)
    print(f"{sum(p.numel() for p in model.parameters())} parameters", flush=True)
    model.train()
    steps = learn(model, batches, options.minutes)
    model.eval()
    save(model, tokenizer, options.out)
    results = {
        "parameters": sum(p.numel() for p in model.parameters()),
        "examples": len(examples),
        "tokens": tokens,
        "steps": steps,
        "batches": len(batches),
        "minutes": round((time.monotonic() - began) / 60, 1),
        "held_out_loss": round(mean_loss(model, held_out), 4),
    }
    print(json.dumps(results), flush=True)
    report(options.out)


if __name__ == "__main__":
    main()
