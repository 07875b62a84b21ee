"""StrictRequest: decodes a JSON body once, strictly, into the handler's type."""

from __future__ import annotations

from typing import Any

from litestar import Request
from litestar.exceptions import InternalServerException

from server.decoding import decode_request
from server.errors import APIError
from server.ignored_fields import report_ignored


class StrictRequest(Request[Any, Any, Any]):
    """Decodes the body into the Struct that the handler declares.

    Litestar would decode to plain objects and convert these leniently (``"5"`` to 5). It does not
    convert a body that already has the declared type.
    """

    async def json(self) -> Any:
        """The body as the type of the handler's ``data``. Raises APIError."""
        media_type = self.headers.get("content-type", "").partition(";")[0].strip()
        if media_type.lower() != "application/json":
            raise APIError(
                415, f"Content-Type must be application/json, not {media_type or 'absent'}."
            )
        field = self.route_handler.parsed_data_field
        assert field is not None
        is_strict = self.app.state.serving.settings.strict_fields
        decoded = decode_request(await self.body(), field.annotation, is_strict=is_strict)
        report_ignored(self.scope, decoded.ignored)
        return decoded.request

    async def body(self) -> bytes:
        """The bytes of the body. Raises APIError if the body is empty or incomplete."""
        try:
            body = await super().body()
        except InternalServerException:
            raise APIError(499, "The client disconnected before its request was read.") from None
        if not body:
            raise APIError(400, "The body is empty; a JSON object is expected.")
        return body
