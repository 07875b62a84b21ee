"""Write docs/limits.md from the types of the requests: ``python -m docs.make_limits``."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import inspect

from schemas import limits
from schemas.anthropic import CountTokensRequest, MessagesRequest
from schemas.chat import ChatCompletionRequest
from schemas.completions import CompletionRequest
from schemas.embeddings import EmbeddingRequest
from schemas.generate import GenerateRequest
from schemas.limits import field_bytes
from schemas.ollama import (
    EmbedRequest,
    OldEmbedRequest,
    OllamaChatRequest,
    OllamaGenerateRequest,
    ShowRequest,
)
from schemas.responses_request import ResponsesRequest
from schemas.scores import RerankRequest, ScoreRequest
from schemas.tokenize import DetokenizeRequest, TokenizeRequest

PAGE = Path(__file__).with_name("limits.md")

REQUESTS: dict[str, type[msgspec.Struct]] = {
    "POST /v1/chat/completions": ChatCompletionRequest,
    "POST /v1/completions": CompletionRequest,
    "POST /v1/responses": ResponsesRequest,
    "POST /v1/messages": MessagesRequest,
    "POST /v1/messages/count_tokens": CountTokensRequest,
    "POST /api/chat": OllamaChatRequest,
    "POST /api/generate": OllamaGenerateRequest,
    "POST /api/embed": EmbedRequest,
    "POST /api/embeddings": OldEmbedRequest,
    "POST /api/show": ShowRequest,
    "POST /generate": GenerateRequest,
    "POST /v1/embeddings": EmbeddingRequest,
    "POST /v1/rerank": RerankRequest,
    "POST /v1/score": ScoreRequest,
    "POST /tokenize": TokenizeRequest,
    "POST /detokenize": DetokenizeRequest,
}

Row = tuple[str, str | None]
"""The path of a value, and its limit as text; None: it has none."""


def limits_of(request: type[msgspec.Struct]) -> Iterator[Row]:
    """Every text, list, object and number that a request may contain. Flags have no limit."""
    for name, type_ in _fields(inspect.type_info(request)):
        yield from _rows(name, type_)


def _rows(path: str, type_: inspect.Type) -> Iterator[Row]:  # noqa: C901, PLR0912 - a table
    match type_:
        case inspect.Metadata(type=inner):
            yield from _rows(path, inner)
        case inspect.UnionType(types=types):
            for option in types:
                yield from _rows(path, option)
        case inspect.StructType():
            for name, inner in _fields(type_):
                yield from _rows(f"{path}.{name}", inner)
        case inspect.ListType(item_type=inner, max_length=most):
            yield path, _up_to(most, "items")
            yield from _rows(f"{path}[]", inner)
        case inspect.DictType(key_type=key, value_type=value, max_length=most):
            yield path, _up_to(most, "keys")
            if not isinstance(value, inspect.AnyType):
                yield from _rows(f"{path} (a key)", key)
            yield from _rows(f"{path}.*", value)
        case inspect.StrType(max_length=most):
            yield path, _up_to(most, "characters")
        case inspect.IntType(ge=low, le=high):
            yield path, _between("integer", low, high)
        case inspect.FloatType(ge=low, le=high):
            yield path, _between("number", low, high)
        case inspect.AnyType() | inspect.RawType():
            yield path, _json(path)
        case inspect.LiteralType() | inspect.BoolType() | inspect.NoneType():
            return
        case _:
            yield path, None


def _fields(struct: inspect.Type) -> Iterator[tuple[str, inspect.Type]]:
    assert isinstance(struct, inspect.StructType)
    for field in struct.fields:
        yield field.encode_name, field.type


def _up_to(most: int | None, what: str) -> str | None:
    return None if most is None else f"{most:,} {what}"


def _between(kind: str, low: float | None, high: float | None) -> str | None:
    return None if low is None or high is None else f"{kind}, {low:,} to {high:,}"


def _json(path: str) -> str:
    is_read = _field_of(path) in limits.NESTED_FIELDS
    return f"any JSON, {limits.MAX_DEPTH} levels" if is_read else "any JSON"


def _field_of(path: str) -> str:
    """The top-level field of a value."""
    return path.partition(".")[0].partition("[")[0].partition(" ")[0]


def _sections() -> Iterator[str]:
    """For each route: the values whose limits differ from those above, then the other fields."""
    seen: dict[str, str] = {}
    for route, request in REQUESTS.items():
        rows: dict[str, list[str]] = {}
        for path, limit in limits_of(request):
            assert limit is not None, path
            rows.setdefault(path, []).append(limit)
        lines = {path: " or ".join(dict.fromkeys(texts)) for path, texts in rows.items()}
        new = {path: text for path, text in lines.items() if seen.get(path) != text}
        seen |= lines
        yield f"## {route}\n"
        if new:
            table = "\n".join(f"| `{path}` | {text} |" for path, text in new.items())
            yield f"| value | limit |\n|---|---|\n{table}\n"
        changed = {_field_of(path) for path in new}
        same = dict.fromkeys(_field_of(path) for path in lines if _field_of(path) not in changed)
        if same:
            yield textwrap.fill(f"As above: {', '.join(f'`{name}`' for name in same)}.", 100) + "\n"


def limits_page() -> str:
    """Return the page's text."""
    sizes: dict[str, int] = {}
    for request in REQUESTS.values():
        for name in request.__struct_fields__:
            size = field_bytes(name)
            if size is not None and size != limits.DEFAULT_FIELD_BYTES:
                sizes[name] = size
    table = "\n".join(f"| `{name}` | {size:,} |" for name, size in sorted(sizes.items()))
    return f"""# Limits

`python -m docs.make_limits` writes this page from the types of the requests. A value beyond a limit
is a 400 that names the field; one of bytes is a 413. A section leaves out
the rows of a section above. Flags, and fields that take one of a few words, have no row.

The operator chooses `--max-body-size`, `--max-model-len`, `--max-answer-logprobs` and the limits of
what may wait (`--max-queued-requests`). The limits on this page are upper bounds that protect the
server and are not configurable.

## Bodies

A body has at most {limits.MAX_CONTAINERS:,} of the characters `[` and `{{` and at most
{limits.MAX_COMMAS:,} commas. It has at most {limits.MAX_KEYS:,} colons or twice as many quotation
marks. One with unknown fields has at most {limits.MAX_COLONS:,} colons. Characters inside of texts
count. So all lists of token ids of a body have about a million ids together: send more of them in
several requests, or as texts. A completion request has at most {limits.MAX_PROMPTS:,} prompts,
and a bad word at most {limits.MAX_BAD_WORD_TOKENS} tokens. The signatures of a Messages request
carry at most {limits.MAX_UNPACKED:,} bytes of thinking together. The JSON of a top-level field
has at most {limits.DEFAULT_FIELD_BYTES:,} bytes, except for `messages`, `system`, `prompt`,
`suffix` and `tokens`, which only `--max-body-size` limits, and these:

| field | bytes |
|---|---|
{table}

{chr(10).join(_sections())}"""


if __name__ == "__main__":
    PAGE.write_text(limits_page(), encoding="utf-8")
