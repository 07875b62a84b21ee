"""SamplingParams: how tokens are chosen and when a request ends. Valid by construction."""

from __future__ import annotations

import math

import msgspec

from core.contract.errors import InvalidRequest
from core.contract.grammar import Grammar, can_always_continue

MAX_TOP_LOGPROBS = 20
"""Limit of ``logprobs`` and ``prompt_logprobs``."""

GREEDY_TEMPERATURE = 1e-5
"""Below this temperature sampling is greedy; logits divided by less would overflow."""


class Thinking(msgspec.Struct, frozen=True, kw_only=True):
    """The model's thinking: its markers and its token budget.

    Thinking stands at the start of the output. ``begin`` and ``end`` are its markers as text; if
    they are special tokens, ``skip_special_tokens`` must be False. ``end_token_ids`` are the tokens
    of ``end``. With ``is_open`` the prompt ends with ``begin``, so the output starts inside the
    thinking. After ``budget`` tokens of thinking ``end`` is forced; None means never.

    With ``is_expected`` stop strings apply only to the text after ``end``, otherwise to the
    thinking too. With ``is_separate`` the thinking is reported as ``StepOutput.thinking`` instead
    of in ``StepOutput.text``, without its markers and the line breaks next to them.
    """

    begin: str
    end: str
    end_token_ids: tuple[int, ...]
    is_open: bool = False
    budget: int | None = None
    is_expected: bool = True
    is_separate: bool = False

    def __post_init__(self) -> None:
        """Check the field that a client chooses."""
        if self.budget is not None:
            _between("thinking_token_budget", self.budget, 0, math.inf)


REPETITION_PENALTY_RANGE = (1e-3, 1e3)
"""A penalty outside this range has no further effect, but logits may overflow."""


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True):
    """Sampling and stop conditions of one request. Any thread may read it.

    ``max_tokens`` fits the context window. ``top_k`` 0 is off. ``logprobs`` and
    ``prompt_logprobs`` are numbers of alternatives: None computes nothing, 0 only the chosen
    token's log-probability. A ``stop`` string that is one special token ends at that token, also
    where its text is hidden. ``stop_token_ids`` are end tokens besides the model's EOS tokens;
    ``ignore_eos`` does not apply to them.

    ``grammar`` constrains the output; a GrammarCompiler has checked it. It allows EOS tokens
    exactly where it is complete; with ``ignore_eos`` any token may follow the first of them. With
    ``thinking`` stop strings apply as ``Thinking`` says.

    The constructor raises InvalidRequest, which names the field.
    """

    max_tokens: int
    min_tokens: int = 0
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: dict[int, float] = {}
    allowed_token_ids: tuple[int, ...] | None = None
    bad_words_ids: tuple[tuple[int, ...], ...] = ()
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    grammar: Grammar | None = None
    thinking: Thinking | None = None

    def __post_init__(self) -> None:
        """Check every range."""
        _between("temperature", self.temperature, 0.0, math.inf)
        _between("top_p", self.top_p, 0.0, 1.0)
        _between("min_p", self.min_p, 0.0, 1.0)
        _between("top_k", self.top_k, 0, math.inf)
        _between("max_tokens", self.max_tokens, 0, math.inf)
        _between("min_tokens", self.min_tokens, 0, math.inf)
        _between("presence_penalty", self.presence_penalty, -2.0, 2.0)
        _between("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        _between("repetition_penalty", self.repetition_penalty, *REPETITION_PENALTY_RANGE)
        if self.min_tokens > self.max_tokens:
            raise InvalidRequest(
                f"min_tokens ({self.min_tokens}) is above max_tokens ({self.max_tokens}).",
                param="min_tokens",
                code="invalid_parameter_combination",
            )
        if self.min_tokens > 0 and self.grammar and not can_always_continue(self.grammar):
            raise InvalidRequest(
                "min_tokens cannot be used with an output format that decides when it ends.",
                param="min_tokens",
                code="invalid_parameter_combination",
            )
        if any(not stop for stop in self.stop):
            raise InvalidRequest(
                "stop strings must not be empty.", param="stop", code="invalid_value"
            )
        if self.allowed_token_ids is not None and not self.allowed_token_ids:
            raise InvalidRequest(
                "allowed_token_ids must name at least one token.",
                param="allowed_token_ids",
                code="empty_array",
            )
        for name in ("logprobs", "prompt_logprobs"):
            value = getattr(self, name)
            if value is not None:
                _between(name, value, 0, MAX_TOP_LOGPROBS)

    @property
    def is_greedy(self) -> bool:
        """Whether the argmax is taken; seed, top_k, top_p and min_p have no effect then."""
        return self.temperature < GREEDY_TEMPERATURE

    @property
    def has_penalties(self) -> bool:
        """Whether logits depend on the tokens so far."""
        return (
            self.presence_penalty != 0.0
            or self.frequency_penalty != 0.0
            or self.repetition_penalty != 1.0
        )


def _between(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high or (isinstance(value, float) and not math.isfinite(value)):
        limit = f"between {low} and {high}" if math.isfinite(high) else f"at least {low}"
        kind = "integer" if isinstance(value, int) else "decimal"
        code = f"{kind}_above_max_value" if value > high else f"{kind}_below_min_value"
        raise InvalidRequest(f"{name} must be {limit}, not {value}.", param=name, code=code)
