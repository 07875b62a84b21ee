"""Models of a hub: downloads are reported; missing and gated ones are refused in one line."""

from __future__ import annotations

import pytest
from huggingface_hub import constants

from core import builtin_model
from core.assembly.load import load
from core.contract.config import EngineConfig, ModelConfig
from core.contract.errors import ModelLoadError
from core.load.bars import DOWNLOAD
from core.load.errors import reason_of
from core.observe.load_progress import LoadProgress, reporting
from tests.support.hub import running_hub

SMALL = EngineConfig(max_num_seqs=2, max_model_len=64)


@pytest.fixture
def hub(tmp_path):
    with running_hub(tmp_path / "cache") as hub:
        yield hub


def refusal(name):
    with pytest.raises(ModelLoadError) as caught:
        load(ModelConfig(model=name), SMALL)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_download_is_reported_in_bytes(hub):
    hub.folders["org/tiny"] = builtin_model.path()

    class Largest(LoadProgress):
        downloaded = 0

        def show(self, stage):
            super().show(stage)
            if stage.name == DOWNLOAD and stage.is_bytes:
                self.downloaded = max(self.downloaded, stage.done)

    progress = Largest()
    with reporting(progress):
        loaded = load(ModelConfig(model="org/tiny"), SMALL)
    size = (builtin_model.path() / "model.safetensors").stat().st_size
    assert progress.downloaded == size
    assert loaded.info.max_model_len == 64


def test_a_missing_model_is_refused_in_one_line(hub):
    said = refusal("org/nothing")
    assert said.startswith("there is no model org/nothing: neither a directory")
    assert "HF_TOKEN" in said


def test_a_gated_model_is_refused_in_one_line(hub):
    hub.gated.add("org/secret")
    said = refusal("org/secret")
    assert said.startswith("org/secret is gated: accept its terms")
    assert "hf auth login" in said


def test_a_path_that_is_no_name_is_refused_in_one_line(hub):
    assert "there is no model ./no/such/folder" in refusal("./no/such/folder")


def test_a_hub_that_cannot_be_reached(tmp_path):
    with running_hub(tmp_path) as hub, pytest.MonkeyPatch.context() as patch:
        patch.setattr(constants, "HF_HUB_OFFLINE", True)
        assert refusal("org/tiny") == (
            "org/tiny is no directory or file here, the hub's cache lacks it or a file that is "
            "asked for, and the hub cannot be reached"
        )
        assert not hub.folders


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"),
        OSError(12, "Cannot allocate memory"),
    ],
)
def test_memory_that_is_short(error):
    said = reason_of(error, "big")
    assert said is not None
    assert said.startswith("no memory for the weights of big: choose a smaller model")


def test_other_errors_keep_their_words():
    assert reason_of(ValueError("odd"), "x") is None
