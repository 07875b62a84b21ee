"""The process that runs scenarios on OpenVINO's pipeline, with a scripted pipeline."""

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from benchmarks.openvino import OpenVino
from benchmarks.peers import BenchModel
from benchmarks.running import running
from tests.benchmarks.test_floors import TINY

SCRIPTED = Path(__file__).with_name("scripted_openvino")


@pytest.fixture
def model(tmp_path):
    (tmp_path / "tiny-fp16").mkdir()
    return BenchModel(name="tiny", directory=tmp_path, shape=TINY, openvino=tmp_path)


class Scripted(OpenVino):
    """OpenVINO with the module of this folder in place of openvino_genai."""

    def environment(self, model):
        return {"PYTHONPATH": f"{Path(__file__).parents[2]}:{SCRIPTED}"}


def test_scenarios_run_on_the_pipeline(model, tmp_path):
    peer = Scripted(python=Path(sys.executable))
    with running(peer, model, tmp_path / "log") as process:
        process.wait_ready(60)
        found = process.run("streams-4", scale=1.0, seed="0", limit=60)
        assert (found["num_ended"], found["num_tokens"]) == (4, 4 * 64)
        assert (found["num_prompt_tokens"], found["num_errors"]) == (4 * 32, 0)
        sampled = process.run("s2-sampled", scale=0.1, seed="0", limit=60)
        assert sampled["num_errors"] == 0
        cut = process.run("s5", scale=1.0, seed="0", limit=0.2)
        assert cut["is_cut"]
        pauses = []
        pause = partial(pauses.append, 1)
        three = process.run("s1", scale=0.75, seed="0", limit=60, pause=pause)
        assert (three["num_ended"], len(pauses)) == (3, 2)
        again = process.run("s1", scale=0.25, seed="0", limit=60)
        assert again["num_tokens"] == 128


def test_a_pipeline_that_fails_fails_its_requests(model, tmp_path):
    peer = Scripted(python=Path(sys.executable))
    with running(peer, replace(model, slots=3), tmp_path / "log") as process:
        process.wait_ready(60)
        found = process.run("streams-4", scale=1.0, seed="0", limit=60)
    assert found["num_errors"] == 4
    assert found["first_error"] == "RuntimeError: more requests than slots"
