"""Ollama's requests to jobs. Runs in a worker thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from schemas.chat import ChatCompletionRequest
from schemas.completions import CompletionRequest
from schemas.messages import Message, SystemMessage, UserMessage
from schemas.ollama import GenerationFields, OllamaChatRequest, OllamaGenerateRequest
from server.apis.ollama.chat import (
    chat_messages,
    ignored_options,
    num_top_logprobs,
    sampling,
    template_switches,
)
from server.apis.ollama.renderer import OllamaRenderer, chat_line, generate_line
from server.generation.job import Job
from server.generation.model import ServedModel
from server.http.errors import unsupported
from server.rendering.base import Envelope
from server.rendering.deltas import ChatOptions
from server.translation.chat import chat_job
from server.translation.prompts import TokenizedPrompt
from server.translation.text import text_job


def translate_chat(request: OllamaChatRequest, model: ServedModel) -> Job:
    """The job of a conversation. Raises InvalidRequest."""
    job = chat_job(
        _chat(request, chat_messages(request.messages or ()), tools=request.tools or None),
        model,
        id_prefix="ollama-",
        new_renderer=partial(OllamaRenderer, new_line=chat_line),
        clamps_length=True,
    )
    return _named_by_client(job, request)


def translate_generate(request: OllamaGenerateRequest, model: ServedModel) -> Job:
    """The job of a prompt: one turn of the user, or with ``raw`` or a suffix the bare text."""
    for name in ("images", "template", "context", "width", "height", "steps"):
        if getattr(request, name):
            raise unsupported(name, f"'{name}' is not supported by this server.")
    if request.raw or request.suffix:
        job = text_job(
            _completion(request),
            model,
            id_prefix="ollama-",
            new_renderer=_raw_renderer,
            default_length=None,
            clamps_length=True,
        )
        return _named_by_client(job, request)
    messages: list[Message] = [UserMessage(content=request.prompt or "")]
    if request.system:
        messages.insert(0, SystemMessage(content=request.system))
    job = chat_job(
        _chat(request, messages),
        model,
        id_prefix="ollama-",
        new_renderer=partial(OllamaRenderer, new_line=generate_line),
        clamps_length=True,
    )
    return _named_by_client(job, request)


def _raw_renderer(envelope: Envelope, _prompts: Sequence[TokenizedPrompt]) -> OllamaRenderer:
    return OllamaRenderer(envelope, ChatOptions(), new_line=generate_line)


def _named_by_client(job: Job, request: GenerationFields) -> Job:
    """Name parts without effect, and schemas, as Ollama's clients do."""
    if job.new_grammars is not None:
        job.new_grammars.rename_params(
            lambda param: "format" if param == "response_format" else param
        )
    return replace(job, ignored=ignored_options(request))


def _chat(
    request: GenerationFields, messages: list[Message], **fields: Any
) -> ChatCompletionRequest:
    num_top = num_top_logprobs(request)
    return ChatCompletionRequest(
        messages=messages,
        chat_template_kwargs=template_switches(request) or None,
        logprobs=None if num_top is None else True,
        top_logprobs=num_top,
        **sampling(request),
        **fields,
    )


def _completion(request: OllamaGenerateRequest) -> CompletionRequest:
    return CompletionRequest(
        prompt=request.prompt or "",
        suffix=request.suffix or None,
        logprobs=num_top_logprobs(request),
        **sampling(request),
    )
