"""One model through the assembled engine, beside ``generate``."""

from __future__ import annotations

import random
import tempfile
from dataclasses import dataclass
from typing import Any, Literal

import torch
from transformers import GenerationConfig

from core.assembly.build import load_engine
from core.contract.config import EngineConfig, ModelConfig, Quantization
from core.contract.errors import ModelLoadError
from core.contract.messages import EngineRequest
from core.contract.params import SamplingParams
from core.engine.engine import Engine
from tests.support.tokenizers import byte_level
from tests.zoo.fields import CONTEXT
from tests.zoo.shrink import VOCAB_SIZE, tiny_config, tiny_model

NUM_NEW_TOKENS = 10

State = Literal["exact", "refused", "not built", "FAILED"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a family, and why."""

    state: State
    reason: str = ""


def check(family: str, fields: dict[str, Any], device: str = "cpu") -> Outcome:
    """Build and generate on a CPU; load and serve on ``device``; compare."""
    given = prompts()
    try:
        model = tiny_model(tiny_config(family, **fields))
        expected = [generated(model, prompt) for prompt in given]
    except Exception as error:  # noqa: BLE001 - transformers' own failure, listed by name
        return Outcome("not built", _line(error))
    try:
        engine = load(model.to(device))
    except ModelLoadError as error:
        return Outcome("refused", str(error))
    except Exception as error:  # noqa: BLE001 - the finding
        return Outcome("FAILED", f"at load: {_line(error)}")
    outcome = compare(engine, given, expected)
    if device == "cuda" and outcome.state == "exact":
        return Outcome("exact", "" if has_graphs(engine) else "without CUDA graphs")
    return outcome


def has_graphs(engine: Engine) -> bool:
    """Whether the engine replays CUDA graphs."""
    forward = engine._pipeline._runner._forward
    return forward is not forward.eager


def load(model: Any, quantization: Quantization = "none") -> Engine:
    """Save the model and load it as a server does."""
    config = EngineConfig(
        max_num_seqs=16,
        max_num_batched_tokens=48,
        prefill_chunk_size=24,
        block_size=4,
        kv_cache_memory=64 << 20,
        max_model_len=CONTEXT,
    )
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        byte_level().save_pretrained(folder)
        source = ModelConfig(model=folder, device=model.device.type, quantization=quantization)
        return load_engine(source, config).engine


def prompts() -> list[list[int]]:
    """Short and long ones, two with a common prefix."""
    rng = random.Random(5)
    lengths = [3, 41, 70, 9, 26]
    fresh = [[rng.randrange(3, VOCAB_SIZE - 1) for _ in range(n)] for n in lengths]
    return [*fresh, fresh[2][:33] + fresh[3]]


def generated(model: Any, prompt: list[int]) -> list[int]:
    """The oracle: transformers' own greedy ``generate`` with its own attention."""
    model.generation_config = GenerationConfig(
        max_new_tokens=NUM_NEW_TOKENS, do_sample=False, pad_token_id=0
    )
    ids = torch.tensor([prompt])
    output = model.generate(ids, attention_mask=torch.ones_like(ids))
    new: list[int] = output[0, len(prompt) :].tolist()
    if len(new) != NUM_NEW_TOKENS:
        raise ValueError(f"generate gave {len(new)} tokens")
    return new


def compare(engine: Engine, given: list[list[int]], expected: list[list[int]]) -> Outcome:
    """Serve all at once, then the last again from its cached prefix."""
    try:
        served = _run(engine, given) + _run(engine, given[-1:])
    except Exception as error:  # noqa: BLE001 - the finding
        return Outcome("FAILED", f"in a step: {_line(error)}")
    wanted = [*expected, expected[-1]]
    for tokens, right, index in zip(served, wanted, range(99), strict=False):
        if isinstance(tokens, str):
            return Outcome("FAILED", f"request {index}: {tokens}")
        if tokens != right:
            same = next(i for i, (a, b) in enumerate(zip(tokens, right, strict=True)) if a != b)
            return Outcome("FAILED", f"request {index}: {same} of {len(right)} tokens are right")
    return Outcome("exact")


def _run(engine: Engine, given: list[list[int]]) -> list[list[int] | str]:
    """Tokens of each request, or its error."""
    tokens: dict[str, list[int]] = {str(i): [] for i in range(len(given))}
    errors: dict[str, str] = {}
    waiting = list(tokens)
    params = SamplingParams(max_tokens=NUM_NEW_TOKENS, temperature=0.0, ignore_eos=True)
    while waiting or engine.has_work:
        if waiting:
            name = waiting.pop(0)
            prompt = tuple(given[int(name)])
            engine.add(EngineRequest(request_id=name, prompt_token_ids=prompt, params=params))
        for output in engine.step():
            tokens[output.request_id] += output.token_ids
            if output.error is not None:
                errors[output.request_id] = output.error
        engine.check()
    return [errors.get(name, found) for name, found in tokens.items()]


def _line(error: BaseException) -> str:
    first = next(iter(str(error).strip().splitlines()), "")
    return f"{type(error).__name__}: {first[:120]}"
