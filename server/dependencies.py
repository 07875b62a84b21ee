"""What handlers can ask for by the name of a parameter."""

from __future__ import annotations

from typing import Any

from litestar import Request
from litestar.datastructures import State
from litestar.di import Provide

from server.admission.decision import ticket_of
from server.admission.ticket import Ticket
from server.serving import Serving


def _serving(state: State) -> Serving:
    serving: Serving = state.serving
    return serving


def _ticket(request: Request[Any, Any, Any]) -> Ticket:
    return ticket_of(request.scope)


DEPENDENCIES = {
    "serving": Provide(_serving, sync_to_thread=False),
    "ticket": Provide(_ticket, sync_to_thread=False),
}

NO_DEPENDENCIES = {name: Provide(lambda: None, sync_to_thread=False) for name in DEPENDENCIES}
"""For an application that only describes its routes."""
