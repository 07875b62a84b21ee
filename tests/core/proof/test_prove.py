"""A spec is proved exact, or not if it is wrong, over every twin of tests/core/models/cases.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import CONFIG_MAPPING

from core.executors.supported import check_supported
from core.kernels.cpu.library import kernels
from core.models.families import FAMILIES, describe
from core.models.spec import Undescribed
from core.proof import prove as proof
from core.proof.__main__ import prove_rows, values_of
from core.proof.prove import prove
from core.proof.trial import compare, executor_of, reference
from core.proof.twin import LENGTH, twins_of
from core.proof.verdict import Verdict
from tests.core.models.cases import CASES, Case
from tests.core.models.changes import changed
from tests.core.models.test_keys import FIRST, config_of, plain

pytestmark = [
    pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning"),
    pytest.mark.slow,
    pytest.mark.skipif(kernels() is None, reason="no C++ compiler"),
]


def values_of_case(case: Case) -> dict[str, Any]:
    return plain(config_of(case))


def skip_what_is_not_compiled(values: dict[str, Any]) -> None:
    try:
        check_supported(describe(values, LENGTH)[0])
    except Undescribed as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.family)
def test_every_case_is_exact(case: Case, tmp_path: Path) -> None:
    values = values_of_case(case)
    skip_what_is_not_compiled(values)
    verdict = prove(values, repeats=True, folder=tmp_path)
    assert (verdict.is_exact, verdict.reason, verdict.is_remembered) == (True, "", False)


def test_every_row_is_exact(tmp_path: Path) -> None:
    """The build of the container image runs the same."""
    found = dict(prove_rows(tmp_path / "verdicts"))
    assert found.keys() == {"built-in model", *FAMILIES}
    proved = {name: v for name, v in found.items() if isinstance(v, Verdict)}
    assert proved.keys() == {"built-in model", *FAMILIES} & {"built-in model", *CONFIG_MAPPING}
    assert not [f"{name}: {v}" for name, v in proved.items() if not v.is_exact]
    assert len(list((tmp_path / "verdicts").iterdir())) == len(proved)


NO_MEANING = {
    "gemma3_text": {"alpha", "input_norm"},
    "gpt_oss": {"groups_chosen", "name", "has_shared_gate", "input_norm"},
    "olmoe": {"groups_chosen", "alpha", "has_shared_gate", "input_norm"},
    "phi3": {"alpha", "input_norm"},
    "qwen2_moe": {"groups_chosen", "alpha", "input_norm"},
}
"""Fields that change nothing, given the others: no limit, no groups, no layer input."""


@pytest.mark.parametrize("family", NO_MEANING)
def test_a_wrong_spec_is_found(family: str, tmp_path: Path) -> None:
    for twin in twins_of(values_of_case(FIRST[family])):
        expected = reference(twin.values, tmp_path)
        spec, names = describe(twin.values, twin.max_model_len)
        wrong = [(path, other) for path, other in changed(spec) if other != spec]

        def is_found(other: Any) -> bool:
            try:
                executor = executor_of(tmp_path, lambda _length: (other, names), twin)  # noqa: B023
                return bool(compare(executor, expected))  # noqa: B023
            except Exception:  # noqa: BLE001 - prove refuses on any
                return True

        assert not is_found(spec)
        missed = {path.rsplit(".")[-1].rsplit()[-1] for path, other in wrong if not is_found(other)}
        assert missed == NO_MEANING[family]
        assert len(wrong) > 100


@pytest.fixture
def wrong(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Rows that mistake an epsilon."""

    def mistaken(values: Any, length: int) -> Any:
        return describe({**values, "rms_norm_eps": 0.3}, length)

    with monkeypatch.context() as patch:
        patch.setattr(proof, "describe", mistaken)
        yield


@pytest.mark.usefixtures("wrong")
def test_a_verdict_says_what_is_wrong_and_is_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("core.proof.verdict.user_folders", lambda _kind: [tmp_path])
    values = values_of("llama")
    verdict = prove(values)
    assert not verdict.is_exact
    assert verdict.reason.startswith("packed prefill gives other logits than transformers'")
    assert verdict.reason.endswith(" of the largest logit)")
    again = prove(values)
    assert again == Verdict(False, verdict.reason, is_remembered=True, seconds=verdict.seconds)
    assert prove(values, repeats=True).is_remembered is False


def test_what_is_not_described_or_not_compiled_is_not_exact(tmp_path: Path) -> None:
    def reason(values: dict[str, Any]) -> str:
        verdict = prove(values, folder=tmp_path)
        assert not verdict.is_exact
        return verdict.reason

    assert reason({"model_type": "mamba2"}) == "no row has the model_type 'mamba2'"
    assert reason(values_of("llama") | {"use_alibi": True}).startswith("use_alibi is True")
    assert "do not compute" in reason(values_of("gpt_oss") | {"swiglu_limit": 6.0})
    assert not list(tmp_path.iterdir())


def test_an_error_of_transformers_is_a_reason_that_is_not_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_args: object) -> None:
        raise ZeroDivisionError("a secret")

    monkeypatch.setattr(proof, "reference", fail)
    verdict = prove(values_of("llama"), repeats=True, folder=tmp_path)
    assert verdict.reason == "its twin was not computed: ZeroDivisionError"
    assert not list(tmp_path.iterdir())


def test_a_twin_whose_logits_are_not_finite_is_not_exact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_finite(*args: Any) -> list[torch.Tensor]:
        return [logits * torch.nan for logits in reference(*args)]

    monkeypatch.setattr(proof, "reference", not_finite)
    assert "packed prefill" in prove(values_of("llama"), repeats=True, folder=tmp_path).reason


def test_the_generator_of_others_is_left_alone(tmp_path: Path) -> None:
    torch.manual_seed(7)
    before = torch.get_rng_state()
    prove(values_of("llama"), repeats=True, folder=tmp_path)
    assert torch.equal(torch.get_rng_state(), before)
