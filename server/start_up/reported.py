"""reported: a loader that says how far it is."""

from __future__ import annotations

from collections.abc import Callable

from core.load import load as load_model
from core.load_progress import LoadProgress, reporting
from core.model.modelling_import import import_modelling
from server import heap
from server.loaded import Loaded
from server.settings import Settings


def reported(
    settings: Settings, load: Callable[[], Loaded] | None, progress: LoadProgress
) -> Callable[[], Loaded]:
    """Return ``load``, or the loader of ``settings.model``, which then reports to ``progress``."""

    def run() -> Loaded:
        with reporting(progress):
            if load is not None:
                return load()
            import_modelling()
            heap.keep()
            return load_model(settings.model, settings.engine)

    return run
