"""Run llama.cpp's converter on a tiny model: TREE MODEL OUT.

The converter finds a pre-tokenizer by a hash of known tokenizers, and wants SentencePiece's own
file for some architectures. Tiny models have a byte-level tokenizer of their own, so both are
replaced: by the name of the splitter, and by what the converter has for GPT-2.
"""

from __future__ import annotations

import importlib
import runpy
import sys
from typing import Any


def main() -> None:
    tree, model, out = sys.argv[1:]
    sys.path[:0] = [f"{tree}/gguf-py", tree]
    base: Any = importlib.import_module("conversion.base")
    base.TextModel.get_vocab_base_pre = lambda _self, tokenizer: _pre_tokenizer(tokenizer)
    for name in ("gemma", "gpt2", "llama", "phi", "qwen"):
        module = importlib.import_module(f"conversion.{name}")
        kinds = [kind for kind in vars(module).values() if isinstance(kind, type)]
        for kind in kinds:
            if issubclass(kind, base.ModelBase) and "set_vocab" in vars(kind):
                kind.set_vocab = lambda self: self._set_vocab_gpt2()
    load = base.ModelBase.load_hparams

    def with_context(*args: Any, **options: Any) -> Any:
        found = load(*args, **options)
        if "n_positions" in found:
            found.setdefault("n_ctx", found["n_positions"])
        return found

    base.ModelBase.load_hparams = staticmethod(with_context)
    sys.argv = ["convert_hf_to_gguf.py", model, "--outfile", out, "--outtype", "f32"]
    runpy.run_path(f"{tree}/convert_hf_to_gguf.py", run_name="__main__")


def _pre_tokenizer(tokenizer: Any) -> str:
    """The name of what splits texts. transformers gives models of Qwen that of Qwen2."""
    return "qwen2" if type(tokenizer).__name__.startswith("Qwen2") else "gpt-2"


if __name__ == "__main__":
    main()
