"""prove: compare a model's row, its names and the compiled kernels with transformers.

A tiny twin of the configuration is made by transformers, whose logits are the oracle. The twin then
goes through the compiled kernels, in the steps of ``core.proof.steps``.
"""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core.executors.supported import check_supported
from core.kernels.cpu.library import kernels_or_reason
from core.models.families import describe
from core.models.spec import Undescribed
from core.proof.trial import compare, executor_of, reference
from core.proof.twin import Twin, twins_of
from core.proof.verdict import Verdict, key_of, recall, remember

logger = logging.getLogger("roseinfer.core")


def prove(
    values: Mapping[str, Any], *, repeats: bool = False, folder: Path | None = None
) -> Verdict:
    """The verdict on a ``config.json``, remembered if it can be and ``repeats`` is not set.

    A new one is remembered in ``folder``, else in the user's cache, unless something failed that
    need not fail again. Core thread only. A remembered one needs no import of transformers.
    """
    start = time.perf_counter()
    try:
        twins = twins_of(values)
        check_supported(describe(twins[0].values, twins[0].max_model_len)[0])
        key = key_of(twins[0].values)
        if not repeats and (known := recall(key)) is not None:
            return known
        kernels_or_reason()  # they may have to be compiled, which is no part of the proof
        start = time.perf_counter()
        reason = next(filter(None, map(_difference, twins)), "")
    except Undescribed as error:
        return Verdict(False, str(error), seconds=time.perf_counter() - start)
    except Exception as error:  # any error of transformers' code
        logger.debug("a twin was not proved", exc_info=error)
        reason = f"its twin was not computed: {type(error).__name__}"
        return Verdict(False, reason, seconds=time.perf_counter() - start)
    verdict = Verdict(not reason, reason, seconds=time.perf_counter() - start)
    remember(key, verdict, folder)
    return verdict


def check_proved(values: Mapping[str, Any]) -> None:
    """Raise Undescribed with the reason if a ``config.json`` is not proved exact."""
    verdict = prove(values)
    logger.debug("the model's spec: %s", verdict)
    if not verdict.is_exact:
        raise Undescribed(f"its twin is not exact: {verdict.reason}")


def _difference(twin: Twin) -> str:
    """The difference from transformers; empty if none. Raises Undescribed, and any other error."""
    with tempfile.TemporaryDirectory() as folder:
        expected = reference(twin.values, Path(folder))
        executor = executor_of(Path(folder), lambda length: describe(twin.values, length), twin)
    return compare(executor, expected)
