"""Makes a GGUF file of a random model.

    python to_gguf.py LLAMA_TREE MODEL_DIRECTORY OUTPUT.gguf bf16|q8_0

Runs the converter of a llama.cpp source tree in this process. The converter recognizes a tokenizer
by the hash of its output for a sample text, and does not know the random models' tokenizer, which
splits text like GPT-2's; so this script reports that one. The converter also expects ``n_ctx`` in a
GPT-2 configuration; newer ones call it ``n_positions``. Needs torch, transformers, numpy and
sentencepiece, but not roseinfer.
"""

from __future__ import annotations

import importlib
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def main() -> None:
    tree, model, output, kind = sys.argv[1:]
    sys.path[:0] = [str(Path(tree) / "gguf-py"), tree]
    base = importlib.import_module("conversion.base")
    for value in list(vars(base).values()):
        if isinstance(value, type):
            _patch(value)
    sys.argv = ["convert_hf_to_gguf.py", model, "--outfile", output, "--outtype", kind]
    runpy.run_path(str(Path(tree) / "convert_hf_to_gguf.py"), run_name="__main__")


def _patch(kind: Any) -> None:
    """Replace the methods of the converter's base classes that fail for a random model."""
    if "get_vocab_base_pre" in vars(kind):
        kind.get_vocab_base_pre = lambda _self, _tokenizer: "gpt-2"
    if "load_hparams" in vars(kind):
        kind.load_hparams = staticmethod(_with_context(kind.load_hparams))


def _with_context(load: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    def loaded(*arguments: Any, **named: Any) -> dict[str, Any]:
        found = load(*arguments, **named)
        if "n_positions" in found:
            found.setdefault("n_ctx", found["n_positions"])
        return found

    return loaded


if __name__ == "__main__":
    main()
