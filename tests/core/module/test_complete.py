"""A checkpoint has every parameter of its model in its shape, or is refused: by load and doctor."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import MixtralConfig

from core.assembly.fit import estimate_fit
from core.contract.config import EngineConfig, ModelConfig
from core.contract.errors import ModelLoadError
from core.module.loader import load_model
from tests.support.checkpoints import DECODER, random_model, tiny_model
from tests.support.damaged import behind, change_config, change_tensors, without
from tests.support.quantizers import save_quantised


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tiny_model("llama").save_pretrained(tmp_path)
    return tmp_path


def refusal(model: Path, **fields: str) -> str:
    """What a load says, and the check without weights says too."""
    config = ModelConfig(model=str(model), device="cpu", **fields)
    with pytest.raises(ModelLoadError) as loaded:
        load_model(config)
    with pytest.raises(ModelLoadError) as estimated:
        estimate_fit(config, EngineConfig())
    assert str(loaded.value) == str(estimated.value)
    assert "\n" not in str(loaded.value)
    return str(loaded.value)


def serve(model: Path, **fields: str) -> Any:
    """The module that is loaded, which the check without weights takes as well."""
    config = ModelConfig(model=str(model), device="cpu", **fields)
    estimate_fit(config, EngineConfig())
    return load_model(config).module


def as_state_dict(folder: Path) -> dict[str, str]:
    """Write the tensors as a bare state dict; returns the other arguments."""
    torch.save(load_file(folder / "model.safetensors"), folder / "weights.pt")
    return {"config": str(folder), "tokenizer": str(folder)}


@pytest.mark.parametrize("is_state_dict", [False, True])
def test_a_missing_tensor_is_refused_by_name(folder: Path, *, is_state_dict: bool) -> None:
    change_tensors(folder, without("layers.1.mlp.up_proj"))
    fields = as_state_dict(folder) if is_state_dict else {}
    model = folder / "weights.pt" if is_state_dict else folder
    assert refusal(model, **fields) == (
        f"{model} cannot be served: it lacks 1 parameters of a llama model, such as "
        "model.layers.1.mlp.up_proj.weight"
    )


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "_orig_mod.module.", "net.module."])
@pytest.mark.parametrize("is_state_dict", [False, True])
def test_the_names_of_a_wrapped_model_are_said(
    folder: Path, prefix: str, *, is_state_dict: bool
) -> None:
    change_tensors(folder, behind(prefix))
    fields = as_state_dict(folder) if is_state_dict else {}
    said = refusal(folder / "weights.pt" if is_state_dict else folder, **fields)
    assert "it lacks 39 parameters of a llama model, such as lm_head.weight" in said
    wrapper = "_orig_mod." if prefix.startswith("_") else "module."
    assert f"its names have {wrapper}, as a wrapped model's do" in said


@pytest.mark.parametrize("is_state_dict", [False, True])
def test_a_tensor_of_another_shape_is_named(folder: Path, *, is_state_dict: bool) -> None:
    fields = as_state_dict(folder) if is_state_dict else {}
    change_config(folder, vocab_size=300)
    said = refusal(folder / "weights.pt" if is_state_dict else folder, **fields)
    assert said.endswith(
        "2 of its tensors have another shape than its configuration says, such as "
        "lm_head.weight: (211, 48), not (300, 48)"
    )


@pytest.mark.parametrize("is_state_dict", [False, True])
def test_tensors_without_a_use_are_logged(
    folder: Path, caplog: pytest.LogCaptureFixture, *, is_state_dict: bool
) -> None:
    change_tensors(folder, lambda tensors: tensors | {"vision.a": torch.zeros(2)})
    fields = as_state_dict(folder) if is_state_dict else {}
    serve(folder / "weights.pt" if is_state_dict else folder, **fields)
    assert "has 1 tensors that the model does not use, such as vision.a" in caplog.text


def test_buffers_of_older_versions_are_no_news(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"
    change_tensors(folder, lambda tensors: tensors | {name: torch.zeros(4)})
    serve(folder)
    assert not caplog.text


def test_tied_weights_and_a_shorter_prefix_are_complete(tmp_path: Path) -> None:
    model = tiny_model("gpt2")
    model.save_pretrained(tmp_path)
    change_tensors(
        tmp_path,
        lambda tensors: {
            name.removeprefix("transformer."): t
            for name, t in tensors.items()
            if name != "lm_head.weight"
        },
    )
    assert torch.equal(serve(tmp_path).lm_head.weight, model.lm_head.weight)


def test_an_output_layer_that_is_not_tied_is_needed(folder: Path) -> None:
    change_tensors(folder, without("lm_head"))
    assert refusal(folder).endswith("such as lm_head.weight")
    change_config(folder, tie_word_embeddings=True)
    serve(folder)


@pytest.mark.parametrize("form", ["shards", "bin", "old bin"])
def test_other_forms_of_weights_are_checked(folder: Path, form: str) -> None:
    complete = load_file(folder / "model.safetensors")
    change_tensors(folder, without("layers.0.input_layernorm"))
    partial = load_file(folder / "model.safetensors")
    if form == "shards":
        model = tiny_model("llama")
        (folder / "model.safetensors").unlink()
        model.save_pretrained(folder, max_shard_size="50KB")
        serve(folder)
        model.save_pretrained(folder, state_dict=partial, max_shard_size="50KB")
    else:
        (folder / "model.safetensors").unlink()
        for tensors in (complete, partial):
            torch.save(
                tensors,
                folder / "pytorch_model.bin",
                _use_new_zipfile_serialization=form == "bin",
            )
            if tensors is complete:
                serve(folder)
    assert "model.layers.0.input_layernorm.weight" in refusal(folder)


@pytest.mark.parametrize("part", ["experts.2.w1", ".w1.", "experts.3."])
def test_a_mixture_without_all_experts_is_refused(tmp_path: Path, part: str) -> None:
    fields = DECODER | {"num_local_experts": 4, "num_hidden_layers": 2}
    random_model(MixtralConfig(**fields)).save_pretrained(tmp_path)
    serve(tmp_path)
    change_tensors(tmp_path, without(part))
    assert ".mlp.experts." in refusal(tmp_path)


@pytest.mark.parametrize("name", ["mlp.up_proj.weight", "mlp.up_proj.scale", "input_layernorm"])
def test_a_quantised_checkpoint_is_complete(tmp_path: Path, name: str) -> None:
    save_quantised(tiny_model("llama"), tmp_path)
    load_model(ModelConfig(model=str(tmp_path), device="cpu"))
    change_tensors(tmp_path, without(f"layers.1.{name}"))
    with pytest.raises(
        ModelLoadError,
        match=rf"model\.layers\.1\.{name}.* missing|lacks 1 .* model\.layers\.1\.{name}",
    ):
        load_model(ModelConfig(model=str(tmp_path), device="cpu"))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"num_attention_heads": 5}, "The hidden size \\(48\\) is not a multiple"),
        ({"hidden_size": "wide"}, "Field 'hidden_size' expected int, got str"),
        ({"hidden_act": "nope"}, "KeyError: 'nope'"),
    ],
)
def test_the_reason_is_in_the_line(folder: Path, fields: dict[str, Any], reason: str) -> None:
    change_config(folder, **fields)
    with pytest.raises(ModelLoadError, match=reason) as caught:
        load_model(ModelConfig(model=str(folder)))
    assert "\n" not in str(caught.value)


def test_a_report_is_not_printed(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    change_tensors(folder, without("lm_head"))
    refusal(folder)
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "")


def test_a_named_configuration_that_is_not_there(folder: Path) -> None:
    said = refusal(folder, config="/no/config")
    assert said.startswith("there is no model /no/config: ")


def test_a_named_configuration_that_is_broken(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "config.json").write_text("{bad")
    assert refusal(folder, config=str(other)).startswith(f"{other}/config.json is not valid JSON")
    (other / "config.json").write_text(json.dumps([]))
    assert refusal(folder, config=str(other)) == f"{other}/config.json holds no JSON object"
