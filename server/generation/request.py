"""StrictRequest: decodes a JSON body once, strictly, into the handler's type."""

from __future__ import annotations

from functools import partial
from typing import Any

from litestar import Request

from server.admission.control import ticket_of
from server.admission.pools import LARGE_BODY
from server.http.body import check_media_type, coding_of, plain, whole_body
from server.http.decoding import Decoded, decode_request
from server.http.ignored_fields import report_ignored


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
        if coding is not None:
            body = await self._plain(body, coding)
        decoded = await self._decoded(body, field.annotation)
        ticket_of(self.scope).decoded(decoded.size)
        report_ignored(self.scope, decoded.ignored)
        return decoded.request

    async def _plain(self, body: bytes, coding: str) -> bytes:
        """The body without its coding, with its place in the budget."""
        data = await plain(body, coding, self.app.state.serving.settings.max_body_size)
        ticket_of(self.scope).body_grew(max(len(data) - len(body), 0))
        return data

    async def _decoded(self, body: bytes, type_: Any) -> Decoded[Any]:
        """Decode the body, a large one in a worker: several passes, between which others run."""
        serving = self.app.state.serving
        decode = partial(decode_request, body, type_, is_strict=serving.settings.strict_fields)
        if len(body) <= LARGE_BODY:
            return decode()
        turn = ticket_of(self.scope).turn()  # its priority is not known yet
        decoded: Decoded[Any] = await serving.pools.large.run(turn, decode)
        return decoded

    async def body(self) -> bytes:
        """The bytes of the body. Raises APIError if the body is empty or incomplete.

        They are kept until ``json`` takes them. Litestar's method would keep them with the scope,
        until the answer is sent.
        """
        if self._whole is None:
            self._whole = await whole_body(self._read)
        return self._whole

    async def _read(self) -> bytes:
        return b"".join([piece async for piece in self.stream()])
