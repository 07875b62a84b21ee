"""translate_chat: a chat request to a Job. Runs in a worker thread."""

from __future__ import annotations

from schemas.chat import ChatCompletionRequest
from server.job import Job
from server.render.chat import ChatRenderer
from server.render.functions import FunctionRenderer
from server.served_model import ServedModel
from server.translate.chat_job import chat_job
from server.translate.functions import uses_functions, with_tools


def translate_chat(request: ChatCompletionRequest, model: ServedModel) -> Job:
    """The job of a chat completion. Raises InvalidRequest."""
    new_renderer = FunctionRenderer if uses_functions(request) else ChatRenderer
    return chat_job(with_tools(request), model, id_prefix="chatcmpl-", new_renderer=new_renderer)
