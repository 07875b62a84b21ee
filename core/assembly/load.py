"""load: the engine of any model, whatever it does with text."""

from __future__ import annotations

from core.assembly.build import LoadedEngine, load_engine
from core.contract.config import EngineConfig, ModelConfig
from core.gguf.file import opened_once
from core.pooling.build import LoadedPooler, load_pooler
from core.pooling.recipe import read_recipe
from core.system import heap_end, memory_ahead


def load(model_config: ModelConfig, config: EngineConfig) -> LoadedEngine | LoadedPooler:
    """Load a model that generates, embeds or scores. Raises ModelLoadError."""
    try:
        recipe = read_recipe(model_config)
        with opened_once():  # a GGUF file has the weights and the tokenizer
            if recipe is None:
                return load_engine(model_config, config)
            return load_pooler(recipe, model_config, config)
    finally:
        memory_ahead.end()
        heap_end.return_end()
