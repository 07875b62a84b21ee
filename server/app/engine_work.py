"""EngineWork: the open requests of an engine's server, as ``DrainingServer`` sees them."""

from __future__ import annotations

from litestar import Litestar

from server.apis.operation.health import liveness
from server.bridge.bridge import EngineBridge
from server.net.head import Admit


class EngineWork:
    """Event loop only, once the application's lifespan has begun."""

    def __init__(self, app: Litestar) -> None:
        self._app = app

    @property
    def _bridge(self) -> EngineBridge:
        bridge: EngineBridge = self._app.state.serving.bridge
        return bridge

    def admit(self) -> Admit:
        admit: Admit = self._app.state.admit
        return admit

    def is_alive(self) -> bool:
        return liveness(self._bridge).status == "ok"

    async def drain(self, seconds: float) -> None:
        await self._bridge.drain(seconds)

    def cancel_all(self) -> None:
        self._bridge.cancel_all()
