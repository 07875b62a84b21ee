"""render: the text that a chat template makes of a conversation, as transformers renders it.

transformers is not imported. The environment is that of ``transformers.utils.chat_template_utils``:
templates are programs from elsewhere, so they run in Jinja's sandbox and see plain data only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache, lru_cache
from typing import Any

from jinja2 import Template, TemplateError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

_MAX_TEMPLATES = 32
"""Templates that stay compiled: requests may bring their own."""

_REASONING = ("reasoning_content", "thinking", "reasoning")
"""Names of the text that a model thought. Templates read the first, those of gpt-oss the second."""

_END = "CONTINUE_FINAL_MESSAGE_TAG "
"""Follows the text to continue. The space shows whether the template strips contents."""


def render(
    template: str,
    messages: Sequence[Mapping[str, Any]],
    *,
    tools: Sequence[Mapping[str, Any]] | None = None,
    documents: Sequence[Mapping[str, Any]] | None = None,
    add_generation_prompt: bool = False,
    continue_final_message: bool = False,
    variables: Mapping[str, Any],
) -> str:
    """Render a conversation; ``continue_final_message`` leaves out what follows its last content.

    Any thread. Raises what the template raises, and ValueError or TypeError for messages that
    cannot be rendered.
    """
    chat = [_message(message) for message in messages]
    for given in (tools, documents):
        if given is not None and not all(isinstance(each, Mapping) for each in given):
            raise TypeError("tools and documents are lists of objects")
    last = ""
    if continue_final_message:
        if add_generation_prompt:
            raise ValueError(
                "continue_final_message and add_generation_prompt are not compatible: one "
                "continues the last message, the other begins a new one"
            )
        if "content" not in template:
            raise ValueError("continue_final_message is set, and the template reads no content")
        last = _mark_end(chat[-1])
    rendered = _compiled(template).render(
        messages=chat,
        tools=_plain(tools),
        documents=_plain(documents),
        add_generation_prompt=add_generation_prompt,
        **_plain(variables),
    )
    return _cut(rendered, last) if continue_final_message else rendered


@lru_cache(_MAX_TEMPLATES)
def _compiled(template: str) -> Template:
    """Compile a template. Raises TemplateSyntaxError."""
    return _environment().from_string(template)


@cache
def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals |= {
        "raise_exception": _raise_exception,
        "strftime_now": lambda format: datetime.now().strftime(format),  # noqa: A006, DTZ005
        "dict": _Dict(),
        "namespace": _Namespace,
    }
    return environment


class _Generation(Extension):
    """``{% generation %}`` marks an assistant's text for training. Here it changes nothing."""

    tags = {"generation"}  # noqa: RUF012 - as its base class has it

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("text_of"), [], [], body).set_lineno(line)

    def text_of(self, caller: Any) -> Any:
        return caller()


class _Dict:
    """``dict`` without the attributes of the class."""

    def __call__(self, *args: Any, **values: Any) -> dict[Any, Any]:
        return dict(*args, **values)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        return dict.fromkeys(*args)


class _Namespace(Namespace):
    """Takes no name that begins with an underscore: such names lead into the interpreter."""

    def __init__(*args: Any, **values: Any) -> None:
        self, *given = args
        attributes = dict(*given, **values)
        for name in attributes:
            _check_name(name)
        Namespace.__init__(self, attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: Any) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"the name {name!r} in a namespace begins with an underscore")


def _raise_exception(message: str) -> None:
    raise TemplateError(message)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON without the escapes of HTML that Jinja's own filter has."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _message(message: Any) -> dict[str, Any]:
    """A copy without the keys whose value is None, and with a thought under both its names."""
    if not isinstance(message, Mapping):
        raise TypeError(f"a message is an object, not {type(message).__name__}")
    plain: dict[str, Any] = _plain({k: v for k, v in message.items() if v is not None})
    thought = next((plain[name] for name in _REASONING if name in plain), None)
    if thought is None:
        return plain
    return {"thinking": thought, **plain, "reasoning_content": thought}


def _plain(value: Any) -> Any:
    """A copy of JSON types. Methods of other types may do what the sandbox does not know of."""
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, Mapping):
        return {_plain(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [*map(_plain, value)] if isinstance(value, list) else tuple(map(_plain, value))
    for kind in (str, int, float):
        if isinstance(value, kind):
            return getattr(kind, f"__{kind.__name__}__")(value)
    return f"<{type(value).__name__}>"


def _mark_end(message: dict[str, Any]) -> str:
    """Write ``_END`` behind the last text of a message, and return that text."""
    content = message.get("content")
    if isinstance(content, str):
        message["content"] = content + _END
        return content
    for part in reversed(content or ()):
        if "text" in part:
            text: str = part["text"]
            part["text"] = text + _END
            return text
    raise ValueError("continue_final_message is set, and the last message has no text to continue")


def _cut(rendered: str, last: str) -> str:
    """Return the text before ``_END``. Raises ValueError if the template does not show it."""
    mark = _END.strip()
    if last.strip() not in rendered or mark not in rendered:
        raise ValueError(
            "continue_final_message is set, and the chat template does not show the text of the "
            "last message"
        )
    end = rendered.rindex(mark)
    is_stripped = rendered[end : end + len(_END)] != _END
    return rendered[:end].rstrip() if is_stripped else rendered[:end]
