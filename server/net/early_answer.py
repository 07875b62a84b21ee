"""Errors that are answered from the head of a request, in front of the application."""

from __future__ import annotations

from urllib.parse import unquote

from server.http.apis import path_at
from server.http.errors import RETRY_AFTER_SECONDS, APIError, retry_headers
from server.net import refusal
from server.net.head import EarlyAnswer, Head
from server.observe.access_log import id_headers, id_of, log_refusal
from server.observe.log import RequestLog
from server.tenants.tenant import Tenant, tenant_at


def early_answer(
    error: APIError,
    head: Head,
    path: str,
    tenant: Tenant,
    records: RequestLog | None = None,
) -> EarlyAnswer:
    """What the application would answer, with its line in the access log.

    ``path`` is the route's. With ``records``, the request is recorded.
    """
    method, request_id = head.method.decode(), id_of(head.headers)

    def answer(*, is_last: bool) -> bytes:
        log_refusal(method, path, tenant.name, request_id, error, records)
        ids = {name.decode(): value.decode() for name, value in id_headers(path, request_id)}
        headers = {**ids, "openai-processing-ms": "0"} | retry_headers(error)
        data = refusal.raw_response(error, headers, is_last=is_last, path=path)
        return data[: data.index(b"\r\n\r\n") + 4] if method == "HEAD" else data

    return answer


def busy_answer(head: Head) -> EarlyAnswer | None:
    """503 for a request on a connection above the limit. None for a probe of health.

    Keys are not looked up: in the access log, the tenant is the connection's address.
    """
    path = unquote(head.url.partition(b"?")[0].decode("latin-1"))
    if path_at(path).is_probe:
        return None
    error = refusal.BUSY.error()
    error.headers["retry-after"] = str(RETRY_AFTER_SECONDS)
    return early_answer(error, head, path, tenant_at(head.client))
