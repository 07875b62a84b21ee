"""Rows, names and the plain executor against transformers, on tiny twins of configurations."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.kernels.cpu.library import kernels
from core.models.spec import DecoderSpec, Undescribed
from tests.core.models.cases import CASES, Case
from tests.core.models.changes import changed
from tests.core.models.twins import Twin

KERNELS = kernels()
pytestmark = pytest.mark.slow

EXACT = 1e-5
"""Largest error of a logit, as a share of the largest logit."""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.family)
def test_logits_equal_those_of_transformers(case: Case, tmp_path: Path) -> None:
    twin = Twin(case, tmp_path)
    assert twin.worst(twin.spec, in_chunks=False) < EXACT
    assert twin.worst(twin.spec, in_chunks=True) < EXACT


@pytest.mark.skipif(KERNELS is None, reason="no C++ compiler")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.family)
def test_the_compiled_executor_computes_the_same(case: Case, tmp_path: Path) -> None:
    assert KERNELS is not None
    twin = Twin(case, tmp_path)
    assert twin.worst_compiled(KERNELS, in_chunks=False) < EXACT
    assert twin.worst_compiled(KERNELS, in_chunks=True) < EXACT


NO_MEANING = {
    "gemma2": {"alpha"},  # without a limit
    "gpt_oss": {"name", "groups_chosen"},  # a gate with a limit; one group
}
"""Fields that change nothing, given the others."""


@pytest.mark.parametrize("family", NO_MEANING)
def test_a_wrong_spec_is_refused_or_computes_other_logits(family: str, tmp_path: Path) -> None:
    case = next(case for case in CASES if case.family == family)
    twin = Twin(Case(family, case.fields, lengths=(70,)), tmp_path)
    wrong = [(path, spec) for path, spec in changed(twin.spec) if spec != twin.spec]
    found = {path.rsplit(".")[-1] for path, spec in wrong if not is_found(twin, spec)}
    assert found == NO_MEANING[family]
    assert len(wrong) > 100


def is_found(twin: Twin, spec: DecoderSpec) -> bool:
    try:
        return not twin.worst(spec, in_chunks=False) < EXACT
    except Undescribed:
        return True
