"""Time of decode steps with a grammar per sequence, compared with steps without grammars."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from benchmarks.structured.model import SHAPES, make_model
from core.assembly.build import LoadedEngine, load_engine
from core.contract.config import EngineConfig, ModelConfig
from core.contract.grammar import Grammar, json_schema
from core.contract.messages import EngineRequest
from core.contract.params import SamplingParams

BATCH = 32
PROMPT_TOKENS = 32
OUTPUT_TOKENS = 64


def overhead(shape: str, model: Path, dtype: str, num_turns: int) -> None:
    """Print the ratio of step times, constrained to unconstrained, turn by turn."""
    if not model.exists():
        make_model(SHAPES[shape], model)
    loaded = load_engine(
        ModelConfig(model=str(model), device="cpu", dtype=dtype),  # type: ignore[arg-type]
        EngineConfig(max_num_seqs=BATCH, max_model_len=1024, seed=0),
    )
    grammars = [json_schema(endless_schema(i)) for i in range(BATCH)]
    for grammar in grammars:
        loaded.grammar_compiler.check(grammar)
    free: list[Grammar | None] = [None] * BATCH
    step_times(loaded, free, seed=-1)  # warm-up
    step_times(loaded, grammars, seed=-1)
    ratios = []
    for turn in range(num_turns):
        first = statistics.median(step_times(loaded, free, seed=turn))
        second = statistics.median(step_times(loaded, grammars, seed=turn))
        ratios.append(second / first)
        print(
            f"turn {turn}: free {1000 * first:.2f} ms, constrained {1000 * second:.2f} ms, "
            f"ratio {second / first:.3f}",
            flush=True,
        )
    print(
        f"{shape}, {dtype}, batch {BATCH}, {torch.get_num_threads()} threads: constrained steps "
        f"take {statistics.median(ratios):.3f} times as long as free ones (median of turns; "
        f"{min(ratios):.3f} to {max(ratios):.3f})"
    )


def step_times(loaded: LoadedEngine, grammars: Iterable[Grammar | None], seed: int) -> list[float]:
    """Seconds of each step that gave every sequence one token."""
    rng = random.Random(seed)
    for i, grammar in enumerate(grammars):
        prompt = tuple(rng.randrange(300, 3000) for _ in range(PROMPT_TOKENS))
        params = SamplingParams(
            max_tokens=OUTPUT_TOKENS, seed=i, ignore_eos=grammar is None, grammar=grammar
        )
        loaded.engine.add(
            EngineRequest(request_id=f"{seed}-{i}", prompt_token_ids=prompt, params=params)
        )
    times = []
    counts: dict[str, int] = {}
    while loaded.engine.has_work:
        was_decoding = len(counts) == BATCH
        start = time.perf_counter()
        outputs = loaded.engine.step()
        seconds = time.perf_counter() - start
        for output in outputs:
            assert output.error is None, output.error
            counts[output.request_id] = output.num_output_tokens
        if was_decoding and len(outputs) == BATCH:
            times.append(seconds)
    assert set(counts.values()) == {OUTPUT_TOKENS}, "an answer ended early"
    return times


def endless_schema(number: int) -> dict[str, Any]:
    """A list of records that is too long to finish. Every number gives a different schema."""
    record: dict[str, Any] = {
        "type": "object",
        "properties": {
            f"name_{number}": {"type": "string"},
            "age": {"type": "integer", "minimum": 0, "maximum": 150},
            "email": {"type": "string", "pattern": r"^[a-z]{3,9}@[a-z]{3,9}\.(com|org)$"},
            "kind": {"enum": ["person", "robot", "cat"]},
            "tags": {"type": "array", "items": {"type": "string", "maxLength": 10}, "maxItems": 3},
            "place": {
                "type": "object",
                "properties": {"x": {"type": "number"}, "y": {"type": "number"}},
                "required": ["x", "y"],
                "additionalProperties": False,
            },
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        },
        "additionalProperties": False,
    }
    record["required"] = list(record["properties"])
    return {"type": "array", "items": record, "minItems": 200}
