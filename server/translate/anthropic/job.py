"""Messages requests to jobs and counts. Runs in a worker thread."""

from __future__ import annotations

from functools import partial

import msgspec

from schemas.anthropic import CountTokensRequest, MessagesRequest
from schemas.anthropic_answer import TokenCount
from server.job import Job
from server.render.anthropic.renderer import MessageForm, MessageRenderer
from server.served_model import ServedModel
from server.translate.anthropic.request import chat_request
from server.translate.anthropic.thinking import omits_thinking
from server.translate.chat_job import chat_job
from server.translate.nesting import check_nesting
from server.translate.prompt_size import check_messages_size
from server.translate.prompts import chat_prompt
from server.translate.tools import select_tools


def translate_messages(request: MessagesRequest, model: ServedModel) -> Job:
    """Check the fields, render the chat template and tokenize. Raises InvalidRequest."""
    form = MessageForm(
        max_tokens=request.max_tokens,
        omits_thinking=omits_thinking(request),
    )
    job = chat_job(
        chat_request(request, model),
        model,
        id_prefix="msg_",
        new_renderer=partial(MessageRenderer, form=form),
        clamps_length=True,
    )
    if job.new_grammars is not None:
        config = request.output_config
        is_new = config is not None and config.format is not None
        name = "output_config.format" if is_new else "output_format"
        job.new_grammars.rename_params(lambda param: name if param == "response_format" else param)
    return job


def count_tokens(request: CountTokensRequest, model: ServedModel) -> bytes:
    """The JSON of the number of prompt tokens that the same Messages request has.

    A conversation that does not fit into the context is counted too. Raises InvalidRequest.
    """
    model.check_generates()
    chat = chat_request(request, model)
    check_nesting(chat)
    check_messages_size(chat.messages)
    tokens = chat_prompt(
        chat,
        model.tokenizer,
        tools=select_tools(chat).shown,
        allow_template=False,
        families=model.families,
    )
    return msgspec.json.encode(TokenCount(input_tokens=len(tokens)))
