"""What the configuration of a checkpoint says of texts, and that its files are complete."""

import pytest
import torch
from transformers import AutoModelForCausalLM, BertConfig, Qwen3Config, RobertaConfig

from core.contract.config import ModelConfig
from core.contract.errors import ModelLoadError
from core.pooling.check import check_module
from core.pooling.checkpoint import context_of, load_module
from core.pooling.heads import load_dense
from core.pooling.recipe import read_recipe
from tests.support.checkpoints import DECODER
from tests.support.damaged import (
    POINTER,
    behind,
    change_config,
    change_tensors,
    without,
)
from tests.support.pooling_models import describe, save_cross_encoder, save_encoder


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (BertConfig(max_position_embeddings=512, pad_token_id=1), 512),
        (RobertaConfig(max_position_embeddings=514, pad_token_id=1), 512),
        (RobertaConfig(max_position_embeddings=514, pad_token_id=0), 513),
    ],
)
def test_positions_of_roberta_begin_behind_that_of_its_padding(config, expected):
    assert context_of(config) == expected


def test_a_file_makes_no_vectors_whatever_its_name(tmp_path):
    file = tmp_path / "sha256-0"
    file.touch()
    assert read_recipe(ModelConfig(model=str(file))) is None
    with pytest.raises(ModelLoadError, match="--task embed needs a checkpoint in Hugging Face"):
        read_recipe(ModelConfig(model=str(file), task="embed"))


def load(folder, task="auto"):
    """The module, which the check without weights takes as well."""
    config = ModelConfig(model=str(folder), device="cpu", task=task)
    recipe = read_recipe(config)
    check_module(recipe, config)
    return load_module(recipe, config, torch.device("cpu"))


def refusal(folder, task="auto"):
    """What a load says, and the check without weights says too."""
    config = ModelConfig(model=str(folder), device="cpu", task=task)
    recipe = read_recipe(config)
    with pytest.raises(ModelLoadError) as loaded:
        load_module(recipe, config, torch.device("cpu"))
    with pytest.raises(ModelLoadError) as checked:
        check_module(recipe, config)
    assert str(loaded.value) == str(checked.value)
    assert "\n" not in str(loaded.value)
    return str(loaded.value)


def test_a_model_that_lacks_a_tensor_makes_no_vectors(tmp_path, capfd):
    save_encoder(tmp_path)
    capfd.readouterr()
    change_tensors(tmp_path, without("layer.1.output.dense.weight"))
    assert refusal(tmp_path).endswith(
        "it lacks 1 parameters of a bert model, such as encoder.layer.1.output.dense.weight"
    )
    assert capfd.readouterr() == ("", "")


def test_a_wrapped_model_makes_no_vectors(tmp_path):
    save_encoder(tmp_path)
    change_tensors(tmp_path, behind("module."))
    assert "its names have module., as a wrapped model's do" in refusal(tmp_path)


def test_a_pooler_that_is_not_used_may_be_missing(tmp_path, caplog, capfd):
    wanted = save_encoder(tmp_path).encoder.layer[0].output.dense.weight
    change_tensors(tmp_path, without("pooler"))
    capfd.readouterr()
    module = load(tmp_path)
    assert torch.equal(module.encoder.layer[0].output.dense.weight, wanted)
    assert "lacks 2 parameters that are not used, such as pooler.dense.bias" in caplog.text
    assert capfd.readouterr().out == ""


def test_the_head_of_a_generator_is_no_news(tmp_path, caplog):
    """A checkpoint of all of it embeds without its output layer."""
    model = AutoModelForCausalLM.from_config(Qwen3Config(**DECODER, head_dim=8))
    model.save_pretrained(tmp_path)
    assert torch.equal(load(tmp_path, "embed").norm.weight, model.model.norm.weight)
    assert not caplog.text
    change_tensors(tmp_path, without("layers.0.mlp"))
    assert "it lacks 3 parameters of a qwen3 model" in refusal(tmp_path, "embed")


@pytest.mark.parametrize("part", ["classifier", "pooler"])
def test_a_cross_encoder_needs_its_classifier_and_pooler(tmp_path, part):
    save_cross_encoder(tmp_path)
    load(tmp_path)
    change_tensors(tmp_path, without(part))
    said = refusal(tmp_path)
    assert "it lacks 2 parameters of a bert model" in said
    assert f"{part}." in said


def test_an_encoder_is_no_cross_encoder(tmp_path):
    save_encoder(tmp_path)
    assert "it lacks 2 parameters of a bert model, such as classifier." in refusal(
        tmp_path, "score"
    )


def test_a_tensor_of_another_shape_makes_no_vectors(tmp_path):
    save_encoder(tmp_path)
    change_config(tmp_path, vocab_size=99)
    assert "such as embeddings.word_embeddings.weight: (196, 32), not (99, 32)" in refusal(tmp_path)


def test_a_file_of_weights_that_is_none_is_named(tmp_path):
    save_encoder(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(POINTER)
    assert refusal(tmp_path).startswith(f"{tmp_path}/model.safetensors is a pointer of Git LFS")


@pytest.mark.parametrize(
    "name",
    [
        "modules.json",
        "1_Pooling/config.json",
        "sentence_bert_config.json",
        "config_sentence_transformers.json",
    ],
)
@pytest.mark.parametrize("content", [POINTER, b"{bad", b"3", b""])
def test_no_file_of_sentence_transformers_is_ignored(tmp_path, name, content):
    save_encoder(tmp_path)
    describe(tmp_path, pooling={"pooling_mode_cls_token": True}, prompts={})
    config = ModelConfig(model=str(tmp_path))
    assert read_recipe(config).poolings == ("cls",)
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ModelLoadError, match=f"{path} "):
        read_recipe(config)
    path.unlink()
    path.symlink_to("gone")
    with pytest.raises(ModelLoadError, match=f"{path} is a link to a file that is not there"):
        read_recipe(config)


def test_a_pooling_without_its_file_is_no_mean(tmp_path):
    save_encoder(tmp_path)
    describe(tmp_path, pooling={"pooling_mode_cls_token": True})
    (tmp_path / "1_Pooling" / "config.json").unlink()
    with pytest.raises(ModelLoadError, match=r"lacks 1_Pooling/config\.json, which its modules"):
        read_recipe(ModelConfig(model=str(tmp_path)))


def test_the_weights_of_a_dense_layer_are_named_if_broken(tmp_path):
    save_encoder(tmp_path)
    describe(tmp_path, dense=(32, 8))
    path = tmp_path / "2_Dense" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(ModelLoadError, match=f"{path} is cut off"):
        load_dense(str(tmp_path), "2_Dense")
