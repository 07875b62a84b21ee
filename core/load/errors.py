"""Errors of a load in one line: what is wrong, and what to do."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator

from core.contract.config import ModelConfig
from core.contract.errors import ModelLoadError, first_line
from core.load.bars import reported_weights
from core.load.weight_files import broken_file

_NO_MEMORY = ("can't allocate memory", "Cannot allocate memory", "not enough memory")
"""Messages of torch and the system when memory is short, in errors of several types."""


@contextlib.contextmanager
def one_line_errors(config: ModelConfig) -> Iterator[None]:
    """Turn errors of transformers, torch and the hub into a ModelLoadError of one line.

    It names the file of the model that is broken, if one is.
    """
    name = config.model or "the built-in model"
    from transformers.utils import logging  # noqa: PLC0415 - slow to import

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with reported_weights():
            yield
    except ModelLoadError:
        raise
    except Exception as error:  # any error that a broken checkpoint may cause in the libraries
        reason = reason_of(error, name) or broken_file(config) or _reason_of_pickle(error, name)
        reason = reason or f"cannot load {name}: {first_line(error)}"
        raise ModelLoadError(reason) from error


@contextlib.contextmanager
def named_errors(name: str) -> Iterator[None]:
    """Turn errors of the hub about the model ``name`` into a ModelLoadError. Others pass."""
    try:
        yield
    except Exception as error:
        reason = reason_of(error, name)
        if reason is None or isinstance(error, ModelLoadError):
            raise
        raise ModelLoadError(reason) from error


def reason_of(error: BaseException, name: str) -> str | None:
    """Say in one line why the hub or the memory refuses ``name``; None for other errors."""
    chain = list(_chain(error))
    kinds = {kind.__name__ for each in chain for kind in type(each).__mro__}
    if "GatedRepoError" in kinds:
        return (
            f"{name} is gated: accept its terms on its page at the hub, then log in with "
            "`hf auth login` or set HF_TOKEN"
        )
    if "RepositoryNotFoundError" in kinds or "HFValidationError" in kinds:
        return (
            f"there is no model {name}: neither a directory or file here, nor a public repository "
            "on the hub; a private one needs `hf auth login` or HF_TOKEN"
        )
    if "LocalEntryNotFoundError" in kinds or "OfflineModeIsEnabled" in kinds:
        return (
            f"{name} is no directory or file here, the hub's cache lacks it or a file that is "
            "asked for, and the hub cannot be reached"
        )
    text = " ".join(str(each) for each in chain)
    if "MemoryError" in kinds or any(words in text for words in _NO_MEMORY):
        return (
            f"no memory for the weights of {name}: choose a smaller model, a smaller type "
            "(--dtype, --quantization), or a GGUF file"
        )
    return None


def _reason_of_pickle(error: BaseException, name: str) -> str | None:
    """The fault of a cut file of torch.save, or one with other objects; None for other errors."""
    if type(error).__name__ == "UnpicklingError":
        return f"{name} holds other objects than tensors, which are not loaded: save a state dict"
    if isinstance(error, EOFError | struct.error) or "unexpected EOF" in str(error):
        return f"the weights of {name} are cut off"
    return None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error, its causes and their contexts."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
