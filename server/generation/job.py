"""Job: an HTTP request after translation, whatever its API, and the grammars that it needs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import uuid4

import msgspec

from core.contract.errors import InvalidRequest
from core.contract.grammar import DroppedKeyword, Grammar
from core.contract.messages import EngineRequest
from core.contract.params import SamplingParams
from core.grammar.compiler import GrammarCompiler
from schemas.sampling import SamplingFields
from server.generation.model import ServedModel
from server.http.errors import invalid
from server.http.ignored_fields import MAX_NAME_LENGTH
from server.rendering.base import AnswerHead, Envelope, Renderer
from server.tenants.tenant import Tenant
from server.workers.pools import checkpoint, is_cancelled

MAX_WARNINGS = 64
"""Names in an answer; the last entry is the number of others."""


class _Noted(NamedTuple):
    """``param`` is the field of the grammar, ``format_param`` that of the format of its text."""

    grammar: Grammar
    param: str | None
    format_param: str


class NewGrammars:
    """Collects the grammars of one request, to be compiled in a worker pool of their own.

    Translation notes each grammar with the field that it comes from. One thread at a time.
    ``warnings`` are, once all are compiled, the keywords of their schemas that are not enforced:
    ``tools.NAME.KEYWORD``, or the field of the format and the keyword.
    """

    def __init__(self, compiler: GrammarCompiler) -> None:
        self._compiler = compiler
        self._noted: list[_Noted] = []
        self.warnings: list[str] = []
        self._param: str | None = None  # the field of the first warning

    def note(self, grammar: Grammar, *, param: str | None, format_param: str | None = None) -> None:
        """Note a grammar of a field, and which field the format of its text is from.

        Raises InvalidRequest if it is too large.
        """
        self._compiler.check_size(grammar, param=param)
        self._noted.append(_Noted(grammar, param, format_param or param or ""))

    def rename_params(self, name_of: Callable[[str], str]) -> None:
        """Rename the fields, for a client of another API than chat completions."""
        self._noted = [
            _Noted(grammar, None if param is None else name_of(param), name_of(format_param))
            for grammar, param, format_param in self._noted
        ]

    def are_compiled(self, salt: str) -> bool:
        """Whether all are compiled for requests with this salt. Does not block."""
        dropped = [self._compiler.dropped(noted.grammar, salt=salt) for noted in self._noted]
        known = [names for names in dropped if names is not None]
        if len(known) < len(dropped):
            return False
        self._warn(known)
        return True

    def compile(self, salt: str) -> None:
        """Compile them in order. Raises InvalidRequest naming the field. Blocks."""
        dropped = []
        for grammar, param, _ in self._noted:
            checkpoint()
            dropped.append(
                self._compiler.check(grammar, salt=salt, param=param, is_cancelled=is_cancelled)
            )
        self._warn(dropped)

    def check_enforced(self) -> None:
        """Raise InvalidRequest naming keywords that are not enforced, if there are any."""
        if self.warnings:
            names = ", ".join(f"'{name}'" for name in self.warnings[:8])
            raise InvalidRequest(
                f"Invalid schema: {names} cannot be enforced by this server.",
                param=self._param,
                code="invalid_schema",
            )

    def _warn(self, dropped: Iterable[Iterable[DroppedKeyword]]) -> None:
        names: dict[str, str | None] = {}
        for noted, keywords in zip(self._noted, dropped, strict=True):
            for tool, keyword in keywords:
                field = f"tools.{tool[:96]}" if tool else noted.format_param
                param = noted.param if tool else noted.format_param
                names.setdefault(f"{field}.{keyword}"[:MAX_NAME_LENGTH], param)
        self._param = next(iter(names.values()), None)
        shown = list(names)[:MAX_WARNINGS]
        more = len(names) - len(shown)
        self.warnings[:] = [*shown, f"+{more}"] if more else shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The prompts and parameters of a response, and the renderer that makes its body.

    ``params`` has one entry per prompt. Every prompt is generated ``num_choices`` times, and
    choice ``j`` of prompt ``p`` has index ``p * num_choices + j``, in the engine's requests and
    for the renderer. ``stream_interval`` is the number of tokens in one piece of a stream.
    """

    id: str
    prompts: Sequence[Sequence[int]]
    params: Sequence[SamplingParams]
    num_choices: int = 1
    is_streamed: bool = False
    stream_interval: int = 0
    cache_salt: str | None = None
    priority: int = 0
    renderer: Renderer
    new_grammars: NewGrammars
    """To be compiled in a worker, with ``salt``, before the requests are submitted."""
    ignored: tuple[str, ...] = ()
    """Parts of the request without effect, for ``server.http.ignored_fields``."""
    second_text_starts: Sequence[int] = ()
    """Of prompts that are pairs of texts, one entry per prompt."""

    @property
    def num_prompt_tokens(self) -> int:
        return sum(map(len, self.prompts))

    @property
    def max_output_tokens(self) -> int:
        return sum(params.max_tokens for params in self.params) * self.num_choices

    def salt(self, tenant: Tenant) -> str:
        """Only requests with the same salt share cached prefixes and compiled grammars."""
        return tenant.salted(self.cache_salt)

    def requests(self, tenant: Tenant) -> list[EngineRequest]:
        """One request per choice. Choice ``j`` of a seeded job has seed ``seed + j``.

        The tenant's name shares the engine.
        """
        interval = self.stream_interval if self.is_streamed else 0
        return [
            EngineRequest(
                request_id=f"{self.id}-{p * self.num_choices + j}",
                prompt_token_ids=prompt,
                params=_params_of_choice(self.params[p], j),
                stream_interval=interval,
                cache_salt=self.salt(tenant),
                tenant=tenant.name,
                priority=self.priority,
                second_text_start=self.second_text_starts[p] if self.second_text_starts else None,
            )
            for p, prompt in enumerate(map(tuple, self.prompts))
            for j in range(self.num_choices)
        ]


def new_job(
    request: SamplingFields,
    model: ServedModel,
    *,
    id_prefix: str,
    prompts: Sequence[Sequence[int]],
    params: Sequence[SamplingParams],
    num_choices: int,
    num_top: int | None,
    new_grammars: NewGrammars,
    new_renderer: Callable[[Envelope], Renderer],
) -> Job:
    """The job of a translated request, with an id of its own. Raises InvalidRequest.

    ``num_top`` is the number of alternatives per generated token. None: no log-probabilities.
    """
    wanted = request.stream_options
    envelope = Envelope(
        head=AnswerHead(
            id=f"{id_prefix}{uuid4().hex}",
            created=int(time.time()),
            model=model.name,
            system_fingerprint=model.fingerprint,
        ),
        tokenizer=model.tokenizer,
        prompts=prompts,
        num_choices=num_choices,
        num_top=num_top,
        num_prompt_top=request.prompt_logprobs,
        include_usage=bool(wanted and wanted.include_usage),
        continuous_usage=bool(wanted and wanted.continuous_usage_stats),
        return_token_ids=bool(request.return_token_ids),
        tokens_as_ids=bool(request.return_tokens_as_token_ids),
        warnings=new_grammars.warnings,
    )
    job = Job(
        id=envelope.head.id,
        prompts=prompts,
        params=params,
        num_choices=num_choices,
        is_streamed=bool(request.stream),
        stream_interval=request.stream_interval or model.settings.stream_interval,
        cache_salt=request.cache_salt,
        priority=request.priority or 0,
        renderer=new_renderer(envelope),
        new_grammars=new_grammars,
    )
    _check_num_logprobs(job, model.settings.max_answer_logprobs)
    return job


def _check_num_logprobs(job: Job, most: int) -> None:
    """Limit the log-probabilities that exist at once: all of an answer that is not streamed.

    Those of the only generation of a request count for the prompt only: the context limits it.
    """
    is_single = len(job.params) * job.num_choices == 1
    counted = 0
    for prompt, params in zip(job.prompts, job.params, strict=True):
        if params.prompt_logprobs is not None:
            counted += len(prompt) * (params.prompt_logprobs + 1)
        if params.logprobs is not None and not job.is_streamed and not is_single:
            counted += params.max_tokens * (params.logprobs + 1)
    found = counted * job.num_choices
    if found > most:
        raise invalid(
            "logprobs",
            f"The answer may have {found} log-probabilities; the limit is {most}. Ask for fewer "
            "alternatives, prompts, choices or tokens.",
        )


def _params_of_choice(params: SamplingParams, index: int) -> SamplingParams:
    if index == 0 or params.seed is None:
        return params
    return msgspec.structs.replace(params, seed=params.seed + index)


_COUNTED = ("stop", "stop_token_ids", "logit_bias", "bad_words_ids", "allowed_token_ids")
"""Texts and tokens, of which a record has the number."""


def effective_parameters(job: Job) -> dict[str, Any]:
    """The sampling parameters of the first prompt, as JSON's values.

    Lists of tokens and of texts are only counted, so a record has the size that its log counts
    for it. A grammar is the name of its kind, thinking its budget.
    """
    params = job.params[0]
    parameters = msgspec.structs.asdict(params)
    for name in _COUNTED:
        if parameters[name] is not None:
            parameters[name] = len(parameters[name])
    if params.grammar is not None:
        parameters["grammar"] = params.grammar.__struct_config__.tag
    if params.thinking is not None:
        parameters["thinking"] = params.thinking.budget
    return parameters | {"n": job.num_choices, "priority": job.priority}
