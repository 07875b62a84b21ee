"""Ollama's requests to jobs. Runs in a worker thread.

raw_job: a text to continue, answered in Ollama's form.
"""

from __future__ import annotations

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
from server.generation.grammars import NewGrammars
from server.generation.job import Job
from server.generation.model import ServedModel
from server.http.errors import unsupported
from server.rendering.deltas import ChatOptions
from server.translation.chat import chat_job
from server.translation.formats import output_format
from server.translation.params import answer_length, sampling_params
from server.translation.prompt_size import size_check
from server.translation.prompts import completion_prompts
from server.translation.shared_fields import (
    check_shared_fields,
    new_envelope,
    new_job,
    refuse_unsupported,
)


def raw_job(request: CompletionRequest, model: ServedModel) -> Job:
    """Check the fields and tokenize. Raises InvalidRequest."""
    model.check_generates()
    check_shared_fields(request)
    refuse_unsupported(request)
    check = partial(size_check, request, model)
    [prompt] = completion_prompts(
        request,
        model.tokenizer,
        check_size=check(param="prompt"),
        check_suffix=check(param="suffix"),
    )
    new_grammars = NewGrammars(model.grammar_compiler)
    grammar, format_param = output_format(request)
    if grammar is not None:
        new_grammars.note(grammar, param=format_param)
    max_tokens = answer_length(
        prompt.token_ids, request.max_tokens, model.info, param="prompt", is_clamped=True
    )
    params = sampling_params(
        request,
        max_tokens=max_tokens,
        logprobs=request.logprobs,
        echo_logprobs=None,
        info=model.info,
        tokenizer=model.tokenizer,
        grammar=grammar,
    )
    envelope = new_envelope(
        request,
        model,
        id_prefix="ollama-",
        prompts=[prompt.token_ids],
        num_choices=1,
        num_top=request.logprobs,
        new_grammars=new_grammars,
    )
    renderer = OllamaRenderer(envelope, ChatOptions(), new_line=generate_line)
    return new_job(request, model, envelope, [params], renderer, new_grammars)


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
            raise unsupported(f"'{name}' is not supported by this server.", name)
    if request.raw or request.suffix:
        return _named_by_client(raw_job(_completion(request), model), request)
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
