"""Origin: the name, the source and the model's keys_per_row in the file of a measured machine."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path

from transformers import AutoConfig

from core.run.keys_per_row import keys_per_row


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """``keys_per_row`` is that of the measured model; None if its attention counts nothing."""

    name: str
    source: str
    keys_per_row: float | None


def origin_of(name: str, model: Path) -> Origin:
    """Return the origin of what is measured today, UTC, with the model in a folder."""
    day = time.strftime("%Y-%m-%d", time.gmtime())
    keys = keys_per_row(AutoConfig.from_pretrained(model).get_text_config())
    return Origin(
        name=name,
        source=f"benchmarks.fleet.measure, {day}",
        keys_per_row=keys if math.isfinite(keys) else None,
    )
