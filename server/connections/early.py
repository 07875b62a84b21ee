"""early_answer: an error as an answer in front of the application."""

from __future__ import annotations

from server.connections.refusal import raw_response
from server.connections.turn_away import EarlyAnswer
from server.errors import APIError, retry_headers
from server.records.log import RequestLog
from server.request_id import id_headers, log_refusal
from server.tenants.tenant import Tenant


def early_answer(
    error: APIError,
    method: str,
    path: str,
    tenant: Tenant,
    request_id: bytes,
    records: RequestLog | None = None,
) -> EarlyAnswer:
    """What the application would answer, with its line in the access log.

    ``path`` is the route's. With ``records``, the request is recorded.
    """

    def answer(*, is_last: bool) -> bytes:
        log_refusal(method, path, tenant, request_id, error, records)
        ids = {name.decode(): value.decode() for name, value in id_headers(path, request_id)}
        headers = {**ids, "openai-processing-ms": "0"} | retry_headers(error)
        data = raw_response(error, headers, is_last=is_last, path=path)
        return data[: data.index(b"\r\n\r\n") + 4] if method == "HEAD" else data

    return answer
