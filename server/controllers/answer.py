"""answer: the steps that every generating route shares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from litestar import Response

from server.answers import StreamAnswer, WholeAnswer
from server.job import Job
from server.served_model import ServedModel
from server.serving import Serving
from server.tenants.tenant import Tenant

R = TypeVar("R")


async def answer(
    serving: Serving, translate: Callable[[R, ServedModel], Job], request: R, tenant: Tenant
) -> Response[Any]:
    """Translate the request in a worker thread, submit the job, return the response that sends it.

    Raises what ``translate`` and ``EngineBridge.open`` raise. After this no 4xx is possible.
    """
    job = await serving.in_worker(translate, request, serving.model)
    serving.bridge.check_room(job.num_requests)  # before job.requests allocates them
    stream = serving.bridge.open(job.requests(tenant))
    if not job.is_streamed:
        return WholeAnswer(stream, job.renderer)
    interval = serving.settings.keep_alive_interval
    return StreamAnswer(stream, job.renderer, keep_alive_interval=interval)
