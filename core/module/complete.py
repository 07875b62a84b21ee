"""load_complete: load a checkpoint, and refuse it if the model has a parameter that it lacks.

transformers gives such parameters random values and goes on.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Callable, Collection, Iterator
from typing import Any

from core.contract.errors import ModelLoadError
from core.module.prequantised import is_quantised

logger = logging.getLogger("roseinfer.core")

_WRAPPERS = re.compile(
    r"(?:^|\.)((?:module|_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module|"
    r"base_model\.model)\.)"
)
"""Parts of names in a state dict of DistributedDataParallel, torch.compile, FSDP and PEFT."""

_OPTIONAL_IF_QUANTISED = re.compile(
    r"(zero_point|zeros|g_idx|(input|output|[qkv])_(global_)?scale)$"
)
"""Tensors that a quantised layer has a right value of if the checkpoint has none."""

_NOT_MADE = re.compile(r"^(.+?) +\|.*(?:CONVERSION|MISSING)", re.MULTILINE)
"""Rows of transformers' report."""

_REPORTER = "transformers.modeling_utils"


def load_complete(load: Callable[..., Any], name: str, *, unused: Collection[str] = ()) -> Any:
    """Call ``load``, a ``from_pretrained`` with its arguments, and return the model.

    Raises ModelLoadError if a parameter is missing or has another shape, unless it is in one of
    the modules ``unused``. Tensors of the checkpoint that the model has no use for are logged.
    """
    with _readable_errors(name):
        module, info = load(output_loading_info=True, ignore_mismatched_sizes=True)
    missing = sorted(key for key in info["missing_keys"] if not _may_lack(module, key))
    unexpected = sorted(info["unexpected_keys"])
    needed = [key for key in missing if key.partition(".")[0] not in unused]
    if needed:
        kind = module.config.model_type
        raise ModelLoadError(
            f"{name} cannot be served: it lacks {len(needed)} parameters of a {kind} model, such "
            f"as {needed[0]}{_hint(unexpected)}"
        )
    if mismatched := sorted(info["mismatched_keys"]):
        key, found, wanted = mismatched[0]
        raise ModelLoadError(
            f"{name} cannot be served: {len(mismatched)} of its tensors have another shape than "
            f"its configuration says, such as {key}: {tuple(found)}, not {tuple(wanted)}"
        )
    _log(f"{name} lacks %d parameters that are not used, such as %s", missing)
    if module.base_model is module:
        unexpected = _own(module, unexpected)
    _log(f"{name} has %d tensors that the model does not use, such as %s", unexpected)
    return module


def _may_lack(module: Any, key: str) -> bool:
    return is_quantised(module) and _OPTIONAL_IF_QUANTISED.search(key) is not None


def _hint(unexpected: list[str]) -> str:
    """Return the reason why names do not fit, if it is a wrapper's prefix."""
    found = next(filter(None, map(_WRAPPERS.search, unexpected)), None)
    if found is None:
        return ""
    return f"; its names have {found[1]}, as a wrapped model's do: save the model inside it"


def _own(module: Any, unexpected: list[str]) -> list[str]:
    """Return the tensors in parts that a model without a head has: others are heads."""
    parts = {name for name, _ in module.named_children()}
    return [key for key in unexpected if key.partition(".")[0] in parts]


def _log(message: str, names: list[str]) -> None:
    if names:
        logger.warning(message, len(names), names[0])


@contextlib.contextmanager
def _readable_errors(name: str) -> Iterator[None]:
    """Name a parameter that could not be made: transformers' error refers to its report.

    A missing one of integers, as of a quantised layer, has no random values either.
    """
    reports: list[str] = []
    reporter, handler = logging.getLogger(_REPORTER), _Keeper(reports)
    level, propagates = reporter.level, reporter.propagate
    reporter.addHandler(handler)
    reporter.setLevel(logging.WARNING)
    reporter.propagate = False
    try:
        yield
    except RuntimeError as error:
        found = _NOT_MADE.search("".join(reports))
        if found is None:
            raise
        raise ModelLoadError(
            f"{name} cannot be served: tensors that make {found[1]} are missing or have other "
            "shapes"
        ) from error
    finally:
        reporter.removeHandler(handler)
        reporter.setLevel(level)
        reporter.propagate = propagates


class _Keeper(logging.Handler):
    """Keeps messages in a list."""

    def __init__(self, messages: list[str]) -> None:
        super().__init__()
        self._messages = messages

    def emit(self, record: logging.LogRecord) -> None:
        self._messages.append(record.getMessage())
