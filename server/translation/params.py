"""Request fields to SamplingParams."""

from __future__ import annotations

from core.contract.errors import InvalidRequest
from core.contract.grammar import Grammar
from core.contract.info import EngineInfo
from core.contract.params import MAX_TOP_LOGPROBS, SamplingParams, Thinking
from core.text.tokenizer import Tokenizer
from schemas.limits import MAX_BAD_WORD_TOKENS
from schemas.sampling import SamplingFields
from server.http.errors import conflicting, invalid, unsupported


def sampling_params(
    request: SamplingFields,
    *,
    max_tokens: int,
    logprobs: int | None,
    echo_logprobs: int | None,
    info: EngineInfo,
    tokenizer: Tokenizer,
    grammar: Grammar | None = None,
    thinking: Thinking | None = None,
    shows_markup: bool = False,
) -> SamplingParams:
    """Translate the fields that the APIs share. Raises InvalidRequest naming the field.

    Missing fields get the model's defaults (generation_config), then OpenAI's. A field that
    SamplingParams has under the same name is passed on as it is, unless it is translated here.
    ``echo_logprobs`` is the number of alternatives of an echoed prompt. ``grammar`` has passed
    ``GrammarCompiler.check``. ``shows_markup`` keeps special tokens in the text, because a parser
    looks for them.
    """
    size, stop, includes_stop = info.vocab_size, request.stop, request.include_stop_str_in_output
    same = {name: getattr(request, name) for name in _SAME}
    given = {**info.default_sampling, **{k: v for k, v in same.items() if v is not None}}
    translated = {
        "top_k": max(int(given.get("top_k", 0)), 0),
        "seed": None if request.seed == -1 else request.seed,
        "logit_bias": _logit_bias(request.logit_bias, size),
        "allowed_token_ids": _token_ids(request.allowed_token_ids, "allowed_token_ids", size),
        "bad_words_ids": _bad_words(request.bad_words, tokenizer),
        "stop": (stop,) if stop and isinstance(stop, str) else tuple(stop or ()),
        "stop_token_ids": _token_ids(request.stop_token_ids, "stop_token_ids", size) or (),
        "include_stop_str_in_output": bool(
            request.no_stop_trim if includes_stop is None else includes_stop
        ),
        "skip_special_tokens": request.skip_special_tokens is not False and not shows_markup,
        "prompt_logprobs": _prompt_logprobs(request, echo_logprobs),
    }
    params = SamplingParams(
        **{**given, **translated},
        max_tokens=max_tokens,
        logprobs=logprobs,
        grammar=grammar,
        thinking=thinking,
    )
    _check_satisfiable(params, info.eos_token_ids)
    return params


_SAME = sorted(
    {*SamplingFields.__struct_fields__} & {*SamplingParams.__struct_fields__} - {"grammar"}
)
"""Fields of both structs. llama.cpp's ``grammar`` is the text of one."""


def _check_satisfiable(params: SamplingParams, eos_token_ids: tuple[int, ...]) -> None:
    """Raise InvalidRequest if a step may have no token left to sample.

    The check is conservative: it assumes that every bad word of allowed tokens is about to be
    completed, and that a grammar allows only one token.
    """
    excluding = {
        "allowed_token_ids": params.allowed_token_ids,
        "bad_words": params.bad_words_ids,
        "stop_token_ids": params.stop_token_ids and params.min_tokens,
    }
    for name, excludes in excluding.items():
        if params.grammar is not None and excludes:
            raise conflicting(
                name,
                f"{name} cannot be used with an output format or with these tools: together they "
                "may leave no token.",
            )
    if params.allowed_token_ids is None:
        return
    allowed = set(params.allowed_token_ids)
    left = allowed - {word[-1] for word in params.bad_words_ids if allowed.issuperset(word)}
    if params.min_tokens:
        left.difference_update(params.stop_token_ids)
        if not params.ignore_eos:
            left.difference_update(eos_token_ids)
    if not left:
        raise conflicting(
            "allowed_token_ids",
            "allowed_token_ids has no token that bad_words and min_tokens always allow.",
        )


def _prompt_logprobs(request: SamplingFields, echoed: int | None) -> int | None:
    """Alternatives per prompt token: those requested, or more if an echo shows more."""
    wanted = request.prompt_logprobs
    if wanted is None:
        return echoed
    if wanted == -1:
        raise unsupported(
            "prompt_logprobs", f"prompt_logprobs must be between 0 and {MAX_TOP_LOGPROBS}, not -1."
        )
    if request.stream:
        raise conflicting("prompt_logprobs", "prompt_logprobs cannot be streamed.")
    return max(wanted, echoed or 0)


def _logit_bias(bias: dict[str, float] | None, vocab_size: int) -> dict[int, float]:
    result: dict[int, float] = {}
    for key, value in (bias or {}).items():
        if not (key.isascii() and key.isdigit() and len(key) < 20 and int(key) < vocab_size):
            raise invalid(
                "logit_bias",
                f"logit_bias keys must be token ids below {vocab_size}, not '{key[:40]}'.",
            )
        result[int(key)] = value
    return result


def _token_ids(ids: list[int] | None, name: str, vocab_size: int) -> tuple[int, ...] | None:
    if ids is None:
        return None
    unique = tuple(dict.fromkeys(ids))
    for token_id in unique:
        if not 0 <= token_id < vocab_size:
            raise invalid(name, f"{name} must be token ids below {vocab_size}, not {token_id}.")
    return unique


def _bad_words(words: list[str] | None, tokenizer: Tokenizer) -> tuple[tuple[int, ...], ...]:
    """The tokens of each word at the start of a text and after a space."""
    variants = {variant for word in words or () for variant in (word, " " + word.lstrip())}
    ids = [tuple(tokenizer.encode(text, add_special_tokens=False)) for text in sorted(variants)]
    longest = max(map(len, ids), default=0)
    if longest > MAX_BAD_WORD_TOKENS:
        message = f"A word of bad_words has {longest} tokens; the limit is {MAX_BAD_WORD_TOKENS}."
        raise InvalidRequest(message, param="bad_words", code="string_above_max_length")
    return tuple(dict.fromkeys(word for word in ids if word))
