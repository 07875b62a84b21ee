"""What a checkpoint's files say of its scores: sentence-transformers' for cross-encoders.

A causal model with the module ``LogitScore`` scores a pair by the logits that follow it. Pairs are
shown by the chat template if the transformer's ``modality_config`` has messages.
"""

from __future__ import annotations

from typing import Any

from core.contract.errors import ModelLoadError
from core.pooling.files import inner_path, prompt_facts, read_object

LOGIT_SCORE = "LogitScore"
"""The module of a causal model that scores."""

_FORMATS = {"flat": (False,), "structured": (True,)}
"""Whether contents are lists of parts. Else both are tried, texts first."""


def scoring_facts(source: str, modules: Any, *, is_causal: bool) -> dict[str, Any]:
    """The fields of a Recipe. Raises ModelLoadError. ``modules`` is None without modules.json."""
    facts: dict[str, Any] = {
        "scores_by_logits": is_causal,
        "activation": _activation(source),
        **prompt_facts(source),
    }
    if modules is None:
        return facts | {"formats": (False, True), "needs_template": is_causal}
    for kind, folder in modules:
        match kind:
            case "Transformer":
                facts |= transformer_facts(source)
            case "LogitScore":
                config = read_object(source, inner_path(folder, "config.json"))
                facts["score_ids"] = _score_ids(source, config)
            case _:
                raise ModelLoadError(
                    f"{source} has a module of type {kind}, which is not supported"
                )
    return facts


def transformer_facts(source: str) -> dict[str, Any]:
    """The fields of a Recipe that follow from the module Transformer. Raises ModelLoadError."""
    config = read_object(source, "sentence_bert_config.json")
    length, modalities = config.get("max_seq_length"), config.get("modality_config")
    if length is not None and (type(length) is not int or length < 1):
        raise ModelLoadError(
            f"max_seq_length in sentence_bert_config.json of {source} is {length!r}, not a whole "
            "number above 0"
        )
    facts: dict[str, Any] = {
        "max_length": length,
        "lowercases": bool(config.get("do_lower_case")),
    }
    message = modalities.get("message") if isinstance(modalities, dict) else None
    if isinstance(message, dict):
        facts["formats"] = _FORMATS.get(str(message.get("format")), (False, True))
        facts["needs_template"] = True
    processing = config.get("processing_kwargs")
    options = processing.get("chat_template") if isinstance(processing, dict) else None
    if isinstance(options, dict):
        facts["template_options"] = options
    return facts


def _score_ids(source: str, config: dict[str, Any]) -> tuple[int, ...]:
    """The token of a match and, if there is one, that of none."""
    ids = [config.get("true_token_id"), config.get("false_token_id")]
    found = tuple(one for one in ids if one is not None)
    if ids[0] is None or not all(type(one) is int and one >= 0 for one in found):
        raise ModelLoadError(f"LogitScore of {source} has no true_token_id and false_token_id")
    return found


def _activation(source: str) -> str | None:
    """The name of a cross-encoder's activation, None for the default."""
    config = read_object(source, "config.json")
    own = config.get("sentence_transformers")
    found = read_object(source, "config_sentence_transformers.json").get("activation_fn")
    found = found or (own.get("activation_fn") if isinstance(own, dict) else None)
    found = found or config.get("sbert_ce_default_activation_function")
    return None if found is None else str(found).rpartition(".")[2]
