"""The configuration of a checkpoint in Hugging Face format, and that of its generation."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from core.contract.config import ModelConfig
from core.contract.errors import InvalidRequest, ModelLoadError
from core.contract.params import SamplingParams
from core.load.errors import named_errors
from core.system.checkpoint_files import find_file, folder_of, is_there, read_file

SAMPLING = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
"""Fields of a generation config that are the defaults of requests."""

_SIZES = {
    *("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    *("head_dim", "global_head_dim", "qk_rope_head_dim", "rotary_dim", "hidden_size", "n_embd"),
}
"""Sizes of which transformers makes lists and tables on the CPU, before it reads any tensor."""

_MOST = 1 << 18
"""Layers or columns; no model has half as many."""

_GENERATION = "generation_config.json"
"""transformers ignores it if it is broken, and with it end tokens and defaults of sampling."""


def load_config(config: ModelConfig, source: str) -> Any:
    """The configuration that the operator names, else that of ``source``.

    Raises ModelLoadError for a missing or broken file; other errors of transformers pass.
    """
    from transformers import AutoConfig  # noqa: PLC0415 - slow to import

    source = config.config or source
    with named_errors(source):
        try:
            return AutoConfig.from_pretrained(source, trust_remote_code=config.trust_remote_code)
        except Exception:
            _check(source, "config.json")
            raise


def raw_config(config: ModelConfig, source: str) -> dict[str, Any]:
    """The content of the file that ``load_config`` reads.

    Raises ModelLoadError, also for sizes that no model has: their lists and tables would fill the
    memory.
    """
    source = config.config or source
    path = Path(source) if Path(source).is_file() else find_file(source, "config.json")
    if path is None:
        raise ModelLoadError(f"{source} has no config.json")
    content: dict[str, Any] = read_file(path)
    parts: list[Any] = [content]
    while parts:
        for name, value in parts.pop().items():
            if isinstance(value, dict):
                parts.append(value)
            elif name in _SIZES and isinstance(value, int) and value > _MOST:
                raise ModelLoadError(f"{path}: {name} is more than {_MOST}")
    return content


def check_generation_config(source: str) -> None:
    """Raise ModelLoadError for a broken one, and for values that no request could have."""
    content = _check(source, _GENERATION)
    defaults = {name: value for name in SAMPLING if (value := content.get(name)) is not None}
    numbers = list(defaults.items())
    for name in content:
        if name.endswith("_token_id") and (ids := content[name]) is not None:
            numbers += [(name, one) for one in (ids if isinstance(ids, list) else [ids])]
    for name, value in numbers:
        if not isinstance(value, int if name.endswith("_token_id") else int | float):
            raise ModelLoadError(f"{_GENERATION} of {source}: {name} is no number")
    try:
        SamplingParams(max_tokens=1, **defaults | {"top_k": max(int(defaults.get("top_k", 0)), 0)})
    except (InvalidRequest, ValueError, OverflowError) as error:
        raise ModelLoadError(f"{_GENERATION} of {source}: {error}") from error


class GenerationDefaults(NamedTuple):
    """The tokens that end an answer, and defaults of sampling, as files have them."""

    eos_token_ids: frozenset[int]
    sampling: dict[str, float]


def generation_of(folder: Path) -> GenerationDefaults:
    """Read the files of a folder that ``check_generation_config`` accepts, as transformers does.

    Without a generation_config.json that is config.json, whose part for text adds what is not
    beside it. Raises ModelLoadError.
    """
    content = _check(str(folder), _GENERATION)
    if not is_there(folder / _GENERATION):
        content = _check(str(folder), "config.json")
        names = ("decoder", "generator", "text_config")
        inner: dict[str, Any] = next((part for name in names if (part := content.get(name))), {})
        content = {**inner, **{name: v for name, v in content.items() if v is not None}}
    sampling = {name: value for name in SAMPLING if (value := content.get(name)) is not None}
    return GenerationDefaults(end_ids(content), sampling)


def end_ids(content: Mapping[str, Any]) -> frozenset[int]:
    """The end tokens that a configuration names. Raises ModelLoadError if one is not an integer."""
    named = content.get("eos_token_id")
    if named is None:
        return frozenset()
    ids = named if isinstance(named, list) else [named]
    if not all(isinstance(each, int) for each in ids):
        raise ModelLoadError(f"eos_token_id is {named!r}")
    return frozenset(ids)


def _check(source: str, name: str) -> dict[str, Any]:
    """The object in a file, empty if it is not here. Raises ModelLoadError."""
    folder = folder_of(source)
    if folder is None or not is_there(path := folder / name):
        return {}
    content: dict[str, Any] = read_file(path)
    return content
