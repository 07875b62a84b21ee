"""Progress bars of the libraries that load checkpoints, turned into a LoadProgress.

The hub and transformers make bars of tqdm. Ours draw nothing and say how far they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from core.observe.load_progress import LoadProgress, LoadStage, listener

DOWNLOAD, WEIGHTS = "downloading", "loading weights"


def download_options(source: str) -> dict[str, Any]:
    """Arguments of ``from_pretrained`` with which a download is reported."""
    progress = listener()
    if progress is None or Path(source).exists():
        return {}
    return {"tqdm_class": bars_of(progress, DOWNLOAD)}


@contextmanager
def reported_weights() -> Iterator[None]:
    """Report the weights that transformers loads within the block, if anyone listens."""
    from transformers.utils import logging  # noqa: PLC0415 - slow to import

    progress = listener()
    set_hook: Callable[[Any], Any] | None = getattr(logging, "set_tqdm_hook", None)
    if progress is None or set_hook is None:  # not in every version
        yield
        return
    bars = bars_of(progress, WEIGHTS)
    former = set_hook(lambda _make, args, options: bars(*args, **options))
    try:
        yield
    finally:
        set_hook(former)


def bars_of(progress: LoadProgress, name: str) -> Any:
    """A class of bars that report a stage of this name. Of a download, only bytes count."""
    from tqdm import tqdm  # noqa: PLC0415 - imported when needed, as the libraries do

    class Bar(tqdm):  # type: ignore[misc]
        """A bar of tqdm that draws nothing and reports to ``progress``."""

        def __init__(self, *args: Any, **options: Any) -> None:
            self.is_bytes = options.get("unit") == "B"
            options.pop("name", None)  # the hub's own classes know it
            super().__init__(*args, **(options | {"disable": True}))

        def update(self, n: float | None = 1) -> None:
            """Count ``n`` more, from any thread."""
            self.n += n or 0
            if self.is_bytes == (name == DOWNLOAD):
                progress.show(LoadStage(name, int(self.n), int(self.total or 0), self.is_bytes))

        def __iter__(self) -> Iterator[Any]:
            for item in self.iterable:
                yield item
                self.update()

    return Bar
