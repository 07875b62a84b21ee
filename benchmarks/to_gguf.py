"""Makes a GGUF file of a random model.

    python to_gguf.py LLAMA_TREE MODEL_DIRECTORY OUTPUT.gguf bf16|q8_0

Runs the converter of a llama.cpp source tree, in this process. That one knows a tokenizer by a hash
of what it does to a text, and has not seen ours; how ours cuts text is how GPT-2's does, so that is
what it is told. It also wants ``n_ctx`` of a GPT-2, which newer configurations call
``n_positions``. Needs torch, transformers, numpy and sentencepiece; nothing of ours.
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
            _teach(value)
    sys.argv = ["convert_hf_to_gguf.py", model, "--outfile", output, "--outtype", kind]
    runpy.run_path(str(Path(tree) / "convert_hf_to_gguf.py"), run_name="__main__")


def _teach(kind: Any) -> None:
    """Replace what the converter's base classes would find out wrongly."""
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
