"""StrictRequest: the body of an admitted request as a Struct."""

from __future__ import annotations

from functools import partial
from typing import Any

from litestar import Request

from server.admission.control import ticket_of
from server.http.body import check_media_type, coding_of, plain, whole_body
from server.http.decoding import decode_request
from server.http.ignored_fields import report_ignored
from server.workers.pools import LARGE_BODY


class StrictRequest(Request[Any, Any, Any]):
    """Decodes the body into the Struct that the handler declares.

    Litestar would decode to plain objects and convert these leniently (``"5"`` to 5). It does not
    convert a body that already has the declared type.
    """

    _whole: bytes | None = None
    """The body once it was read; empty once it was decoded."""

    async def json(self) -> Any:
        """The body as the type of the handler's ``data``. Raises APIError."""
        check_media_type(self.headers, self.scope["path"])
        coding = coding_of(self.headers)
        field = self.route_handler.parsed_data_field
        assert field is not None
        body, self._whole = await self.body(), b""
        ticket, serving = ticket_of(self.scope), self.app.state.serving
        if coding is not None:
            num_bytes = len(body)
            body = await plain(body, coding, serving.settings.max_body_size)
            ticket.body_grew(max(len(body) - num_bytes, 0))
        is_strict = serving.settings.strict_fields
        decode = partial(decode_request, body, field.annotation, is_strict=is_strict)
        if len(body) <= LARGE_BODY:
            decoded = decode()
        else:  # several passes, between which others run; the priority is not known yet
            decoded = await serving.pools.large.run(ticket.turn(), decode)
        ticket.decoded(decoded.size)
        report_ignored(self.scope, decoded.ignored)
        return decoded.request

    async def body(self) -> bytes:
        """The bytes of the body. Raises APIError if the body is empty or incomplete.

        They are kept until ``json`` takes them.
        """
        if self._whole is None:
            self._whole = await whole_body(self)
        return self._whole
