"""Ollama's requests to jobs. Runs in a worker thread."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from core.contract.errors import InvalidRequest
from schemas import messages as chat
from schemas import ollama as wire
from schemas.chat import ChatCompletionRequest
from schemas.completions import CompletionRequest
from schemas.formats import JsonObjectFormat, JsonSchemaFormat, JsonSchemaSpec, ResponseFormat
from server.apis.ollama.renderer import NewLine, OllamaRenderer, chat_line, generate_line
from server.generation.job import Job
from server.generation.model import ServedModel
from server.http.errors import unsupported
from server.rendering.base import ChatOptions, Envelope
from server.translation.chat import chat_job
from server.translation.prompts import TokenizedPrompt
from server.translation.text import text_job
from server.workers.pools import checkpoint

ID_PREFIX = "ollama-"


def translate_chat(request: wire.OllamaChatRequest, model: ServedModel) -> Job:
    """The job of a conversation. Raises InvalidRequest."""
    messages = chat_messages(request.messages or ())
    return _chat_job(request, model, messages, chat_line, tools=request.tools or None)


def translate_generate(request: wire.OllamaGenerateRequest, model: ServedModel) -> Job:
    """The job of a prompt: one turn of the user, or with ``raw`` or a suffix the bare text."""
    for name in ("images", "template", "context", "width", "height", "steps"):
        if getattr(request, name):
            raise unsupported(name, f"'{name}' is not supported by this server.")
    if not request.raw and not request.suffix:
        messages: list[chat.Message] = [chat.UserMessage(content=request.prompt or "")]
        if request.system:
            messages.insert(0, chat.SystemMessage(content=request.system))
        return _chat_job(request, model, messages, generate_line)
    completion = CompletionRequest(
        prompt=request.prompt or "",
        suffix=request.suffix or None,
        logprobs=_num_top_logprobs(request),
        **_sampling(request),
    )
    job = text_job(
        completion,
        model,
        id_prefix=ID_PREFIX,
        new_renderer=_raw_renderer,
        default_length=None,
        clamps_length=True,
    )
    return _named_by_client(job, request)


def _raw_renderer(envelope: Envelope, _prompts: Sequence[TokenizedPrompt]) -> OllamaRenderer:
    return OllamaRenderer(envelope, ChatOptions(), new_line=generate_line)


def _chat_job(
    request: wire.GenerationFields,
    model: ServedModel,
    messages: list[chat.Message],
    new_line: NewLine,
    **fields: Any,
) -> Job:
    num_top = _num_top_logprobs(request)
    same = ChatCompletionRequest(
        messages=messages,
        chat_template_kwargs=_template_switches(request) or None,
        logprobs=None if num_top is None else True,
        top_logprobs=num_top,
        **_sampling(request),
        **fields,
    )
    new_renderer = partial(OllamaRenderer, new_line=new_line)
    job = chat_job(same, model, id_prefix=ID_PREFIX, new_renderer=new_renderer, clamps_length=True)
    return _named_by_client(job, request)


def _named_by_client(job: Job, request: wire.GenerationFields) -> Job:
    """Name parts without effect, and schemas, as Ollama's clients do."""
    job.new_grammars.rename_params(lambda param: "format" if param == "response_format" else param)
    return replace(job, ignored=_ignored_options(request))


_SAME = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "seed",
    "stop",
    "typical_p",
    "tfs_z",
    "mirostat",
    "mirostat_tau",
    "mirostat_eta",
)

_PENALTIES = {
    "repetition_penalty": ("repeat_penalty", 1.0),
    "presence_penalty": ("presence_penalty", 0.0),
    "frequency_penalty": ("frequency_penalty", 0.0),
}
"""The option of each field, and the value that turns it off."""


def _sampling(request: wire.GenerationFields) -> dict[str, Any]:
    """Sampling, streaming and the output format.

    Options of llama.cpp's that have an effect are refused later, by their names. Without a limit
    of tokens the answer may fill the context.
    """
    options = request.options or wire.OllamaOptions()
    limit = options.num_predict
    return {name: getattr(options, name) for name in _SAME} | {
        "max_tokens": limit if limit is not None and limit > 0 else None,
        **_penalties(options),
        "stream": request.stream is not False,
        "response_format": _response_format(request),
    }


def _num_top_logprobs(request: wire.GenerationFields) -> int | None:
    """Alternatives per token. None: no log-probabilities."""
    return (request.top_logprobs or 0) if request.logprobs else None


def _template_switches(request: wire.GenerationFields) -> dict[str, Any]:
    """Variables of the chat template. Without ``think`` the template's default applies."""
    think = request.think
    if think is None or think == "":
        return {}
    if isinstance(think, bool):
        return {"enable_thinking": think}
    return {"enable_thinking": True, "reasoning_effort": think}


def _response_format(request: wire.GenerationFields) -> ResponseFormat | None:
    match request.format:
        case None | "":
            return None
        case "json":
            return JsonObjectFormat()
        case schema:
            assert isinstance(schema, dict)
            return JsonSchemaFormat(json_schema=JsonSchemaSpec(name="format", schema=schema))


def _ignored_options(request: wire.GenerationFields) -> tuple[str, ...]:
    """Options without the effect that they ask for, for ``server.http.ignored_fields``.

    Penalties count the whole text; with ``repeat_last_n`` Ollama's count the last tokens.
    """
    options = request.options
    if options is None or options.repeat_last_n in (None, -1, 0):
        return ()
    given = _penalties(options).items()
    is_on = any(value not in (None, _PENALTIES[name][1]) for name, value in given)
    return ("options.repeat_last_n",) if is_on else ()


def _penalties(options: wire.OllamaOptions) -> dict[str, float | None]:
    """The penalties, which a window of no tokens turns off."""
    return {
        name: off if options.repeat_last_n == 0 else getattr(options, option)
        for name, (option, off) in _PENALTIES.items()
    }


def chat_messages(messages: Sequence[wire.OllamaMessage]) -> list[chat.Message]:
    """Translate messages. Raises InvalidRequest naming one, as ``messages[2].images``.

    Calls and results that have no ids get some: a result belongs to the first call of its tool
    that has none yet.
    """
    pending = _Pending()
    result: list[chat.Message] = []
    for i, message in enumerate(messages):
        checkpoint()
        if message.images:
            param = f"messages[{i}].images"
            raise unsupported(param, f"'{param}' is not supported; this model reads text only.")
        content = message.content or ""
        match message.role:
            case "system":
                result.append(chat.SystemMessage(content=content))
            case "user":
                result.append(chat.UserMessage(content=content))
            case "assistant":
                calls = _calls(message, i)
                pending.add(calls)
                turn = chat.AssistantMessage(
                    content=content,
                    tool_calls=calls or None,
                    reasoning_content=message.thinking or None,
                )
                result.append(turn)
            case "tool":
                name = message.tool_name
                call_id = message.tool_call_id or pending.take(name)
                answer = chat.ToolMessage(content=content, tool_call_id=call_id, name=name)
                result.append(answer)
    return result


def _calls(message: wire.OllamaMessage, index: int) -> list[chat.RequestToolCall]:
    calls = []
    for j, call in enumerate(message.tool_calls or ()):
        arguments = bytes(call.function.arguments).strip()
        if not arguments.startswith(b"{"):
            path = f"messages[{index}].tool_calls[{j}].function.arguments"
            raise InvalidRequest(f"'{path}' must be an object.", param=path, code="invalid_type")
        function = chat.RequestFunctionCall(name=call.function.name, arguments=arguments.decode())
        calls.append(chat.RequestToolCall(id=call.id or f"call_{index}_{j}", function=function))
    return calls


class _Pending:
    """The calls without results, in order. A call takes constant time, and so does a result.

    A call is a list of its id, in the queues of its tool and of all tools, None; empty once taken.
    """

    def __init__(self) -> None:
        self._queues: defaultdict[str | None, deque[list[str]]] = defaultdict(deque)

    def add(self, calls: Sequence[chat.RequestToolCall]) -> None:
        for call in calls:
            entry = [call.id]
            self._queues[call.function.name].append(entry)
            self._queues[None].append(entry)

    def take(self, name: str | None) -> str:
        """The id of the call that a result belongs to; empty if there is none."""
        queue = self._queues[name]
        while queue:
            if entry := queue.popleft():
                return entry.pop()
        return ""
