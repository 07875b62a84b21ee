"""``roseinfer quantize``."""

from __future__ import annotations

from pathlib import Path

import pytest

from core import builtin_model
from core.contract.config import ModelConfig
from core.gguf.file import GgufFile
from server.cli.main import parse_command
from server.cli.quantize import QuantizeSettings
from server.cli.quantize import run_quantize as run
from tests.support.damaged import change_tensors, without
from tests.support.gguf_models import tiny_model
from tests.support.tokenizers import byte_level


def parsed(*argv: str) -> QuantizeSettings:
    settings = parse_command(["quantize", *argv], {})
    assert isinstance(settings, QuantizeSettings)
    return settings


def test_flags_become_settings():
    assert parsed("a/model", "out.gguf") == QuantizeSettings(
        model=ModelConfig(model="a/model", device="cpu"), out=Path("out.gguf"), type="q4_k_m"
    )
    settings = parsed("m", "o.gguf", "--type=q8_0", "--tokenizer=t", "--trust-remote-code")
    assert settings.type == "q8_0"
    assert settings.model == ModelConfig(
        model="m", device="cpu", tokenizer="t", trust_remote_code=True
    )


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "name the model and the file to write: roseinfer quantize MODEL OUT.gguf"),
        (["a/model", "--type=q8_0"], "name the file to write behind the model: roseinfer quantize"),
        (["out.gguf"], "OUT.gguf. The built-in model cannot be written: its tokenizer"),
        (
            ["model", "out.gguf", "--type=q2_k"],
            "argument --type: q2_k is not one of q4_k_m, q5_k_m",
        ),
        (["model", "out.gguf", "--dtype=bfloat16"], "unrecognized arguments: --dtype=bfloat16"),
    ],
)
def test_a_wrong_command_line_ends_with_one_line(argv, message, capsys):
    with pytest.raises(SystemExit) as raised:
        parsed(*argv)
    assert raised.value.code == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_the_built_in_model_cannot_be_written(tmp_path, capsys):
    assert run(parsed(str(builtin_model.path()), str(tmp_path / "m.gguf"))) == 2
    assert "its tokenizer splits text as none of the pre-tokenizers" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_model_is_written(tmp_path):
    tiny_model("llama").save_pretrained(tmp_path / "source")
    byte_level(280).save_pretrained(tmp_path / "source")
    assert run(parsed(str(tmp_path / "source"), str(tmp_path / "m.gguf"), "--type=q8_0")) == 0
    file = GgufFile.open(tmp_path / "m.gguf")
    assert file.metadata.text("general.architecture") == "llama"
    assert file.metadata.text("general.name") == "source"


def test_what_cannot_be_written_is_said_in_one_line(tmp_path, capsys):
    assert run(parsed(str(tmp_path / "none"), str(tmp_path / "m.gguf"))) == 2
    error = capsys.readouterr().err
    assert error.startswith("roseinfer: ")
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_random_weights_are_not_written(tmp_path, capsys):
    tiny_model("llama").save_pretrained(tmp_path / "source")
    byte_level(280).save_pretrained(tmp_path / "source")
    change_tensors(tmp_path / "source", without("layers.1.mlp.up_proj"))
    assert run(parsed(str(tmp_path / "source"), str(tmp_path / "m.gguf"), "--type=q8_0")) == 2
    assert "it lacks 1 parameters of a llama model" in capsys.readouterr().err
    assert not (tmp_path / "m.gguf").exists()
