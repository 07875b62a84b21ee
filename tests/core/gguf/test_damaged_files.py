"""Whole loads of damaged files: each is served or refused, and nothing else happens."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.assembly.build import load_engine
from core.contract.config import EngineConfig, ModelConfig
from core.contract.errors import ModelLoadError
from core.gguf.blocks import F32
from tests.support.gguf_files import Raw, write_gguf
from tests.support.gguf_models import MODELS, in_blocks, tensors_of_file, values_of_file
from tests.support.tiny_engine import run_prompts

LIMITS = EngineConfig(max_model_len=64, max_num_seqs=2, kv_cache_memory=1 << 20, threads=1)

INTEGERS = (0, 1, 2, 3, 5, 7, 63, 128, 300, 4096, 1 << 20, (1 << 31) - 1, (1 << 32) - 1, -1)
NUMBERS = (0.0, -1.0, 1.0, 1e-38, 1e38, float("nan"), float("inf"))
TEXTS = ("", "\0", "llama", "gpt2", "t5", "qwen2", "none", "linear", "yarn", "a b", "x" * 300)


def damaged(value: Any, draw: random.Random) -> Any:
    """Another value, mostly of the same type; None for no key at all."""
    if draw.random() < 0.1:
        return draw.choice((None, 1, 0.5, "x", True))
    match value:
        case bool():
            return not value
        case int():
            return draw.choice((*INTEGERS, value + 1, 2 * value, value // 2))
        case float():
            return draw.choice((*NUMBERS, -value, 2 * value))
        case str():
            return draw.choice(TEXTS)
        case np.ndarray():
            changed = value[: draw.choice((None, -1, 0))].copy()
            if len(changed):
                changed[draw.randrange(len(changed))] = draw.choice((0, 1, 3, 4, 99))
            return changed
    changed = [*value, draw.choice(TEXTS)]
    changed[draw.randrange(len(changed))] = draw.choice(TEXTS)
    return changed


def damage_tensors(tensors: dict[str, Raw], draw: random.Random) -> None:
    """Give one tensor a shape of its own, another's values, another name, or leave it out."""
    name, other = draw.choice(list(tensors)), draw.choice(list(tensors))
    raw = tensors.pop(name)
    match draw.randrange(4):
        case 0:
            tensors[name] = tensors.get(other, raw)
        case 1:
            tensors[other] = raw
        case 2:
            rows = np.frombuffer(raw.data, np.uint8).reshape(raw.shape[0], -1)
            kept = draw.randint(1, raw.shape[0])
            tensors[name] = Raw((kept, *raw.shape[1:]), raw.kind, rows[:kept].tobytes())
        case 3 if raw.kind is F32:
            tensors[name] = Raw(raw.shape[::-1], raw.kind, raw.data)


def is_served(path: Path) -> bool:
    """Load a file and answer a text; False if it is refused."""
    try:
        loaded = load_engine(ModelConfig(model=str(path), device="cpu"), LIMITS)
    except ModelLoadError:
        return False
    prompt = loaded.tokenizer.encode("Hello <s> w\u00f6rld", add_special_tokens=True)
    [answer] = run_prompts(loaded.engine, [prompt[:40] or [5]], 4)
    loaded.tokenizer.decode(answer)
    return True


def fuzz(path: Path, family: str, count: int, seed: int) -> int:
    """Load so many damaged files; how many were served."""
    draw = random.Random(f"{family} {seed}")
    whole = values_of_file(family, **{"tokenizer.ggml.merges": ["h e", "l l"]})
    whole["tokenizer.ggml.tokens"] = [*whole["tokenizer.ggml.tokens"][:-2], "he", "ll"]
    served = 0
    for _ in range(count):
        values, tensors = dict(whole), in_blocks(tensors_of_file(family))
        if draw.random() < 0.3:
            damage_tensors(tensors, draw)
        else:
            key = draw.choice(list(values))
            values[key] = damaged(values[key], draw)
        kept = {key: value for key, value in values.items() if value is not None}
        served += is_served(write_gguf(path, kept, tensors))
    return served


@pytest.mark.slow
@pytest.mark.parametrize("family", MODELS)
def test_a_damaged_file_is_served_or_refused(tmp_path, family):
    assert 0 < fuzz(tmp_path / "m.gguf", family, 40, seed=1) < 40


@pytest.mark.soak
@pytest.mark.parametrize("family", MODELS)
def test_many_damaged_files_are_served_or_refused(tmp_path, family):
    assert 0 < fuzz(tmp_path / "m.gguf", family, 300, seed=2) < 300
