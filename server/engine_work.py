"""EngineWork: the open requests of an engine's server, as ``DrainingServer`` sees them."""

from __future__ import annotations

from litestar import Litestar

from server.connections.turn_away import TurnAway
from server.early_refusal import EarlyRefusal
from server.probes import liveness
from server.serving import Serving


class EngineWork:
    """Event loop only, once the application's lifespan has begun."""

    def __init__(self, app: Litestar) -> None:
        self._app = app

    @property
    def _serving(self) -> Serving:
        serving: Serving = self._app.state.serving
        return serving

    def turn_away(self) -> TurnAway:
        return EarlyRefusal(self._app)

    def is_full(self) -> bool:
        return self._serving.admission.choices.is_full

    def is_alive(self) -> bool:
        return liveness(self._serving.bridge).status == "ok"

    async def drain(self, seconds: float) -> None:
        await self._serving.bridge.drain(seconds)

    def cancel_all(self) -> None:
        self._serving.bridge.cancel_all()
