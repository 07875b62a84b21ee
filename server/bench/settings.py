"""What the operator chose for a benchmark: flags, and the folder that made models are kept in."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def model_cache(environ: Mapping[str, str] = os.environ) -> Path:
    """The user's folder for made models: below XDG_CACHE_HOME, else ``~/.cache``."""
    base = environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "roseinfer" / "models"
