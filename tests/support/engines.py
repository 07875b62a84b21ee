"""Engines without a model, for the core thread to drive: the tests decide what a step gives."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Iterable, Sequence

import anyio
import anyio.lowlevel
from transformers import PreTrainedTokenizerBase

from core.assembly.build import LoadedEngine
from core.contract.info import EngineInfo
from core.contract.messages import EngineRequest, EngineStats, StepOutput, Work
from core.contract.params import SamplingParams
from core.grammar.compiler import GrammarCompiler
from core.observe.step_timer import StepTimer
from core.text.tokenizer import Tokenizer
from tests.support.tokenizers import byte_level

DEADLINE = 10
"""Seconds after which something that should happen at once is taken to be stuck."""


def request(request_id: str = "r", *, prompt: Sequence[int] = (1, 2, 3), **params) -> EngineRequest:
    """A request of the engine."""
    return EngineRequest(
        request_id=request_id,
        prompt_token_ids=tuple(prompt),
        params=SamplingParams(**{"max_tokens": 100, **params}),
    )


def out(request_id: str = "r", text: str = "", **fields) -> StepOutput:
    """What a step gave a request."""
    return StepOutput(request_id=request_id, text=text, **fields)


def last(request_id: str = "r", text: str = "", **fields) -> StepOutput:
    """What the step that ends a request gave it."""
    return StepOutput(request_id=request_id, text=text, finish_reason="stop", **fields)


async def settle() -> None:
    """Let every task on the event loop run until it waits for something else than its turn."""
    for _ in range(30):
        await anyio.lowlevel.checkpoint()


async def until(is_true: Callable[[], object]) -> None:
    """Wait for something that another thread or task brings about."""
    with anyio.fail_after(DEADLINE):
        while not is_true():
            await anyio.lowlevel.checkpoint()


class GatedEngine:
    """A SteppingEngine whose steps wait for the test: ``step_with`` says when, and what comes out.

    Made on the event loop; ``until`` wakes whenever the core thread has called it.
    """

    def __init__(self) -> None:
        self.timer = StepTimer()
        self.live: dict[str, EngineRequest] = {}
        self.added: list[EngineRequest] = []
        self.aborted: list[str] = []
        self.works: dict[str, Work] = {}
        """What ``work`` says of requests."""
        self.num_steps = 0
        self.thread_names: set[str] = set()
        self.on_add: Callable[[EngineRequest], None] = lambda _request: None
        self._steps: queue.SimpleQueue[Sequence[StepOutput] | Exception] = queue.SimpleQueue()
        self._is_free = False
        self._is_stepping = False
        self._num_delivered = 0
        self._loop = asyncio.get_running_loop()
        self._changed = anyio.Event()

    # What tests call, on the event loop.

    def step_with(self, *outputs: StepOutput) -> None:
        """Let one step end, with these outputs."""
        self._steps.put(outputs)

    def crash(self, error: Exception | None = None) -> None:
        """Let the step under way, or the next one, raise."""
        self._steps.put(error or RuntimeError("secret /root/weights.bin at 0x7f00"))

    def free(self) -> None:
        """Never wait again, so that the core thread can end."""
        self._is_free = True
        self._steps.put(())

    async def until(self, is_true: Callable[[GatedEngine], bool]) -> None:
        """Wait for the core thread to have brought something about."""
        with anyio.fail_after(DEADLINE):
            while not is_true(self):
                await self._changed.wait()

    async def admit(self, num_requests: int) -> None:
        """Wait for so many requests in all to have come in, with empty steps if need be."""
        with anyio.fail_after(DEADLINE):
            while len(self.added) < num_requests:
                if self._is_stepping and self._steps.empty():
                    self.step_with()
                await self._changed.wait()

    async def say(self, *outputs: StepOutput) -> None:
        """Let one step end, and everyone on the event loop do what there is to do about it."""
        num_steps = self.num_steps
        self.step_with(*outputs)
        await self.until(lambda e: e._num_delivered > num_steps)
        await settle()

    # What the core thread calls.

    @property
    def has_work(self) -> bool:
        if self._num_delivered != self.num_steps:
            self._num_delivered = self.num_steps  # their outputs have been posted by now
            self._notify()
        return bool(self.live) and not self._is_free

    def add(self, request: EngineRequest) -> None:
        self.on_add(request)
        self.live[request.request_id] = request
        self.added.append(request)
        self._notify()

    def abort(self, request_id: str) -> None:
        if self.live.pop(request_id, None) is not None:
            self.aborted.append(request_id)
        self._notify()

    def step(self) -> list[StepOutput]:
        self.thread_names.add(threading.current_thread().name)
        self._is_stepping = True
        self._notify()
        outputs = self._steps.get()
        self._is_stepping = False
        if isinstance(outputs, Exception):
            raise outputs
        for output in outputs:
            if output.is_last:
                self.live.pop(output.request_id, None)
        self.num_steps += 1
        self._notify()
        return list(outputs)

    def prepare(self, *, is_idle: bool) -> bool:
        return False

    def fail_all(self, message: str) -> list[StepOutput]:
        live, self.live = self.live, {}
        return [StepOutput(request_id=request_id, error=message) for request_id in live]

    def stats(self) -> EngineStats:
        return EngineStats(num_running=len(self.live), num_steps=self.num_steps)

    def work(self, request_id: str) -> Work | None:
        return self.works.get(request_id)

    def _notify(self) -> None:
        def wake() -> None:
            changed, self._changed = self._changed, anyio.Event()
            changed.set()

        self._loop.call_soon_threadsafe(wake)


class AnsweringEngine:
    """A SteppingEngine that gives each request what a function says, one output a step."""

    def __init__(self, answer: Callable[[EngineRequest], Iterable[StepOutput]]) -> None:
        self.requests: list[EngineRequest] = []
        self.aborted: list[str] = []
        self.timer = StepTimer()
        self._answer = answer
        self._live: dict[str, list[StepOutput]] = {}

    @property
    def has_work(self) -> bool:
        return bool(self._live)

    def add(self, request: EngineRequest) -> None:
        self.requests.append(request)
        self._live[request.request_id] = list(self._answer(request))

    def abort(self, request_id: str) -> None:
        if self._live.pop(request_id, None) is not None:
            self.aborted.append(request_id)

    def step(self) -> list[StepOutput]:
        outputs = [pending.pop(0) for pending in self._live.values() if pending]
        self._live = {key: pending for key, pending in self._live.items() if pending}
        return outputs

    def prepare(self, *, is_idle: bool) -> bool:
        return False

    def fail_all(self, message: str) -> list[StepOutput]:
        live, self._live = self._live, {}
        return [StepOutput(request_id=request_id, error=message) for request_id in live]

    def stats(self) -> EngineStats:
        return EngineStats(num_running=len(self._live))

    def work(self, _request_id: str) -> Work | None:
        return None


def words(*texts: str) -> Callable[[EngineRequest], list[StepOutput]]:
    """An answer of these pieces, one token each, for every request."""

    def answer(request: EngineRequest) -> list[StepOutput]:
        pieces = texts[: request.params.max_tokens] or ("",)
        was_cut = len(pieces) < len(texts)
        return [
            StepOutput(
                request_id=request.request_id,
                text=text,
                token_ids=(10 + i,),
                num_prompt_tokens=len(request.prompt_token_ids),
                num_output_tokens=i + 1,
                finish_reason=("length" if was_cut else "stop") if i + 1 == len(pieces) else None,
            )
            for i, text in enumerate(pieces)
        ]

    return answer


def loaded(
    engine: object, tokenizer: PreTrainedTokenizerBase | None = None, **info
) -> LoadedEngine:
    """What a server loads: an engine, a tiny byte-level tokenizer and small limits."""
    wrapped = Tokenizer(tokenizer if tokenizer is not None else byte_level())
    facts = {
        "max_model_len": 512,
        "max_num_seqs": 8,
        "vocab_size": len(wrapped),
        "num_token_ids": len(wrapped),
        "num_kv_tokens": 4096,
        "dtype": "float32",
        "device": "cpu",
    }
    compiler = GrammarCompiler(
        wrapped.vocabulary, (wrapped.eos_token_id or 0,), vocab_size=len(wrapped)
    )
    return LoadedEngine(
        engine,  # type: ignore[arg-type]
        wrapped,
        EngineInfo(**(facts | info)),  # type: ignore[arg-type]
        compiler,
    )
