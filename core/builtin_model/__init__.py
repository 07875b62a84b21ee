"""The built-in model: a small language model inside the package, so a first run needs no network.

``path()`` is a Hugging Face model folder and loads like any other. README.md beside this file and
``training/`` document how it was trained.
"""

from pathlib import Path

MODEL_ID = "roseinfer-tiny"
"""The served model name when no other model is configured."""


def path() -> Path:
    """Return the folder with the configuration, the tokenizer and the weights."""
    return Path(__file__).resolve().parent / "weights"
