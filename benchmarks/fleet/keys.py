"""keys_of: ``core.model.keys_per_row`` of a folder's model, as the file of a machine has it."""

from __future__ import annotations

import math
from pathlib import Path

from transformers import AutoConfig

from core.model.keys_per_row import keys_per_row


def keys_of(model: Path) -> float | None:
    found = keys_per_row(AutoConfig.from_pretrained(model).get_text_config())
    return found if math.isfinite(found) else None
