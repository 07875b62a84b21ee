"""The life of traces inside the application."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from anyio import move_on_after, to_thread
from litestar import Litestar

from server.serving import Serving
from server.settings import Settings

FLUSH_SECONDS = 3.0
"""Time that the last spans get at the end of the server."""


def tracing_lifespan(
    settings: Settings,
) -> Callable[[Litestar], AbstractAsyncContextManager[None]]:
    """Make spans of requests if ``--otlp-traces-endpoint`` is set. Begins after the engine's."""

    @asynccontextmanager
    async def lifespan(app: Litestar) -> AsyncIterator[None]:
        if settings.otlp_traces_endpoint is None:
            yield
            return
        # the packages are optional, and a server without traces does not import them
        from server.tracing.provider import new_provider  # noqa: PLC0415
        from server.tracing.spans import RequestSpans  # noqa: PLC0415

        serving: Serving = app.state.serving
        provider = new_provider(settings.otlp_traces_endpoint)
        serving.records.listen(RequestSpans(provider))
        try:
            yield
        finally:
            with move_on_after(FLUSH_SECONDS, shield=True):
                await to_thread.run_sync(provider.shutdown, abandon_on_cancel=True)

    return lifespan
