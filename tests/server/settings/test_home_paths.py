"""``~`` in the path of a flag is a home directory, also where no shell expands it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from bench.flags import BENCH_GROUPS
from core.module.loader import load_model
from core.text.tokenizer import Tokenizer
from server.cli.quantize import QUANTIZE_GROUPS
from server.router.config.settings import ROUTE_GROUPS
from server.settings.flags import Flag
from server.settings.settings import SERVE_GROUPS, parse_settings
from tests.support.checkpoints import tiny_model
from tests.support.tokenizers import byte_level

PATHS = {
    f"{group.title}: {flag.name}": flag
    for group in (*SERVE_GROUPS, *ROUTE_GROUPS, *QUANTIZE_GROUPS, *BENCH_GROUPS)
    for flag in group.flags
    if flag.shown_metavar in {"PATH", "FILE"} or flag.name in {"model", "out"}
}


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch) -> Path:
    """The user's home, with a file of a key that is also one of JSON lines."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "x.svg").write_text("a-key")
    return tmp_path


def paths_in(value: Any) -> list[str]:
    """What a flag's value says of places."""
    if isinstance(value, tuple):
        return [text for part in value for text in paths_in(part)]
    return [str(getattr(value, "path", value))]


@pytest.mark.parametrize("flag", PATHS.values(), ids=PATHS)
def test_every_flag_with_a_path_expands_it(flag: Flag, home):
    assert paths_in(flag.convert("~/x.svg")) == [str(home / "x.svg")]


def test_the_flags_with_paths_were_found():
    names = {flag.name for flag in PATHS.values()}
    assert {"model", "config", "uds", "ssl-keyfile", "out", "dataset", "json"} <= names


def test_other_texts_are_left_alone():
    for text in ("org/name", "~no-such-user/model", "a~b", ""):
        assert PATHS["model: model"].convert(text) == text


def test_a_state_dict_and_what_belongs_to_it_load(home):
    model = tiny_model("gpt2")
    torch.save(model.state_dict(), home / "weights.pt")
    model.config.save_pretrained(home / "rest")
    byte_level(280).save_pretrained(home / "rest")
    (home / "chat.jinja").write_text("{{ messages }}")
    settings = parse_settings(
        ["serve", "~/weights.pt", "--device=cpu", "--config=~/rest", "--tokenizer=~/rest"], {}
    )
    loaded = load_model(settings.model)
    assert torch.equal(loaded.module.lm_head.weight, model.lm_head.weight)
    assert settings.model.tokenizer is not None
    tokenizer = Tokenizer.load(settings.model.tokenizer, chat_template="~/chat.jinja")
    assert tokenizer.chat_template == "{{ messages }}"


def test_a_directory_of_a_variable_loads_and_gives_its_name(home):
    tiny_model("gpt2").save_pretrained(home / "small")
    settings = parse_settings(["serve", "--device=cpu"], {"ROSEINFER_MODEL": "~/small"})
    assert settings.model_name == "small"
    assert load_model(settings.model).vocab_size > 0
