"""turn_away_busy: what requests on connections above the limit are answered."""

from __future__ import annotations

from urllib.parse import unquote

from core.contract.errors import Unavailable
from server.connections import refusal
from server.connections.early import early_answer
from server.connections.probes import PROBES
from server.connections.turn_away import EarlyAnswer, Headers
from server.errors import to_api_error
from server.request_id import id_of
from server.tenants.address import tenant_at


def turn_away_busy(
    method: bytes, url: bytes, headers: Headers, client: tuple[str, int] | None
) -> EarlyAnswer | None:
    """Answer 503. Probes of health are left to the application.

    Keys are not looked up: in the access log, the tenant is the connection's address.
    """
    path = unquote(url.partition(b"?")[0].decode("latin-1"))
    if path in PROBES:
        return None
    error = to_api_error(Unavailable(refusal.BUSY.message))
    return early_answer(error, method.decode(), path, tenant_at(client), id_of(headers))
