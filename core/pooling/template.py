"""template_of: how the chat template shows the texts of a model that embeds or scores."""

from __future__ import annotations

from core.contract.config import ModelConfig
from core.contract.errors import ModelLoadError
from core.contract.info import MessageTemplate
from core.pooling.recipe import Recipe
from core.text.message_template import find_template
from core.text.tokenizer import Tokenizer


def template_of(
    recipe: Recipe, tokenizer: Tokenizer, model_config: ModelConfig
) -> MessageTemplate | None:
    """Return it, None if texts are no messages. A template that the operator names is used.

    Raises ModelLoadError.
    """
    is_chosen = model_config.chat_template is not None
    formats = (False, True) if is_chosen else recipe.formats
    num_texts, what = (2, "a query and a document") if recipe.task == "score" else (1, "a text")
    found = find_template(tokenizer, num_texts, formats, recipe.template_options)
    if found is None and (is_chosen or (formats and recipe.needs_template)):
        hint = ", or qwen3-reranker" if recipe.task == "score" else ""
        raise ModelLoadError(
            f"the chat template of {recipe.source} does not show {what}: name a file of one that "
            f"does{hint} with --chat-template"
        )
    return found
