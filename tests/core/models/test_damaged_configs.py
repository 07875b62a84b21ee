"""Whole loads with damaged config.json files: each is served or refused, nothing else happens."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from core.assembly.build import load_engine
from core.contract.config import EngineConfig, ModelConfig
from core.contract.errors import ModelLoadError
from core.kernels.cpu.library import kernels
from core.models.families import FAMILIES, describe
from core.models.sizes import num_parameters
from tests.core.models.cases import CASES, Case
from tests.core.models.twins import config_of, draw
from tests.support.tiny_engine import run_prompts
from tests.support.tokenizers import byte_level

pytestmark = pytest.mark.skipif(kernels() is None, reason="no C++ compiler")

LIMITS = EngineConfig(max_model_len=64, max_num_seqs=2, kv_cache_memory=4 << 20, threads=1)

INTEGERS = (0, 1, 2, 3, 7, -1, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 64) + 1, 10**400)
NUMBERS = (0, 1, 0.0, 0.3, -1.0, 1e-300, 1e38, 1e300, 10**400, float("nan"), float("inf"))
OTHERS = (None, "x", [], {}, True, 3, 1.5)
TEXTS = ("x", "", "relu", "gelu", "linear", "yarn", "default", "sliding_attention")
SHOWN = {"model_type", "architectures", "transformers_version", "dtype"}

MOST = 3_000_000
"""Parameters of a model that is made anew."""


def damaged(value: Any, pick: random.Random) -> Any:
    """Another value, mostly of the same type."""
    if pick.random() < 0.1:
        return pick.choice(OTHERS)
    match value:
        case bool():
            return not value
        case int():
            return pick.choice((*INTEGERS, value + 1, 2 * value, 3 * value, value // 2, 1.5))
        case float():
            return pick.choice((*NUMBERS, -value, 2 * value))
        case str():
            return pick.choice(TEXTS)
        case list() if value:
            i = pick.randrange(len(value))
            return pick.choice((value[:-1], [*value, value[0]], [damaged(value[i], pick)]))
        case dict() if value:
            key = pick.choice(list(value))
            return {**value, key: damaged(value[key], pick)}
    return pick.choice((*INTEGERS, *OTHERS))


def damage(values: dict[str, Any], pick: random.Random) -> dict[str, Any]:
    """Change or leave out one or two keys."""
    values = copy.deepcopy(values)
    for key in pick.sample(sorted(values.keys() - SHOWN), pick.choice((1, 1, 1, 2))):
        values[key] = damaged(values[key], pick)
        if pick.random() < 0.07:
            del values[key]
    return values


def fit_tensors(values: dict[str, Any], folder: Path) -> None:
    """Save tensors of the shapes that a configuration says, if transformers can make them."""
    try:
        if num_parameters(describe(values, LIMITS.max_model_len or 0)[0]) > MOST:
            return
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**values))
    except Exception:  # noqa: BLE001 - any error of transformers' code
        return
    draw(model)
    model.save_pretrained(folder)


def is_served(folder: Path) -> bool:
    """Load a folder and answer a prompt; False if it is refused."""
    try:
        loaded = load_engine(ModelConfig(model=str(folder), device="cpu", dtype="float32"), LIMITS)
    except ModelLoadError:
        return False
    prompt = [i % loaded.info.num_token_ids for i in range(40)]
    run_prompts(loaded.engine, [prompt], 4)
    return True


def fuzz(case: Case, folder: Path, count: int, seed: int) -> int:
    """Load with so many damaged configurations; how many were served."""
    pick = random.Random(f"{case} {seed}")
    torch.manual_seed(seed)
    fields = {key: 400 for key in case.fields if key == "vocab_size_per_layer_input"}
    config = config_of(Case(case.family, {**case.fields, **fields, "vocab_size": 400}))
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    draw(model)
    byte_level().save_pretrained(folder)
    served = 0
    for _ in range(count):
        model.save_pretrained(folder)
        path = folder / "config.json"
        values = damage(json.loads(path.read_text()), pick)
        if pick.random() < 0.4:
            fit_tensors(values, folder)
        path.write_text(json.dumps(values))
        (folder / "generation_config.json").unlink(missing_ok=True)
        served += is_served(folder)
    return served


SOME = ["deepseek_v3", "gemma4_text", "gpt2", "gpt_oss", "llama4_text", "mimo_v2_flash", "phi3"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning")  # of transformers
@pytest.mark.parametrize("family", SOME)
def test_a_damaged_configuration_is_served_or_refused(tmp_path: Path, family: str) -> None:
    case = next(case for case in CASES if case.family == family)
    assert 0 < fuzz(case, tmp_path, 15, seed=1) < 15


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning")
@pytest.mark.parametrize("family", FAMILIES)
def test_many_damaged_configurations_are_served_or_refused(tmp_path: Path, family: str) -> None:
    case = next(case for case in CASES if case.family == family)
    assert 0 < fuzz(case, tmp_path, 60, seed=2) < 60
