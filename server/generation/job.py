"""Job: an HTTP request after translation, whatever its API.

effective_parameters: the parameters of a request after defaults, for its record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from core.contract.messages import EngineRequest
from core.contract.params import SamplingParams
from server.generation.grammars import NewGrammars
from server.rendering.base import Renderer
from server.tenants.tenant import Tenant


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What to generate, and how to send it.

    ``params`` has one entry per prompt. Every prompt is generated ``num_choices`` times, and
    choice ``j`` of prompt ``p`` has index ``p * num_choices + j``, in the engine's requests and
    for the renderer. ``stream_interval`` is the number of tokens in one piece of a stream.
    """

    id: str
    prompts: Sequence[Sequence[int]]
    params: Sequence[SamplingParams]
    num_choices: int = 1
    is_streamed: bool
    stream_interval: int
    cache_salt: str | None = None
    priority: int = 0
    renderer: Renderer
    new_grammars: NewGrammars | None = None
    """To be compiled in a worker, with ``salt``, before the requests are submitted."""
    ignored: tuple[str, ...] = ()
    """Parts of the request without effect, for ``server.http.ignored_fields``."""
    second_text_starts: Sequence[int] = ()
    """Of prompts that are pairs of texts, one entry per prompt."""

    @property
    def num_prompt_tokens(self) -> int:
        """Tokens of all prompts."""
        return sum(map(len, self.prompts))

    @property
    def max_output_tokens(self) -> int:
        """The most tokens that all choices may have."""
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


def _params_of_choice(params: SamplingParams, index: int) -> SamplingParams:
    if index == 0 or params.seed is None:
        return params
    return msgspec.structs.replace(params, seed=params.seed + index)


_COUNTED = ("stop", "stop_token_ids", "logit_bias", "bad_words_ids")
"""Texts and tokens, of which a record has the number."""


def effective_parameters(job: Job) -> dict[str, Any]:
    """The sampling parameters of the first prompt, as JSON's values.

    Lists of tokens and of texts are only counted, so a record has the size that its log counts
    for it. A grammar is the name of its kind, thinking its budget.
    """
    params = job.params[0]
    parameters = msgspec.structs.asdict(params)
    for name in _COUNTED:
        parameters[name] = len(parameters[name])
    if params.allowed_token_ids is not None:
        parameters["allowed_token_ids"] = len(params.allowed_token_ids)
    if params.grammar is not None:
        parameters["grammar"] = params.grammar.__struct_config__.tag
    if params.thinking is not None:
        parameters["thinking"] = params.thinking.budget
    parameters["n"] = job.num_choices
    parameters["priority"] = job.priority
    return parameters
