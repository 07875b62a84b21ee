"""Load: what ``benchmarks/profiles.py`` runs, a scenario with a model, as flags of the bench."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bench.shapes import RANDOM_MODELS, random_model_config
from benchmarks.scenarios import Scenario, scenarios
from benchmarks.shapes import shape_of_file
from core.gguf.names import SUFFIX


@dataclass(frozen=True)
class Load:
    """A scenario with a model; its form on the command line is ``name``."""

    name: str
    scenario: Scenario
    flags: tuple[str, ...]
    weights: str

    @classmethod
    def of(cls, name: str, scale: float) -> Load:
        """Raises ValueError for what is no load."""
        model, _, rest = name.partition(":")
        scenario, _, quantization = rest.partition(":")
        is_file = model.endswith(SUFFIX)
        flags = ["--model" if is_file else "--random-model", model]
        if quantization:
            flags += ["--quantization", quantization]
        found = scenarios(_max_model_len(model), scale).get(scenario)
        if found is None or found.kind not in ("closed", "open") or found.is_sampled:
            raise ValueError(f"{name} is no load of equal greedy requests")
        weights = quantization or ("gguf" if is_file else "bfloat16")
        return cls(name.rpartition("/")[2], found, tuple(flags), weights)

    @property
    def command(self) -> list[str]:
        """Flags of ``roseinfer bench``."""
        load = self.scenario
        low, high = load.prompt_words
        if not load.shares_prefix:
            low, high = low + load.prefix_words, high + load.prefix_words
        when = ["--concurrency", str(load.concurrency)]
        if load.kind == "open":
            when = ["--submit-interval-ms", f"{1e3 * load.interval:g}"]
        if load.shares_prefix:
            when += ["--shared-prefix-len", str(load.prefix_words)]
        size = ["--num-requests", str(load.num_requests), "--max-new-tokens", str(load.max_tokens)]
        return [*self.flags, *when, *size, "--prompt-len", f"{low}-{high}"]


def _max_model_len(model: str) -> int:
    if model.endswith(SUFFIX):
        return shape_of_file(Path(model)).max_model_len
    if model not in RANDOM_MODELS:
        raise ValueError(f"{model} is none of {', '.join(RANDOM_MODELS)}")
    return int(random_model_config(model).max_position_embeddings)
