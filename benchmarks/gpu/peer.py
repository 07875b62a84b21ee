"""transformers' continuous batching under the same loads, all requests at once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import torch

from benchmarks.gpu import loads
from benchmarks.gpu.options import LARGE, Options, free_memory
from benchmarks.gpu.rows import Row, row_of
from benchmarks.load import Sent, figures, make_prompts
from benchmarks.scenarios import Scenario, closed


def peer(options: Options) -> Iterator[Row]:
    """Run the loads whose requests come all at once."""
    for name, scenarios in (("gpt2", (loads.OFFLINE,)), (LARGE, loads.CONCURRENT)):
        model = Peer(options, name)
        for scenario in scenarios:
            load = loads.fit(_at_once(scenario), tiny=options.tiny)
            try:
                yield {"name": f"{name} {load.name}", **row_of(model.run(load, seed="peer"))}
            except Exception as error:  # noqa: BLE001 - other people's code; the next load may work
                yield {"name": f"{name} {load.name}", "skipped": f"{type(error).__name__}: {error}"}
        model.close()


def _at_once(scenario: Scenario) -> Scenario:
    """The scenario with as many requests as it runs concurrently."""
    if scenario.num_requests <= scenario.concurrency:
        return scenario
    return closed(scenario.name, scenario.concurrency, scenario.concurrency, 1024, 256)


class Peer:
    """A model under transformers' continuous batching; ``close`` frees its memory."""

    def __init__(self, options: Options, name: str) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: PLC0415 - slow

        directory = options.model(name)
        self._tokenizer = AutoTokenizer.from_pretrained(directory)
        self._model: Any = AutoModelForCausalLM.from_pretrained(
            directory, dtype=getattr(torch, options.dtype()), attn_implementation="sdpa"
        )
        self._model = self._model.to(options.device).eval()

    def run(self, scenario: Scenario, *, seed: str) -> dict[str, Any]:
        """The figures of a scenario whose requests come all at once.

        Runs it twice, with different prompts, and measures the second run: the first one captures
        CUDA graphs and allocates the cache.
        """
        assert scenario.num_requests <= scenario.concurrency
        try:
            self._answers(scenario, f"{seed} before")
            sent = self._answers(scenario, seed)
        finally:
            self._model.destroy_cached_continuous_batching_manager()
        if len(sent) < scenario.num_requests:
            raise RuntimeError(f"{scenario.num_requests - len(sent)} requests were not answered")
        return figures(sent, None, is_cut=False, now=time.perf_counter())

    def _answers(self, scenario: Scenario, seed: str) -> list[Sent]:
        from transformers import GenerationConfig  # noqa: PLC0415 - slow to import

        prompts, _ = make_prompts(scenario, seed)
        answers = self._model.generate_batch(
            inputs=[self._tokenizer(prompt)["input_ids"] for prompt in prompts],
            generation_config=GenerationConfig(
                max_new_tokens=scenario.max_tokens, do_sample=False, eos_token_id=-1, pad_token_id=0
            ),
            record_timestamps=True,
            progress_bar=False,
            persistent_manager=True,
        )
        return [_sent(answer) for answer in answers.values()]

    def close(self) -> None:
        del self._model
        free_memory()


def _sent(answer: Any) -> Sent:
    sent = Sent(submit=answer.created_time, is_over=True)
    record = sent.record
    record.token_times = list(answer.timestamps or ())
    record.end = record.token_times[-1] if record.token_times else answer.lifespan[1]
    record.completion_tokens = len(answer.generated_tokens)
    record.prompt_tokens = len(answer.prompt_ids)
    record.error = answer.error
    record.finish_reason = "length"
    return sent
