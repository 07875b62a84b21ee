"""Checks of what computes: the compiled kernels, CUDA, and whether a model fits."""

from __future__ import annotations

import time

import torch

from core.assembly.fit import Fit, estimate_fit, try_path
from core.assembly.tokenizer import tokenizer_of
from core.contract.errors import first_line
from core.executors.described import files_of
from core.kernels.cpu.compiler import KernelsUnavailable, cached_library, compiled_library
from core.kernels.cpu.library import load
from core.models.spec import Undescribed
from core.models.table import table_of
from core.pooling.check import check_pooler
from core.pooling.recipe import read_recipe
from core.proof.prove import prove
from server.cli.doctor.checks import Finding, noted
from server.settings.settings import Settings


def kernels() -> Finding:
    """Compile the kernels for the CPU if the cache does not have them, and load them."""
    start = time.monotonic()
    try:
        cached = cached_library()
        path = cached or compiled_library()
        load(path)
    except KernelsUnavailable as error:
        advice = "the server starts without them, and is slower; GGUF files and int8 need them"
        return Finding("kernels", "note", str(error), advice)
    how = "compiled before" if cached else f"compiled now in {time.monotonic() - start:.0f} s"
    return Finding("kernels", "ok", f"{how}: {path}")


def cuda(settings: Settings) -> Finding:
    if torch.cuda.is_available():
        return Finding("CUDA", "ok", torch.cuda.get_device_name())
    built = "" if torch.version.cuda else ", and this torch is built without CUDA"
    text = f"torch sees no GPU{built}"
    if settings.model.device == "cuda":
        return Finding("CUDA", "problem", text, "use --device cpu, or install torch for CUDA")
    return Finding("CUDA", "ok", f"{text}: the CPU computes")


def model(settings: Settings) -> Finding:
    name = settings.model_name
    try:
        if (recipe := read_recipe(settings.model)) is not None:
            check_pooler(recipe, settings.model)
            return Finding("model", "ok", f"{name} has no cache: its task is {recipe.task}")
        try:
            found = _fits(name, estimate_fit(settings.model, settings.engine))
        except NotImplementedError as error:
            found = Finding("model", "note", f"{name}: {error}")
        tokenizer_of(settings.model)
    except Exception as error:  # noqa: BLE001 - whatever ends a start
        return Finding("model", "problem", first_line(error))
    return found


def path(settings: Settings) -> Finding:
    try:
        if (recipe := read_recipe(settings.model)) is not None:
            return Finding("path", "ok", f"transformers' modules: the task is {recipe.task}")
        found = try_path(settings.model, settings.engine)
    except NotImplementedError as error:
        return Finding("path", "note", str(error))
    except Exception as error:  # noqa: BLE001 - the finding of the model says whether it starts
        return Finding("path", "note", f"not tried: {first_line(error)}")
    advice = "the server starts and is slower than the model's family can be"
    return noted("path", str(found), advice if found.slower_because else "")


def decoder(settings: Settings, *, repeats: bool = False) -> Finding:
    """The spec that the row of the model's family makes of its configuration, and its verdict.

    ``repeats``: prove it again.
    """
    try:
        if (recipe := read_recipe(settings.model)) is not None:
            return Finding("decoder", "ok", f"none: the task is {recipe.task}")
        files = files_of(settings.model)
        spec = files.spec_for(settings.engine.max_model_len or files.context)
        verdict = prove(files.values, repeats=repeats)
    except Undescribed as error:
        return Finding("decoder", "ok", f"not described: {error}")
    except Exception as error:  # noqa: BLE001 - the finding of the model says whether it starts
        return Finding("decoder", "note", f"not read: {first_line(error)}")
    text = f"described by the row of {files.values['model_type']}, {verdict}"
    return Finding("decoder", "ok", text, details=tuple(table_of(spec)))


def _fits(name: str, fit: Fit) -> Finding:
    text = (
        f"{name}: {fit.dtype}, {fit.weights_nbytes / 1e9:.2f} GB of weights, context "
        f"{fit.max_model_len:,}; fits with {fit.num_kv_tokens:,} tokens of cache"
    )
    advice = (
        f"memory is too little for its context of {fit.own_context:,}: --quantization int8 "
        "or int4, --kv-cache-dtype int8, or a machine with more"
    )
    return noted("model", text, advice if fit.max_model_len < fit.own_context else "")
