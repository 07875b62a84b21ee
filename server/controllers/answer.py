"""answer: the steps that every generating route shares."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from litestar import Response

from server.admission.lane import Turn
from server.admission.ticket import Ticket
from server.answers import StreamAnswer, WholeAnswer
from server.job import Job
from server.served_model import ServedModel
from server.serving import Serving

R = TypeVar("R")


async def answer(
    serving: Serving,
    ticket: Ticket,
    translate: Callable[[R, ServedModel], Job],
    request: R,
    *,
    num_generations: int = 1,
    priority: int | None = None,
) -> Response[Any]:
    """Translate the request in a worker thread, submit the job, return the response that sends it.

    ``num_generations`` is the number of choices of all prompts, and ``priority`` the request's.

    Raises what the ticket, ``translate``, the grammar compiler and ``EngineBridge.open`` raise.
    After this no 4xx is possible.
    """
    ticket.decoded(num_generations)
    turn = Turn(ticket.tenant.name, ticket.num_body_bytes, priority or 0)
    lane = serving.lanes.of_size(ticket.num_body_bytes)
    job = await lane.run(turn, translate, request, serving.model)
    ticket.translated(
        num_prompt_tokens=job.num_prompt_tokens, num_output_tokens=job.max_output_tokens
    )
    grammars, salt = job.new_grammars, job.salt(ticket.tenant)
    if grammars is not None and not grammars.are_compiled(salt):
        with ticket.compiling():
            await serving.lanes.grammars.run(turn, grammars.compile, salt)
    stream = serving.bridge.open(job.requests(ticket.tenant), on_end=ticket.choice_ended)
    ticket.attach(stream, partial(serving.bridge.fail, stream))
    if not job.is_streamed:
        return WholeAnswer(stream, job.renderer, ignored=job.ignored)
    interval = serving.settings.keep_alive_interval
    return StreamAnswer(stream, job.renderer, keep_alive_interval=interval, ignored=job.ignored)
