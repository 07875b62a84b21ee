"""StagesSeen: a LoadProgress that remembers."""

from __future__ import annotations

from core.observe.load_progress import LoadProgress, LoadStage


class StagesSeen(LoadProgress):
    """Keeps every stage that is shown, each time that it is."""

    def __init__(self) -> None:
        super().__init__()
        self.all: list[LoadStage] = []

    def show(self, stage: LoadStage) -> None:
        super().show(stage)
        self.all.append(stage)

    @property
    def names(self) -> list[str]:
        """The stages so far, in the order in which they began first."""
        return list(dict.fromkeys(stage.name for stage in self.all))
