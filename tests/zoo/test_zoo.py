"""Every model family is exact or refused at load: see docs/models.md."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import torch
import transformers

from tests.support.constraints import constraints
from tests.zoo.check import Outcome, load
from tests.zoo.page import PAGE, plain, rows, states_on
from tests.zoo.shrink import families, tiny_config, tiny_model
from tests.zoo.variants import VARIANTS

SAMPLE = [
    *("bart", "bert", "deepseek_v3", "falcon_h1", "gemma2", "gemma3_text", "gpt_oss", "llama"),
    *("moshi", "opt", "phi3", "qwen3_moe"),
]
"""Plain, windowed, latent, soft-capped, with sinks, mixtures; and what must be refused."""

OF_THE_PAGE = pytest.mark.skipif(
    transformers.__version__ != constraints()["transformers"],
    reason="the page is of another release of transformers",
)

EXACT = [name for name, state in states_on(PAGE.read_text()).items() if state == "exact"]


def survey(*names: str) -> dict[str, Outcome]:
    """What becomes of the families, or of all, in a process of its own."""
    done = subprocess.run(  # noqa: S603 - runs what is here
        [sys.executable, "-m", "tests.zoo", *names],
        check=True,
        capture_output=True,
        text=True,
        cwd=PAGE.parents[1],
        env={**os.environ, "PYTHONPATH": str(PAGE.parents[1])},
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {line["family"]: Outcome(line["state"], line["reason"]) for line in lines}


def check(outcomes: dict[str, Outcome]) -> None:
    """No third outcome, and no raw exception as a reason."""
    failed = {name: o.reason for name, o in outcomes.items() if o.state == "FAILED"}
    assert not failed
    for outcome in outcomes.values():
        if outcome.state == "refused":
            assert "\n" not in outcome.reason
            assert "Error" not in outcome.reason


def check_page(outcomes: dict[str, Outcome]) -> None:
    """The page is up to date."""
    listed = states_on(PAGE.read_text())
    assert {name: o.state for name, o in outcomes.items()} == {n: listed.get(n) for n in outcomes}


@pytest.mark.slow
def test_a_sample_is_exact_or_refused() -> None:
    outcomes = survey(*SAMPLE)
    assert outcomes.keys() == set(SAMPLE)
    check(outcomes)
    check_page(outcomes)


def test_the_page_is_of_the_release_in_the_constraints() -> None:
    release = constraints()["transformers"].rpartition(".")[0]
    assert f"`AutoModelForCausalLM` in transformers {release}:" in PAGE.read_text()


@OF_THE_PAGE
def test_the_page_lists_every_family_once() -> None:
    assert sorted(states_on(PAGE.read_text())) == families()


def test_the_page_lists_the_families_that_have_a_row() -> None:
    assert rows() in PAGE.read_text()


def test_a_reason_on_the_page_has_no_figures() -> None:
    reason = "LlamaForCausalLM cannot be served: it differs (error 0.3 standard deviations)"
    assert plain(reason) == "it differs"


@OF_THE_PAGE
@pytest.mark.zoo
def test_every_family_is_exact_or_refused() -> None:
    outcomes = survey()
    check(outcomes)
    check_page(outcomes)
    assert sum(outcome.state == "exact" for outcome in outcomes.values()) >= 120


@pytest.mark.zoo
def test_every_variant_is_exact_or_refused() -> None:
    check(survey(*VARIANTS))


@pytest.mark.zoo
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("family", EXACT)
def test_rounding_is_not_taken_for_a_difference(family: str) -> None:
    """The proof's tolerances hold for bfloat16 and int8, though experts may change."""
    load(tiny_model(tiny_config(family)).to(torch.bfloat16))
    load(tiny_model(tiny_config(family)), "int8")
