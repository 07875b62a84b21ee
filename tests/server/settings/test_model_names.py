import pytest

from core.builtin_model import MODEL_ID
from server.settings.settings import default_name
from tests.support.each import each


@each(
    ("model", "name"),
    [
        (None, MODEL_ID),
        ("org/name", "org/name"),
        ("gpt2", "gpt2"),
        ("/models/Qwen3-0.6B", "Qwen3-0.6B"),
        ("/models/Qwen3-0.6B/", "Qwen3-0.6B"),
        ("/models/a.b", "a.b"),
        ("../models/x/../y", "y"),
        ("/m/qwen3-0.6b-q8_0.gguf", "qwen3-0.6b-q8_0"),
        ("/m/big-00001-of-00003.gguf", "big"),
        ("/m/state.pt", "state"),
        ("/c/hub/models--Qwen--Qwen3-0.6B/snapshots/c1899de2", "Qwen/Qwen3-0.6B"),
        ("/c/hub/models--a--b/snapshots/c1899de2/x-q4.gguf", "x-q4"),
        ("/", MODEL_ID),
        ("a" * 300, "a" * 300),
    ],
)
def test_the_default_is_no_path(model, name):
    assert default_name(model) == name


@pytest.mark.parametrize("given", ["org/name", "./org/name", "."])
def test_a_directory_that_exists_is_no_hub_id(tmp_path, monkeypatch, given):
    (tmp_path / "org" / "name").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "org" / "name" if given == "." else tmp_path)
    assert default_name(given) == "name"
