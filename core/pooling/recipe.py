"""Recipe: how a checkpoint makes vectors or scores, as sentence-transformers describes it.

``modules.json`` lists a transformer and what follows it: pooling, dense layers, normalisation.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from core.contract.config import ModelConfig, Task
from core.contract.errors import ModelLoadError
from core.model.source import path_of
from core.pooling.files import inner_path, read_json

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
_GENERATING = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")
_SCORING = "ForSequenceClassification"
_FILES = (".gguf", ".pt", ".pth", ".bin")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """``dense`` are folders of dense layers. ``max_length`` counts tokens; None: the model's.

    ``prompts`` are texts that begin an input, by name.
    """

    task: Task
    source: str
    poolings: tuple[str, ...] = ("mean",)
    dense: tuple[str, ...] = ()
    normalizes: bool = False
    max_length: int | None = None
    lowercases: bool = False
    prompts: dict[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    activation: str | None = None


def read_recipe(config: ModelConfig) -> Recipe | None:
    """Return how the model makes vectors or scores, None if it generates. Raises ModelLoadError.

    ``config.task`` auto: a cross-encoder scores; a model with sentence-transformers' files, or
    without a head, embeds.
    """
    source = config.model
    if config.task == "generate" or source is None:
        return None
    if config.gguf_file is not None or _is_file(source):
        if config.task == "auto":
            return None
        raise ModelLoadError(f"--task {config.task} needs a checkpoint in Hugging Face format")
    modules = read_json(source, "modules.json")
    task = _task_of(source, modules) if config.task == "auto" else config.task
    if task == "generate":
        return None
    if task == "score":
        return Recipe(task=task, source=source, activation=_activation(source))
    return _embedding(source, modules)


def _is_file(source: str) -> bool:
    with path_of(source) as path:
        return path.is_file() or (source.endswith(_FILES) and not path.is_dir())


def _task_of(source: str, modules: Any) -> Task:
    config = read_json(source, "config.json")
    names = config.get("architectures") if isinstance(config, dict) else None
    name = str(names[0]) if isinstance(names, list) and names else ""
    if name.endswith(_SCORING):
        return "score"
    if isinstance(modules, list) or (name.endswith("Model") and not name.endswith(_GENERATING)):
        return "embed"
    return "generate"


def _embedding(source: str, modules: Any) -> Recipe:
    """Read the modules; without any it is the mean, as in sentence-transformers."""
    facts: dict[str, Any] = {}
    dense: list[str] = []
    for module in modules if isinstance(modules, list) else ():
        if not isinstance(module, dict):
            raise ModelLoadError(f"modules.json of {source} is no list of modules")
        kind, folder = str(module.get("type", "")).rpartition(".")[2], module.get("path", "")
        match kind:
            case "Transformer":
                if folder:
                    raise ModelLoadError(f"{source} has its transformer in a folder of its own")
            case "Pooling":
                facts["poolings"] = _poolings(read_json(source, inner_path(folder, "config.json")))
            case "Dense":
                dense.append(inner_path(folder, ""))
            case "Normalize":
                facts["normalizes"] = True
            case _:
                raise ModelLoadError(
                    f"{source} has a module of type {kind}, which is not supported"
                )
    bert = _object(source, "sentence_bert_config.json")
    named = _object(source, "config_sentence_transformers.json")
    prompts, length = named.get("prompts"), bert.get("max_seq_length")
    return Recipe(
        task="embed",
        source=source,
        dense=tuple(dense),
        max_length=length if isinstance(length, int) else None,
        lowercases=bool(bert.get("do_lower_case")),
        prompts={str(k): str(v) for k, v in prompts.items()} if isinstance(prompts, dict) else {},
        default_prompt=named.get("default_prompt_name"),
        **facts,
    )


def _object(source: str, name: str) -> dict[str, Any]:
    """The object in a JSON file, empty without one."""
    content = read_json(source, name)
    return content if isinstance(content, dict) else {}


def _poolings(config: Any) -> tuple[str, ...]:
    config = config if isinstance(config, dict) else {}
    if config.get("include_prompt") is False:
        raise ModelLoadError("pooling without the prompt's tokens is not supported")
    mode = config.get("pooling_mode")
    named = {mode} if isinstance(mode, str) else set(mode or ())
    named |= {name for flag, name in _FLAGS.items() if config.get(flag)}
    if unknown := named - set(POOLINGS):
        raise ModelLoadError(f"pooling {min(unknown)!r} is not supported")
    return tuple(name for name in POOLINGS if name in named) or ("mean",)


def _activation(source: str) -> str | None:
    """The name of a cross-encoder's activation, None for the default."""
    config = _object(source, "config.json")
    own = config.get("sentence_transformers")
    named = own.get("activation_fn") if isinstance(own, dict) else None
    named = named or config.get("sbert_ce_default_activation_function")
    return None if named is None else str(named).rpartition(".")[2]
