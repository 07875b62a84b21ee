"""Fields of both chat and text completions: sampling, stopping, streaming, reporting."""

from typing import Annotated, Any, Literal

from msgspec import Meta

from schemas.base import RequestModel
from schemas.formats import ConstraintFields
from schemas.limits import (
    INT32_MAX,
    INT64_MAX,
    INT64_MIN,
    MAX_ALLOWED_TOKEN_IDS,
    MAX_BAD_WORD_LENGTH,
    MAX_BAD_WORDS,
    MAX_CHOICES,
    MAX_ITEMS,
    MAX_LOGIT_BIAS,
)
from schemas.scalars import Label, LabelList, Number, Priority, StopStrings, TokenId, TokenIdList

BadWord = Annotated[str, Meta(min_length=1, max_length=MAX_BAD_WORD_LENGTH)]


class StreamOptions(RequestModel, frozen=True, kw_only=True):
    """Options of a stream. Only allowed with `stream: true`."""

    include_usage: bool | None = None
    """Send a last chunk with the usage of the whole request."""
    include_obfuscation: bool | None = None
    """Accepted without effect: chunks are never padded."""
    continuous_usage_stats: bool | None = None
    """Send the usage so far in every chunk (vLLM, SGLang)."""


class SamplingFields(ConstraintFields, frozen=True, kw_only=True):
    """The top-level fields of both APIs (OpenAI API reference; vLLM and SGLang extensions).

    Structs have single inheritance, so llama.cpp's fields and the constraints are bases.
    """

    model: (
        Annotated[Label, Meta(description="Served model id; absent: the served model.")] | None
    ) = None

    # OpenAI's fields.
    temperature: Annotated[float, Meta(ge=0, le=2, description="0: greedy.")] | None = None
    top_p: (
        Annotated[float, Meta(ge=0, le=1, description="Nucleus sampling; 0 keeps one token.")]
        | None
    ) = None
    n: Annotated[int, Meta(ge=1, le=MAX_CHOICES, description="Choices per prompt.")] | None = None
    stop: Annotated[StopStrings, Meta(description="Stop string, or up to 64 of them.")] | None = (
        None
    )
    seed: (
        Annotated[int, Meta(ge=INT64_MIN, le=INT64_MAX, description="Signed 64 bits; -1: random.")]
        | None
    ) = None
    frequency_penalty: (
        Annotated[
            float, Meta(ge=-2, le=2, description="Subtracted per occurrence in the generated text.")
        ]
        | None
    ) = None
    presence_penalty: (
        Annotated[
            float, Meta(ge=-2, le=2, description="Subtracted from tokens in the generated text.")
        ]
        | None
    ) = None
    logit_bias: (
        Annotated[
            dict[Label, Annotated[float, Meta(ge=-100, le=100)]],
            Meta(
                max_length=MAX_LOGIT_BIAS,
                description="From token id, as a decimal string, to -100..100.",
            ),
        ]
        | None
    ) = None
    stream: Annotated[bool, Meta(description="Respond with server-sent events.")] | None = None
    stream_options: StreamOptions | None = None
    user: Annotated[Label, Meta(description="Accepted without effect.")] | None = None

    # Extensions: which tokens may be sampled.
    top_k: (
        Annotated[
            int, Meta(ge=-1, le=INT32_MAX, description="Keep the k best tokens; 0 and -1: all.")
        ]
        | None
    ) = None
    min_p: (
        Annotated[
            float, Meta(ge=0, le=1, description="Drop tokens below min_p times the best one.")
        ]
        | None
    ) = None
    repetition_penalty: (
        Annotated[
            float, Meta(ge=0.001, le=1000, description="1: off; applies to prompt and output.")
        ]
        | None
    ) = None
    allowed_token_ids: (
        Annotated[list[TokenId], Meta(min_length=1, max_length=MAX_ALLOWED_TOKEN_IDS)] | None
    ) = None
    bad_words: Annotated[list[BadWord], Meta(max_length=MAX_BAD_WORDS)] | None = None
    use_beam_search: bool | None = None
    length_penalty: Number | None = None
    thinking_token_budget: (
        Annotated[
            int, Meta(ge=-1, le=INT32_MAX, description="Maximum of thinking tokens; -1: none.")
        ]
        | None
    ) = None
    lora_path: Label | Annotated[list[Label | None], Meta(max_length=MAX_ITEMS)] | None = None
    logits_processors: Any = None
    custom_logit_processor: Any = None
    custom_params: Any = None

    # Extensions: when to stop, and what the text contains.
    min_tokens: (
        Annotated[
            int, Meta(ge=0, le=INT32_MAX, description="No end token or stop string before so many.")
        ]
        | None
    ) = None
    ignore_eos: bool | None = None
    stop_token_ids: TokenIdList | None = None
    stop_regex: Label | LabelList | None = None
    include_stop_str_in_output: bool | None = None
    no_stop_trim: (
        Annotated[bool, Meta(description="SGLang's name of include_stop_str_in_output.")] | None
    ) = None
    skip_special_tokens: bool | None = None
    spaces_between_special_tokens: bool | None = None
    echo: Annotated[bool, Meta(description="Start the text with the prompt.")] | None = None

    # Extensions: how the prompt is read.
    add_special_tokens: bool | None = None
    truncate_prompt_tokens: (
        Annotated[int, Meta(ge=-1, le=INT32_MAX, description="Tokens to keep; -1: as many as fit.")]
        | None
    ) = None
    truncation_side: Literal["left", "right"] | None = None

    # Extensions: what is reported.
    prompt_logprobs: (
        Annotated[int, Meta(ge=-1, le=20, description="Alternatives per prompt token; -1: all.")]
        | None
    ) = None
    logprob_token_ids: TokenIdList | None = None
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None
    stream_interval: (
        Annotated[int, Meta(ge=1, le=INT32_MAX, description="Tokens per chunk.")] | None
    ) = None

    # Extensions: scheduling and identity.
    priority: Priority | None = None
    request_id: Annotated[str, Meta(min_length=1, max_length=128)] | None = None
    rid: (
        Annotated[
            str, Meta(min_length=1, max_length=128, description="SGLang's name of request_id.")
        ]
        | None
    ) = None
    cache_salt: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=128,
                pattern=r"^[^@/\\\x00]*$",
                description="Only requests with equal salts share cached prefixes.",
            ),
        ]
        | None
    ) = None
