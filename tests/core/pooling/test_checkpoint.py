"""What the configuration of a checkpoint says of texts, and that its files are complete."""

import json

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    BertConfig,
    Qwen3Config,
    RobertaConfig,
    T5Config,
    T5ForConditionalGeneration,
)

from core.assembly.load import load as load_all
from core.contract.config import EngineConfig, ModelConfig
from core.contract.errors import ModelLoadError
from core.pooling.check import check_pooler
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
from tests.support.pooling_models import (
    bert_tokenizer,
    describe,
    describe_scores,
    save_cross_encoder,
    save_encoder,
    save_reranker,
)


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
    check_pooler(recipe, config)
    return load_module(recipe, config, torch.device("cpu"))


def refusal(folder, task="auto"):
    """What a load says, and the check without weights says too."""
    config = ModelConfig(model=str(folder), device="cpu", task=task)
    recipe = read_recipe(config)
    with pytest.raises(ModelLoadError) as loaded:
        load_module(recipe, config, torch.device("cpu"))
    with pytest.raises(ModelLoadError) as checked:
        check_pooler(recipe, config)
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
    bert_tokenizer().save_pretrained(tmp_path)
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
    path.unlink()
    path.mkdir()
    with pytest.raises(ModelLoadError, match=f"{path} cannot be read: Is a directory"):
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


def set_fields(path, **fields):
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def refused(folder, **flags):
    """What the start of a server says, and the check without weights says too."""
    config = ModelConfig(model=str(folder), device="cpu", **flags)
    with pytest.raises(ModelLoadError) as started:
        load_all(config, EngineConfig())
    with pytest.raises(ModelLoadError) as checked:
        check_pooler(read_recipe(config), config)
    assert str(started.value) == str(checked.value)
    assert "\n" not in str(started.value)
    return str(started.value)


@pytest.mark.parametrize(
    ("name", "fields", "said"),
    [
        ("sentence_bert_config.json", {"max_seq_length": -1}, "is -1, not a whole number above 0"),
        ("sentence_bert_config.json", {"max_seq_length": "9"}, "is '9', not a whole number"),
        ("sentence_bert_config.json", {"max_seq_length": True}, "is True, not a whole number"),
        ("1_Pooling/config.json", {"pooling_mode": 3}, "pooling 3 is not supported"),
        ("1_Pooling/config.json", {"pooling_mode": ["cls", []]}, "pooling [] is not supported"),
        ("config_sentence_transformers.json", {"prompts": {"a": 1}}, "are no texts by name"),
        ("config_sentence_transformers.json", {"prompts": ["a"]}, "are no texts by name"),
        (
            "config_sentence_transformers.json",
            {"default_prompt_name": "b"},
            "is 'b', which is none of its prompts",
        ),
        ("config_sentence_transformers.json", {"default_prompt_name": 3}, "is 3, which is none"),
        ("config.json", {"matryoshka_dimensions": "any"}, "are no list of whole numbers"),
        ("config.json", {"matryoshka_dimensions": [8, "x"]}, "are no list of whole numbers"),
        ("config.json", {"matryoshka_dimensions": 16}, "are no list of whole numbers"),
        ("2_Dense/config.json", {"in_features": 24}, "is not complete: "),
        ("2_Dense/config.json", {"in_features": "wide"}, "is not complete: "),
        ("2_Dense/config.json", {"bias": False}, 'Unexpected key(s) in state_dict: "bias"'),
        ("2_Dense/config.json", {"activation_function": "Odd"}, "the activation Odd of"),
    ],
)
def test_odd_values_are_an_error_at_load(tmp_path, name, fields, said):
    save_encoder(tmp_path)
    describe(tmp_path, pooling={}, dense=(32, 8), prompts={"prompts": {"a": "A: "}})
    set_fields(tmp_path / name, **fields)
    assert said in refused(tmp_path)


def test_a_dense_layer_fits_what_is_before_it(tmp_path):
    save_encoder(tmp_path)
    describe(tmp_path, pooling={"pooling_mode": ["cls", "mean"]}, dense=(32, 8))
    assert "2_Dense of" in (said := refused(tmp_path))
    assert said.endswith("takes vectors of 32 dimensions, and is given 64")
    torch.save([1], tmp_path / "2_Dense" / "pytorch_model.bin")
    (tmp_path / "2_Dense" / "model.safetensors").unlink()
    assert refused(tmp_path).endswith("pytorch_model.bin does not hold a state dict of tensors")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"config": "/no/config"}, "--config is for --task generate; this model's task is embed"),
        ({"quantization": "int8"}, "--quantization is for --task generate"),
    ],
)
def test_flags_of_generators_are_refused(tmp_path, flags, said):
    save_encoder(tmp_path)
    with pytest.raises(ModelLoadError, match=said):
        read_recipe(ModelConfig(model=str(tmp_path), **flags))


@pytest.mark.parametrize("task", ["embed", "score"])
def test_the_built_in_model_generates_only(task):
    with pytest.raises(ModelLoadError, match=f"--task {task} needs a model: the built-in one"):
        read_recipe(ModelConfig(task=task))


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"matryoshka_dimensions": (33,)}, "--matryoshka-dimensions has 33"),
        ({"task": "score"}, "it lacks 2 parameters of a bert model"),
        ({"chat_template": "{{ 1 }}"}, "does not show a text"),
        ({"tokenizer": "/no"}, "There is no tokenizer in /no"),
    ],
)
def test_flags_that_do_not_fit_are_an_error_at_load(tmp_path, flags, said):
    save_encoder(tmp_path)
    assert said in refused(tmp_path, **flags)


def test_a_scorer_that_cannot_score_is_an_error_at_load(tmp_path):
    save_cross_encoder(tmp_path, num_labels=2)
    assert refused(tmp_path) == f"{tmp_path} has 2 labels; a cross-encoder has one"
    save_reranker(tmp_path)
    assert "does not say which tokens make a score" in refused(tmp_path, task="score")
    describe_scores(tmp_path)
    assert "'nope' is no token" in refused(tmp_path, score_tokens=("a", "nope"))
    describe_scores(tmp_path, logits={"false_token_id": 10**6})
    assert "needs token 1000000, which the model does not have" in refused(tmp_path)


def test_a_model_that_computes_no_text_is_an_error_at_load(tmp_path):
    """Its decoder needs a text of its own."""
    fields = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 1, "num_heads": 4}
    T5ForConditionalGeneration(T5Config(vocab_size=196, **fields)).save_pretrained(tmp_path)
    bert_tokenizer().save_pretrained(tmp_path)
    describe(tmp_path, pooling={})
    with pytest.raises(ModelLoadError, match="does not embed a text: You must specify"):
        load_all(ModelConfig(model=str(tmp_path)), EngineConfig())
