"""The sampler of a loaded model, with every logits processor."""

from __future__ import annotations

from core.grammar.compiler import GrammarCompiler
from core.grammar.processor import GrammarProcessor
from core.load.loaded_model import LoadedModel
from core.sampling.draw import load_row_draw
from core.sampling.processors import default_processors
from core.sampling.processors.thinking_budget import ThinkingBudget
from core.sampling.sampler import Sampler


def build_sampler(model: LoadedModel, compiler: GrammarCompiler) -> Sampler:
    """Grammars mask first and the thinking budget overrides last."""
    processors = (
        GrammarProcessor(compiler, model.device),
        *default_processors(tuple(sorted(model.eos_token_ids))),
        ThinkingBudget(),
    )
    draw = load_row_draw(model.vocab_size, model.dtype, model.device)
    return Sampler(processors=processors, draw=draw)
