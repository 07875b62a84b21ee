"""build_scorer: the runner of a model that scores pairs of texts, and the facts about it."""

from __future__ import annotations

from typing import Any

from core.contract.config import ModelConfig
from core.contract.errors import ModelLoadError
from core.contract.info import PoolingInfo
from core.pooling.heads import activation
from core.pooling.recipe import Recipe
from core.pooling.runner import LogitRunner, PoolingRunner, ScoreRunner
from core.pooling.template import template_of
from core.text.tokenizer import Tokenizer


def build_scorer(
    recipe: Recipe, module: Any, tokenizer: Tokenizer, pad_id: int, model_config: ModelConfig
) -> tuple[PoolingRunner, PoolingInfo]:
    """Return both. Raises ModelLoadError."""
    runner: PoolingRunner
    function = activation(recipe.activation or "Sigmoid", recipe.source)
    words = model_config.score_tokens
    if recipe.scores_by_logits:
        ids = _score_ids(recipe, tokenizer, words)
        if max(ids) >= module.config.get_text_config().vocab_size:
            raise ModelLoadError(
                f"a score of {recipe.source} needs token {max(ids)}, which the model does not have"
            )
        runner = LogitRunner(module, pad_id=pad_id, activation=function, ids=ids)
    else:
        if words is not None:
            raise ModelLoadError(f"--score-tokens is for causal models; {recipe.source} is none")
        size = int(module.config.num_labels)
        if size != 1:
            raise ModelLoadError(f"{recipe.source} has {size} labels; a cross-encoder has one")
        runner = ScoreRunner(module, pad_id=pad_id, activation=function)
    info = PoolingInfo(
        task="score",
        size=1,
        lowercases=recipe.lowercases,
        prompts=recipe.prompts,
        default_prompt=recipe.default_prompt,
        template=template_of(recipe, tokenizer, model_config),
    )
    return runner, info


def _score_ids(
    recipe: Recipe, tokenizer: Tokenizer, words: tuple[str, str] | None
) -> tuple[int, ...]:
    """The tokens whose logits make a score. The operator's choice comes first."""
    if words is None and not recipe.score_ids:
        raise ModelLoadError(
            f"{recipe.source} does not say which tokens make a score: name them with "
            "--score-tokens, as yes,no for Qwen3-Reranker, or add sentence-transformers' "
            "modules.json with LogitScore"
        )
    ids = recipe.score_ids
    if words is not None:
        found = [tokenizer.token_id(word) for word in words]
        if None in found:
            missing = words[found.index(None)]
            raise ModelLoadError(f"--score-tokens: {missing!r} is no token of {recipe.source}")
        ids = tuple(one for one in found if one is not None)
    return ids
