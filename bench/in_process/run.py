"""EngineRun: one run of a load against an engine in this process."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from bench.in_process.schedule_times import ScheduleTimes
from bench.records import EngineRecord
from bench.settings import EngineTarget, Sampling
from bench.timetable import Timetable
from bench.workload import Request
from core.assembly.build import LoadedEngine
from core.contract.errors import ContextLengthExceeded, InvalidRequest
from core.contract.messages import Add, EngineRequest, StepOutput
from core.contract.params import SamplingParams
from core.engine.thread import CoreThread


class EngineRun:
    """Submits requests on the main thread and receives outputs on the core thread.

    ``_lock`` protects the state that these and the tokenizing threads share, except ``_live``:
    every request is in it before the engine gets it.
    """

    def __init__(
        self,
        loaded: LoadedEngine,
        core: CoreThread,
        target: EngineTarget,
        sampling: Sampling,
        *,
        chat: bool = False,
        concurrency: int | None = None,
        schedule_times: ScheduleTimes,
        on_end: Callable[[], object] = lambda: None,
    ) -> None:
        """``on_end`` is called when a request has ended, on any thread."""
        self._loaded = loaded
        self._core = core
        self._target = target
        self._sampling = sampling
        self._chat = chat
        self._concurrency = concurrency
        self._schedule_times = schedule_times
        self._on_end = on_end
        self._lock = threading.Lock()
        self._live: dict[str, EngineRecord] = {}
        self._held: deque[EngineRequest] = deque()  # by --prefill-max-batch-size
        self._num_prefilling = 0
        self._failure: str | None = None
        self._num_unended = 0
        self._all_ended = threading.Event()
        self._slots = threading.Semaphore()

    def go(self, requests: Sequence[Request], timetable: Timetable) -> list[EngineRecord]:
        """Submit the requests as they are due; return their records when all have ended.

        May be called once.
        """
        records = [EngineRecord() for _ in requests]
        self._num_unended = len(records)
        self._slots = threading.Semaphore(self._concurrency or len(records))
        if self._target.pretok:
            ids = [self._token_ids(request) for request in requests]
            self._submit_all(
                records, timetable, lambda i: self._add(i, records[i], requests[i], ids[i])
            )
        else:
            with ThreadPoolExecutor(self._target.tokenizer_workers, "roseinfer-tokenize") as pool:
                futures: list[Future[None]] = []
                self._submit_all(
                    records,
                    timetable,
                    lambda i: futures.append(
                        pool.submit(self._tokenize, i, records[i], requests[i])
                    ),
                )
                for future in futures:
                    future.result()  # raises only if there is a bug
        self._all_ended.wait()
        return records

    def _submit_all(
        self, records: list[EngineRecord], timetable: Timetable, submit: Callable[[int], None]
    ) -> None:
        clock = time.perf_counter
        start = last = clock()
        for index, record in enumerate(records):
            due = timetable.due(index, start=start, last=last)
            if due > clock():
                time.sleep(due - clock())
            self._slots.acquire()
            record.submit = clock()
            record.due = record.submit if timetable.is_closed else due
            submit(index)
            last = clock()

    def _token_ids(self, request: Request) -> list[int] | InvalidRequest:
        """Return the prompt's tokens, or the error of an invalid prompt."""
        tokenizer = self._loaded.tokenizer
        try:
            if self._chat:
                return tokenizer.encode_chat([{"role": "user", "content": request.prompt.strip()}])
            ids = tokenizer.encode(request.prompt, add_special_tokens=True)
            return ids or tokenizer.start_token_ids()
        except InvalidRequest as error:
            return error

    def _tokenize(self, index: int, record: EngineRecord, request: Request) -> None:
        start = time.perf_counter()
        try:
            ids = self._token_ids(request)
        except BaseException as error:  # else the run would wait for this request forever
            self._fail(record, str(error))
            raise
        record.tokenize = time.perf_counter() - start
        self._add(index, record, request, ids)

    def _add(
        self, index: int, record: EngineRecord, request: Request, ids: list[int] | InvalidRequest
    ) -> None:
        """Submit a tokenized request to the engine, or hold it until fewer are in prefill."""
        record.ready = time.perf_counter()
        try:
            engine_request = self._engine_request(index, request, ids)
        except InvalidRequest as error:
            self._fail(record, error.message)
            return
        with self._lock:
            if self._failure is None:
                self._live[engine_request.request_id] = record
                limit = self._target.prefill_max_batch_size
                if limit is not None and self._num_prefilling >= limit:
                    self._held.append(engine_request)
                else:
                    self._submit(engine_request, record)
                return
        self._fail(record, self._failure)

    def _engine_request(
        self, index: int, request: Request, ids: list[int] | InvalidRequest
    ) -> EngineRequest:
        """Raises InvalidRequest if the prompt is invalid or the context too short."""
        if isinstance(ids, InvalidRequest):
            raise ids
        room = self._loaded.info.max_model_len
        if len(ids) + request.max_tokens > room:
            raise ContextLengthExceeded(
                f"a prompt of {len(ids)} tokens and {request.max_tokens} new ones do not fit into "
                f"the context of {room}"
            )
        sampling = self._sampling
        return EngineRequest(
            request_id=str(index),
            prompt_token_ids=tuple(ids),
            params=sampling_params(sampling, request.max_tokens),
            stream_interval=sampling.stream_interval or 1,
        )

    def _submit(self, request: EngineRequest, record: EngineRecord) -> None:
        self._num_prefilling += 1
        start = time.perf_counter()
        self._core.submit(Add(request))
        record.add = time.perf_counter() - start

    def deliver(self, outputs: list[StepOutput]) -> None:
        """Record the outputs of a step. Core thread."""
        if self._failure is not None:  # all requests have ended
            return
        now = time.perf_counter()
        for output in outputs:
            record = self._live[output.request_id]
            if not record.token_times:  # its prefill is over, or it has failed
                self._end_prefill()
            if output.token_ids:
                record.token_times.append(now)
            if output.is_last:
                self._record_end(output, record)
                self._end(record, now)

    def _record_end(self, output: StepOutput, record: EngineRecord) -> None:
        record.prompt_tokens = output.num_prompt_tokens
        record.cached_tokens = output.num_cached_tokens
        record.completion_tokens = output.num_output_tokens
        record.finish_reason = output.finish_reason
        record.error = output.error
        record.scheduled = self._schedule_times.take(output.request_id)

    def _end_prefill(self) -> None:
        """Count one prefill less, and submit a held request."""
        with self._lock:
            self._num_prefilling -= 1
            if self._held:
                held = self._held.popleft()
                self._submit(held, self._live[held.request_id])

    def fail_all(self, message: str) -> None:
        """End all requests with an error: the engine has died. Core thread."""
        with self._lock:
            self._failure = message
            live = [record for record in self._live.values() if not record.end]
        for record in live:
            self._fail(record, message)

    def _fail(self, record: EngineRecord, message: str) -> None:
        record.error = message
        self._end(record, time.perf_counter())

    def _end(self, record: EngineRecord, now: float) -> None:
        record.end = now
        self._slots.release()
        self._on_end()
        with self._lock:
            self._num_unended -= 1
            if self._num_unended == 0:
                self._all_ended.set()


def sampling_params(sampling: Sampling, max_tokens: int) -> SamplingParams:
    """Return the parameters that the flags stand for. Raises InvalidRequest."""
    given = {
        name: value
        for name in ("temperature", "top_k", "top_p")
        if (value := getattr(sampling, name)) is not None
    }
    if not sampling.do_sample:
        given = {"temperature": 0.0}
    return SamplingParams(max_tokens=max_tokens, ignore_eos=sampling.ignore_eos, **given)
