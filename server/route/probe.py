"""sickness: asks a server for its health."""

from __future__ import annotations

from contextlib import closing

from server.route.address import Address
from server.route.answer import UpstreamFailed, send
from server.route.call import Call


async def sickness(
    address: Address,
    path: str,
    timeout: float,  # noqa: ASYNC109 - a limit of the question, not a cancellation
) -> str:
    """What is wrong with a server, in words; empty if ``path`` answers 200 in time."""
    head = Call("GET", path, path.encode(), [(b"accept", b"*/*")]).head(address, None)
    try:
        answer = await send(address, head, silence=timeout, connect_timeout=timeout)
        with closing(answer):
            await answer.head()
    except UpstreamFailed as failure:
        return str(failure)
    return "" if answer.status == 200 else f"{path} answers {answer.status}"
