"""translate_response: a request for a response to a Job. Runs in a worker thread."""

from __future__ import annotations

from functools import partial

from schemas.responses_request import ResponsesRequest
from server.job import Job
from server.served_model import ServedModel
from server.translate.chat_job import chat_job
from server.translate.nesting import check_nesting
from server.translate.responses.echo import renderer_of
from server.translate.responses.errors import named_by_client
from server.translate.responses.kept import Shelf
from server.translate.responses.request import chat_request
from server.translate.responses.truncation import fitting_job


def translate_response(request: ResponsesRequest, model: ServedModel, shelf: Shelf) -> Job:
    """The job of a response. Raises InvalidRequest naming the client's field."""
    check_nesting(request)
    conversation = shelf.conversation(request)
    chat = chat_request(request, conversation.items())
    keep = shelf.keeper(request, conversation)
    new_renderer = renderer_of(request, model, chat.item_options, keep)
    job = partial(chat_job, model=model, id_prefix="resp_", new_renderer=new_renderer)
    with named_by_client(chat.origins):
        found = (
            fitting_job(job, chat.request) if request.truncation == "auto" else job(chat.request)
        )
    if found.new_grammars is not None:
        found.new_grammars.rename_params(chat.origins.path)
    return found
