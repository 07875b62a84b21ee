"""What is beside the transformer of a model that embeds or scores, and a trial of all of it."""

from __future__ import annotations

from typing import Any

from core.contract.config import ModelConfig
from core.contract.errors import ModelLoadError, first_line
from core.contract.info import PoolingInfo
from core.contract.messages import EngineRequest
from core.contract.params import SamplingParams
from core.pooling.checkpoint import pad_id_of
from core.pooling.embedder import build_embedder
from core.pooling.recipe import Recipe
from core.pooling.runner import PoolingRunner
from core.pooling.scorer import build_scorer
from core.text.tokenizer import Tokenizer

_NOTHING = SamplingParams(max_tokens=0)


def build_runner(
    recipe: Recipe, module: Any, model_config: ModelConfig
) -> tuple[Tokenizer, PoolingRunner, PoolingInfo]:
    """Build what is beside the transformer, whose weights are not read. Raises ModelLoadError."""
    tokenizer = Tokenizer.load(
        model_config.tokenizer or recipe.source,
        trust_remote_code=model_config.trust_remote_code,
        chat_template=model_config.chat_template,
        vocab_size=module.config.get_text_config().vocab_size,
    )
    build = build_embedder if recipe.task == "embed" else build_scorer
    return tokenizer, *build(recipe, module, tokenizer, pad_id_of(module, tokenizer), model_config)


def try_text(runner: PoolingRunner, recipe: Recipe, tokenizer: Tokenizer) -> None:
    """Compute one text. Raises ModelLoadError if the model cannot: each request would fail."""
    ids = tuple(tokenizer.encode("a", add_special_tokens=True)) or (0,)
    request = EngineRequest(request_id="", prompt_token_ids=ids, params=_NOTHING)
    try:
        runner.run([request])
    except Exception as error:  # any error that a module may raise for plain text
        raise ModelLoadError(
            f"{recipe.source} does not {recipe.task} a text: {first_line(error)}"
        ) from error
