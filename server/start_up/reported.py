"""reported: a loader that says how far it is."""

from __future__ import annotations

from collections.abc import Callable

from core.load import load as load_model
from core.load_progress import LoadProgress, reporting
from server.loaded import Loaded
from server.settings import Settings


def reported(
    settings: Settings, load: Callable[[], Loaded] | None, progress: LoadProgress
) -> Callable[[], Loaded]:
    """Return ``load``, or the loader of ``settings.model``, which then reports to ``progress``."""

    def run() -> Loaded:
        with reporting(progress):
            return load() if load else load_model(settings.model, settings.engine)

    return run
