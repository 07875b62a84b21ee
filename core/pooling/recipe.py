"""Recipe: how a checkpoint makes vectors or scores, as sentence-transformers describes it.

``modules.json`` lists a transformer and what follows it: pooling, dense layers, normalisation.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any, TypeAlias

from core.contract.config import ModelConfig, Task
from core.contract.errors import ModelLoadError
from core.load.errors import named_errors
from core.load.source import path_of
from core.system.checkpoint_files import find_file, read_file


def read_json(source: str, name: str, kind: type = dict) -> Any:
    """The object or list of a JSON file, None if there is no such file. Raises ModelLoadError."""
    path = find_file(source, name)
    return None if path is None else read_file(path, kind)


def read_object(source: str, name: str) -> dict[str, Any]:
    """Return the object in a JSON file, empty without one. Raises ModelLoadError."""
    content: dict[str, Any] | None = read_json(source, name)
    return content or {}


def prompt_facts(source: str) -> dict[str, Any]:
    """The fields of a Recipe that say which texts begin an input. Raises ModelLoadError."""
    name = "config_sentence_transformers.json"
    named = read_object(source, name)
    prompts, default = named.get("prompts") or {}, named.get("default_prompt_name") or None
    if not isinstance(prompts, dict) or not all(isinstance(one, str) for one in prompts.values()):
        raise ModelLoadError(f"prompts in {name} of {source} are no texts by name")
    if default is not None and default not in [*prompts]:
        raise ModelLoadError(
            f"default_prompt_name in {name} of {source} is {default!r}, which is none of its "
            "prompts"
        )
    return {"prompts": prompts, "default_prompt": default}


def inner_path(folder: object, name: str) -> str:
    """Join a folder that a checkpoint names and a file name. Raises ModelLoadError if it leaves."""
    path = PurePosixPath(str(folder)) / name
    if path.is_absolute() or ".." in path.parts:
        raise ModelLoadError(f"the checkpoint names a path outside of itself: {folder}")
    return str(path)


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


POOLINGS = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
"""In the order in which sentence-transformers joins the vectors of several."""

_FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
_CHOICES = {"cls": ("cls",), "last": ("lasttoken",), "max": ("max",), "mean": ("mean",)}
_OWNERS: dict[str, Task] = {
    "pooling": "embed",
    "matryoshka_dimensions": "embed",
    "score_tokens": "score",
    "quantization": "generate",
    "config": "generate",
}
_CAUSAL = ("ForCausalLM", "LMHeadModel")
_GENERATING = (*_CAUSAL, "ForConditionalGeneration")
_SCORING = "ForSequenceClassification"
_FILES = (".gguf", ".pt", ".pth", ".bin")

Modules: TypeAlias = tuple[tuple[str, object], ...]
"""The class and the folder of each module."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """``dense`` are folders of dense layers. ``max_length`` counts tokens; None: the model's.

    ``poolings`` and ``normalizes`` are None if the checkpoint does not say them. ``prompts`` are
    texts that begin an input, by name.

    With ``scores_by_logits`` the model is causal, and a score is the logit of the first of
    ``score_ids`` less that of the second, if any.

    ``formats`` say whether messages that the chat template shows may have lists of parts for
    contents, in the order to try; none: texts are no messages. ``needs_template``: they are
    messages even if the template cannot show them, which is an error.
    """

    task: Task
    source: str
    poolings: tuple[str, ...] | None = None
    dense: tuple[str, ...] = ()
    normalizes: bool | None = None
    max_length: int | None = None
    lowercases: bool = False
    prompts: dict[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    activation: str | None = None
    scores_by_logits: bool = False
    score_ids: tuple[int, ...] = ()
    formats: tuple[bool, ...] = ()
    needs_template: bool = False
    template_options: dict[str, Any] = field(default_factory=dict)


def read_recipe(config: ModelConfig) -> Recipe | None:
    """Return how the model makes vectors or scores, None if it generates. Raises ModelLoadError.

    ``config.task`` auto: a cross-encoder scores; a model with sentence-transformers' files, or
    without a head, embeds.
    """
    recipe = _recipe(config)
    _check_flags(config, "generate" if recipe is None else recipe.task)
    return recipe


def _recipe(config: ModelConfig) -> Recipe | None:
    source = config.model
    if source is None and config.task in ("embed", "score"):
        raise ModelLoadError(f"--task {config.task} needs a model: the built-in one generates text")
    if config.task == "generate" or source is None:
        return None
    with named_errors(source):
        return _read(config, source)


def _read(config: ModelConfig, source: str) -> Recipe | None:
    if config.gguf_file is not None or _is_file(source):
        if config.task == "auto":
            return None
        raise ModelLoadError(f"--task {config.task} needs a checkpoint in Hugging Face format")
    modules, name = _modules(source), _architecture(source)
    task = _task_of(name, modules) if config.task == "auto" else config.task
    if task == "generate":
        return None
    if task == "embed":
        recipe = _embedding(source, modules)
        return replace(recipe, poolings=_CHOICES.get(config.pooling, recipe.poolings))
    is_causal = _has(modules, LOGIT_SCORE) or name.endswith(_CAUSAL)
    return Recipe(task=task, source=source, **scoring_facts(source, modules, is_causal=is_causal))


def _check_flags(config: ModelConfig, task: Task) -> None:
    """Refuse flags of another task: they would have no effect."""
    defaults = ModelConfig()
    for name, owner in _OWNERS.items():
        if owner != task and getattr(config, name) != getattr(defaults, name):
            flag = name.replace("_", "-")
            raise ModelLoadError(f"--{flag} is for --task {owner}; this model's task is {task}")


def _is_file(source: str) -> bool:
    with path_of(source) as path:
        return path.is_file() or (source.endswith(_FILES) and not path.is_dir())


def _modules(source: str) -> Modules | None:
    """The modules, None without modules.json. Raises ModelLoadError."""
    listed = read_json(source, "modules.json", list)
    if listed is None:
        return None
    found = []
    for module in listed:
        if not isinstance(module, dict):
            raise ModelLoadError(f"modules.json of {source} is no list of modules")
        kind, folder = str(module.get("type", "")).rpartition(".")[2], module.get("path", "")
        if kind == "Transformer" and folder:
            raise ModelLoadError(f"{source} has its transformer in a folder of its own")
        found.append((kind, folder))
    return tuple(found)


def _has(modules: Modules | None, kind: str) -> bool:
    return any(one == kind for one, _ in modules or ())


def _architecture(source: str) -> str:
    """The name of the model's class, empty if the checkpoint names none."""
    names = read_object(source, "config.json").get("architectures")
    return str(names[0]) if isinstance(names, list) and names else ""


def _task_of(name: str, modules: Modules | None) -> Task:
    if name.endswith(_SCORING) or _has(modules, LOGIT_SCORE):
        return "score"
    if modules is not None or (name.endswith("Model") and not name.endswith(_GENERATING)):
        return "embed"
    return "generate"


def _embedding(source: str, modules: Modules | None) -> Recipe:
    """Read the modules."""
    facts = transformer_facts(source)
    if modules is not None:
        facts["normalizes"] = False
    dense: list[str] = []
    for kind, folder in modules or ():
        match kind:
            case "Transformer":
                pass
            case "Pooling":
                facts["poolings"] = _poolings(_named(source, inner_path(folder, "config.json")))
            case "Dense":
                dense.append(inner_path(folder, ""))
            case "Normalize":
                facts["normalizes"] = True
            case _:
                raise ModelLoadError(
                    f"{source} has a module of type {kind}, which is not supported"
                )
    facts |= prompt_facts(source)
    return Recipe(task="embed", source=source, dense=tuple(dense), **facts)


def _named(source: str, name: str) -> dict[str, Any]:
    """The object in a JSON file that modules.json needs. Raises ModelLoadError without one."""
    content: dict[str, Any] | None = read_json(source, name)
    if content is None:
        raise ModelLoadError(f"{source} lacks {name}, which its modules.json needs")
    return content


def _poolings(config: dict[str, Any]) -> tuple[str, ...]:
    if config.get("include_prompt") is False:
        raise ModelLoadError("pooling without the prompt's tokens is not supported")
    mode = config.get("pooling_mode") or []
    named = mode if isinstance(mode, list) else [mode]
    for name in named:
        if name not in POOLINGS:
            raise ModelLoadError(f"pooling {name!r} is not supported")
    named = [*named, *(name for flag, name in _FLAGS.items() if config.get(flag))]
    return tuple(name for name in POOLINGS if name in named) or ("mean",)
