"""answer: the steps that every generating route shares."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from litestar import Response

from server.admission.admission import Ticket
from server.generation.job import Job, effective_parameters
from server.generation.model import ServedModel
from server.generation.sending import StreamAnswer, WholeAnswer
from server.generation.serving import Serving
from server.observe.texts import HeardRenderer, Texts
from server.observe.trace import Trace
from server.rendering.base import Renderer

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
    After this no 429 is possible, and a 400 only for a fault that the engine finds in the request.
    """
    ticket.chosen(num_generations)
    texts = Texts() if serving.settings.log_prompts else None
    turn = ticket.turn(priority or 0)
    pool = serving.pools.of_size(ticket.num_body_bytes)
    job = await pool.run(turn, _translated, translate, request, serving.model, texts)
    _note(ticket.trace, job, serving.model, texts)
    ticket.translated(
        num_prompt_tokens=job.num_prompt_tokens, num_output_tokens=job.max_output_tokens
    )
    grammars, salt = job.new_grammars, job.salt(ticket.tenant)
    if grammars is not None and not grammars.are_compiled(salt):
        with ticket.compiling():
            await serving.pools.grammars.run(ticket.turn(turn.priority), grammars.compile, salt)
    ignored = [*job.ignored, *(() if grammars is None else grammars.warnings)]
    if grammars is not None and serving.settings.strict_schemas:
        grammars.check_enforced()
    stream = serving.bridge.open(job.requests(ticket.tenant), on_end=ticket.choice_ended)
    ticket.attach(stream, partial(serving.bridge.fail, stream))
    ticket.trace.submitted(stream)
    renderer: Renderer = job.renderer if texts is None else HeardRenderer(job.renderer, texts)
    if not job.is_streamed:
        return WholeAnswer(stream, renderer, ignored=ignored, on_rendered=ticket.rendered)
    interval = serving.settings.keep_alive_interval
    return StreamAnswer(stream, renderer, keep_alive_interval=interval, ignored=ignored)


def _translated(
    translate: Callable[[R, ServedModel], Job], request: R, model: ServedModel, texts: Texts | None
) -> Job:
    """Translate in a worker; with ``texts``, also keep the prompts as the model sees them."""
    job = translate(request, model)
    if texts is not None:
        texts.take_prompts(job.prompts, model.tokenizer)
    return job


def _note(trace: Trace, job: Job, model: ServedModel, texts: Texts | None) -> None:
    """What the record says of a translated request."""
    trace.id, trace.is_streamed, trace.texts = job.id, job.is_streamed, texts
    trace.num_prompt_tokens, trace.choices_per_prompt = job.num_prompt_tokens, job.num_choices
    if model.info.pooling is None:
        trace.parameters = effective_parameters(job)
