"""Runs scenarios on OpenVINO GenAI in this process, without HTTP.

    PYTHON -m benchmarks.openvino_child DIR --max-model-len N --slots N --threads N --cache-gib N

PYTHON needs openvino-genai and msgspec; DIR is an exported model (``benchmarks/peers.md``).
``benchmarks/compare.py`` starts it; ``benchmarks/jobs.py`` has the protocol. The event loop steps
the pipeline while requests live, and runs the load between two steps.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openvino_genai

from bench.records import RequestTimes
from benchmarks.jobs import answer_jobs
from benchmarks.load import OnToken
from benchmarks.scenarios import GREEDY

MAX_BATCHED_TOKENS = 2048
"""Tokens of a step; a longer prompt is split."""


@dataclass
class Live:
    """A request that the pipeline still works on."""

    handle: Any
    record: RequestTimes
    on_token: OnToken | None
    ended: asyncio.Future[None]


class OpenVinoClient:
    """Submits prompts to one pipeline. Event loop only."""

    def __init__(self, options: argparse.Namespace) -> None:
        """Load the model."""
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.cache_size = options.cache_gib
        scheduler.max_num_seqs = options.slots
        scheduler.max_num_batched_tokens = MAX_BATCHED_TOKENS
        scheduler.dynamic_split_fuse = True
        scheduler.enable_prefix_caching = True
        properties = {
            "INFERENCE_PRECISION_HINT": "bf16",
            "INFERENCE_NUM_THREADS": options.threads,
        }
        self._pipeline = openvino_genai.ContinuousBatchingPipeline(
            str(options.directory), scheduler, "CPU", properties
        )
        self._tokenizer = self._pipeline.get_tokenizer()
        self._numbers = itertools.count()
        self._live: list[Live] = []
        self._stepping: asyncio.Task[None] | None = None
        self.sampling: Mapping[str, float] = GREEDY

    async def run(
        self, prompt: str, max_tokens: int, on_token: OnToken | None = None
    ) -> RequestTimes:
        """Generate ``max_tokens`` tokens."""
        record = RequestTimes(submit=time.perf_counter())
        ids = self._tokenizer.encode(prompt).input_ids
        record.prompt_tokens = ids.shape[1]
        handle = self._pipeline.add_request(next(self._numbers), ids, self._config(max_tokens))
        ended = asyncio.get_running_loop().create_future()
        live = Live(handle, record, on_token, ended)
        self._live.append(live)
        if self._stepping is None or self._stepping.done():
            self._stepping = asyncio.create_task(self._step_while_live())
        try:
            await ended
        finally:
            if not ended.done() or ended.cancelled():
                handle.cancel()
                self._live.remove(live)
        return record

    def _config(self, max_tokens: int) -> Any:
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens = max_tokens
        config.ignore_eos = True
        config.do_sample = self.sampling["temperature"] > 0
        if config.do_sample:
            for name, value in self.sampling.items():
                if hasattr(config, name):
                    setattr(config, name, value)
        return config

    async def _step_while_live(self) -> None:
        try:
            while self._live:
                self._pipeline.step()
                self._read()
                await asyncio.sleep(0)  # the load sends and counts between two steps
        except Exception as error:  # noqa: BLE001 - without it the waiting requests never end
            for live in self._live:
                live.record.error = f"{type(error).__name__}: {error}"
                self._end(live)
            self._live.clear()

    def _read(self) -> None:
        """Read what the last step has generated."""
        now = time.perf_counter()
        for live in list(self._live):
            while live.handle.can_read():
                for output in live.handle.read().values():
                    live.record.completion_tokens += len(output.generated_ids)
                    live.record.token_times.append(now)
                    if live.on_token is not None:
                        live.on_token(live.record)
            if live.handle.get_status() != openvino_genai.GenerationStatus.RUNNING:
                live.record.finish_reason = "length"
                self._live.remove(live)
                self._end(live)

    def _end(self, live: Live) -> None:
        live.record.end = time.perf_counter()
        if not live.ended.done():
            live.ended.set_result(None)


async def serve_jobs(options: argparse.Namespace) -> None:
    await answer_jobs(OpenVinoClient(options), options.max_model_len)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=Path)
    parser.add_argument("--max-model-len", type=int, required=True)
    parser.add_argument("--slots", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--cache-gib", type=int, required=True)
    asyncio.run(serve_jobs(parser.parse_args()))


if __name__ == "__main__":
    main()
