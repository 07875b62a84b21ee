"""StartUp: what a server shows between its first line and its readiness."""

from __future__ import annotations

from collections.abc import Callable

from core.load_progress import LoadProgress
from server.loaded import Loaded
from server.net.endpoint import Endpoint
from server.served_model import ServedModel
from server.settings import Settings
from server.start_up.announcement import announce
from server.start_up.reported import reported
from server.start_up.screen import StartScreen


class StartUp:
    """The start of one server. Main thread only; ``load`` may run on another one."""

    def __init__(self, settings: Settings, load: Callable[[], Loaded] | None) -> None:
        """``load`` replaces the loader of ``settings.model``."""
        progress = LoadProgress()
        self._settings = settings
        self._screen = StartScreen(progress)
        self.load = reported(settings, load, progress)

    def begin(self, endpoint: Endpoint) -> None:
        """Say where the server listens, and show how far the load is."""
        print(f"Listening on {endpoint.url}, loading {self._settings.model_name} ...", flush=True)
        self._screen.start()

    def ready(self, endpoint: Endpoint, model: ServedModel) -> None:
        """Say what is served."""
        self.end()
        announce(
            self._settings,
            endpoint,
            model.info,
            takes_messages=model.takes_messages,
            ends=[*map(model.tokenizer.token_text, model.info.eos_token_ids)],
        )

    def end(self) -> None:
        """Stop showing the load. Idempotent."""
        self._screen.stop()
