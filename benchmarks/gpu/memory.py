"""Measures the memory use of a default engine, and checks that it survives a lack of memory."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import torch

from bench.words import random_prompt
from benchmarks.gpu.options import Options
from benchmarks.gpu.rows import Row
from core.contract.messages import EngineRequest
from core.contract.params import SamplingParams


def memory(options: Options) -> Iterator[Row]:
    """A step that runs out of memory must fail its request and no other."""
    with options.engine("gpt2") as loaded:
        prompt = random_prompt(random.Random(0), 20)
        ids = loaded.tokenizer.encode(prompt, add_special_tokens=True)
        params = SamplingParams(max_tokens=4, ignore_eos=True)
        row: Row = {"name": "memory", "kv_tokens": loaded.info.num_kv_tokens}
        if options.device == "cuda":
            free, total = torch.cuda.mem_get_info()
            row |= {"total_gib": total / 2**30, "used_share": 1 - free / total}
        engine: Any = loaded.engine
        runner = engine._pipeline._runner  # noqa: SLF001 - to make a step fail
        launch = runner.launch

        def fail(*_arguments: object) -> None:
            raise torch.OutOfMemoryError("out of memory, simulated")

        succeeded = []
        for name, step in (("fails", fail), ("succeeds", launch)):
            runner.launch = step
            engine.add(EngineRequest(request_id=name, prompt_token_ids=tuple(ids), params=params))
            outputs = []
            while engine.has_work:
                outputs += engine.step()
            succeeded.append(outputs[-1].error is None)
        yield row | {"ok": succeeded == [False, True]}
