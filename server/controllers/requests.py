"""GET /requests and /requests/{id}: what happened to the requests of a key."""

from __future__ import annotations

from typing import Annotated, Any

from litestar import Controller, Request, get
from litestar.di import NamedDependency
from litestar.params import FromPath, QueryParameter

from schemas.records import RequestList, RequestRecord
from server.errors import APIError
from server.openapi.responses import returns
from server.serving import Serving
from server.tenants.tenant import tenant_of

AnyRequest = Request[Any, Any, Any]


class RequestController(Controller):
    path = "/requests"
    tags = ("Operation",)

    @get(sync_to_thread=False, responses=returns(RequestList, 400, 500))
    def latest(
        self,
        request: AnyRequest,
        serving: NamedDependency[Serving],
        limit: Annotated[int, QueryParameter(ge=1, le=1000)] = 100,
    ) -> RequestList:
        """List the newest requests of this key, running ones included."""
        return RequestList(data=serving.records.latest(tenant_of(request.scope).name, limit))

    @get("/{request_id:str}", sync_to_thread=False, responses=returns(RequestRecord, 404, 500))
    def retrieve(
        self, request_id: FromPath[str], request: AnyRequest, serving: NamedDependency[Serving]
    ) -> RequestRecord:
        """Describe a request of this key, by its response's id or its x-request-id."""
        record = serving.records.find(tenant_of(request.scope).name, request_id)
        if record is None:
            raise APIError(
                404,
                f"There is no record of a request '{request_id[:64]}'. The server keeps the last "
                f"{serving.settings.request_log} of all keys (--request-log).",
                param="request_id",
                code="request_not_found",
            )
        return record
