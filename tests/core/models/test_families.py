"""Rows, names and the plain executor against transformers, on tiny twins of configurations."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.core.models.cases import CASES, Case
from tests.core.models.twins import Twin

EXACT = 1e-5
"""Of the largest logit."""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.family)
def test_logits_equal_those_of_transformers(case: Case, tmp_path: Path) -> None:
    twin = Twin(case, tmp_path)
    assert twin.worst(twin.spec, in_chunks=False) < EXACT
    assert twin.worst(twin.spec, in_chunks=True) < EXACT
