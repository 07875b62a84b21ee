"""Models of well-known shapes with random weights, made offline, for measurements of speed.

A random model is a directory in Hugging Face format that any server can load. Its bfloat16
weights are the same on every machine. Every word of ``WORDS`` is one token, and every token that
greedy decoding can choose is printable ASCII. Greedy decoding never ends an answer: the rows of
special tokens (and of other bytes) in the output layer are zero, so their logit is 0 and another
one is higher. The texts repeat themselves, so a random model does not measure speculative
decoding fairly.
"""

from __future__ import annotations

import functools
import json
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.random_tokenizer import END_OF_TEXT, TURN_END, silent_token_ids, write_tokenizer
from bench.settings import model_cache
from bench.shapes import RANDOM_MODELS, random_model_config
from bench.words import WORDS, random_prompt

__all__ = ["RANDOM_MODELS", "WORDS", "cached_random_model", "make_random_model", "random_prompt"]

VERSION = 2
"""Part of a cached model's folder name. Increase it when the generated files change."""

MAX_SHARD_SIZE = 2 * 2**30
"""Bytes of weights held in memory at once, unless one tensor is larger."""

STANDARD_DEVIATION = 0.02

POOL_SIZE = 4_194_319
"""Random numbers that all matrices repeat; drawing 8 billion would be slow. It is a prime, so that
no two rows of a matrix are equal."""

TOKEN_ROWS = {"transformer.wte.weight", "model.embed_tokens.weight", "lm_head.weight"}
"""Weights with one row a token."""


def cached_random_model(
    name: str, *, on_make: Callable[[Path], object] = lambda _directory: None
) -> Path:
    """Return the directory of a random model; make it if needed, after a call of ``on_make``.

    Raises what ``make_random_model`` raises.
    """
    directory = model_cache() / f"{name}-random-{VERSION}"
    if not directory.is_dir():
        on_make(directory)
        make_random_model(name, directory)
    return directory


def make_random_model(name: str, directory: Path) -> Path:
    """Make the directory and return it.

    It appears complete or not at all; several processes may make the same one concurrently.
    Raises KeyError for an unknown name, and OSError if it cannot be written or is something
    else.
    """
    config = random_model_config(name)
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".making-", dir=directory.parent) as temporary:
        folder = Path(temporary) / "model"
        folder.mkdir()
        _write(name, config, folder)
        try:
            folder.rename(directory)
        except OSError:
            if not (directory / "config.json").is_file():  # else another process was faster
                raise
    return directory


def _write(name: str, config: Any, folder: Path) -> None:
    import torch  # noqa: PLC0415 - slow to import

    context = config.max_position_embeddings
    eos_token = END_OF_TEXT if config.model_type == "gpt2" else TURN_END
    special = write_tokenizer(
        folder, vocab_size=config.vocab_size, eos_token=eos_token, context=context
    )
    ends = {
        "bos_token_id": special[END_OF_TEXT],
        "eos_token_id": special[eos_token],
        "pad_token_id": special[END_OF_TEXT],
    }
    config.update(ends)
    config.dtype = torch.bfloat16
    config.save_pretrained(folder)
    _add_older_names(folder / "config.json")
    _write_json(folder / "generation_config.json", {"do_sample": False, **ends})
    _write_weights(name, config, folder)


def _add_older_names(file: Path) -> None:
    """Add the keys that readers of configurations before transformers 5 look for."""
    config = json.loads(file.read_text())
    config["torch_dtype"] = config["dtype"]
    rope = config.get("rope_parameters")
    if rope is not None:
        config["rope_theta"] = rope["rope_theta"]
        scaling = {key: value for key, value in rope.items() if key != "rope_theta"}
        config["rope_scaling"] = scaling if rope["rope_type"] != "default" else None
    _write_json(file, config)


def _write_weights(name: str, config: Any, folder: Path) -> None:
    """Write the weights file by file: a model may be larger than memory."""
    from safetensors.torch import save_file  # noqa: PLC0415 - imports torch

    files = list(_shards(_shapes(config)))
    index: dict[str, str] = {}
    size = 0
    for number, shapes in enumerate(files, start=1):
        file = "model.safetensors"
        if len(files) > 1:
            file = f"model-{number:05}-of-{len(files):05}.safetensors"
        tensors = {key: _tensor(f"{name}/{key}", shape) for key, shape in shapes.items()}
        for key in tensors.keys() & TOKEN_ROWS:
            tensors[key][silent_token_ids(config.vocab_size)] = 0
        save_file(tensors, folder / file, metadata={"format": "pt"})
        index |= dict.fromkeys(tensors, file)
        size += sum(tensor.nbytes for tensor in tensors.values())
    if len(files) > 1:
        _write_json(
            folder / "model.safetensors.index.json",
            {"metadata": {"total_size": size}, "weight_map": index},
        )


def _shapes(config: Any) -> dict[str, tuple[int, ...]]:
    """Return the shape of every weight in the checkpoint; tied weights are in it once.

    Checkpoints name each expert of a mixture; transformers stacks them when it loads.
    """
    import torch  # noqa: PLC0415 - slow to import
    from transformers import AutoModelForCausalLM  # noqa: PLC0415 - slow to import

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    shapes: dict[str, tuple[int, ...]] = {}
    for key, parameter in model.named_parameters():
        if parameter.dim() == 3:
            shapes |= _shapes_by_expert(key, parameter.shape)
        else:
            shapes[key] = tuple(parameter.shape)
    return shapes


def _shapes_by_expert(key: str, shape: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """Return the names and shapes of a stacked weight in a checkpoint."""
    num_experts, num_rows, num_columns = shape
    experts, _, name = key.rpartition(".")
    parts = ("gate_proj", "up_proj") if name == "gate_up_proj" else (name,)
    return {
        f"{experts}.{expert}.{part}.weight": (num_rows // len(parts), num_columns)
        for expert in range(num_experts)
        for part in parts
    }


def _shards(shapes: dict[str, tuple[int, ...]]) -> Iterator[dict[str, tuple[int, ...]]]:
    import torch  # noqa: PLC0415 - slow to import

    shard: dict[str, tuple[int, ...]] = {}
    size = 0
    for key, shape in shapes.items():
        nbytes = torch.Size(shape).numel() * 2
        if shard and size + nbytes > MAX_SHARD_SIZE:
            yield shard
            shard, size = {}, 0
        shard[key] = shape
        size += nbytes
    yield shard


def _tensor(seed: str, shape: tuple[int, ...]) -> Any:
    """Return a weight: norms are one, biases zero, matrices random."""
    import torch  # noqa: PLC0415 - slow to import

    tensor = torch.empty(shape, dtype=torch.bfloat16)
    if len(shape) == 1:
        return tensor.fill_(0.0 if seed.endswith("bias") else 1.0)
    pool, flat = _pool(), tensor.view(-1)
    start = zlib.crc32(seed.encode()) % POOL_SIZE
    end = min(POOL_SIZE - start, len(flat))
    flat[:end] = pool[start : start + end]
    for at in range(end, len(flat), POOL_SIZE):
        some = flat[at : at + POOL_SIZE]
        some.copy_(pool[: len(some)])
    return tensor


@functools.cache
def _pool() -> Any:
    import torch  # noqa: PLC0415 - slow to import

    pool = torch.empty(POOL_SIZE, dtype=torch.bfloat16)
    return pool.normal_(0.0, STANDARD_DEVIATION, generator=torch.Generator().manual_seed(0))


def _write_json(file: Path, value: dict[str, Any]) -> None:
    file.write_text(json.dumps(value, indent=2) + "\n")
