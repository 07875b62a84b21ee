"""The error of a load names the file that is broken, or says which files there are."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from core.assembly.fit import estimate_fit
from core.contract.config import EngineConfig, ModelConfig
from core.contract.errors import ModelLoadError
from core.module.loader import load_model
from tests.support.checkpoints import tiny_model
from tests.support.damaged import PAGE, POINTER
from tests.support.gguf_files import write_gguf
from tests.support.gguf_models import tensors_of_file, values_of_file, write_tiny
from tests.support.hub import running_hub


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tiny_model("llama").save_pretrained(tmp_path)
    return tmp_path


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    tiny_model("llama").save_pretrained(tmp_path, max_shard_size="100KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 3
    return tmp_path


def refusal(model: Path, **fields: str) -> str:
    """The error of a load, which is also that of the check without weights."""
    config = ModelConfig(model=str(model), **fields)
    with pytest.raises(ModelLoadError) as loaded:
        load_model(config)
    with pytest.raises(ModelLoadError) as estimated:
        estimate_fit(config, EngineConfig())
    assert str(loaded.value) == str(estimated.value)
    assert "\n" not in str(loaded.value)
    return str(loaded.value)


@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "model.safetensors"])
@pytest.mark.parametrize(
    ("content", "said"), [(POINTER, "`git lfs pull`"), (PAGE, "web page"), (b"", "is empty")]
)
def test_a_broken_file_is_named(folder: Path, name: str, content: bytes, said: str) -> None:
    (folder / name).write_bytes(content)
    assert refusal(folder).startswith(f"{folder / name} ")
    assert said in refusal(folder)


@pytest.mark.parametrize("content", ["{bad", "[]", "null"])
def test_a_generation_config_is_not_ignored(folder: Path, content: str) -> None:
    path = folder / "generation_config.json"
    path.write_text(content)
    assert refusal(folder).startswith(f"{path} ")
    path.unlink()
    path.symlink_to("gone.json")
    assert refusal(folder) == f"{path} is a link to a file that is not there"
    path.unlink()
    load_model(ModelConfig(model=str(folder)))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"eos_token_id": "</s>"}', "eos_token_id is no number"),
        ('{"eos_token_id": [1, "</s>"]}', "eos_token_id is no number"),
        ('{"pad_token_id": ""}', "pad_token_id is no number"),
        ('{"temperature": "hot"}', "temperature is no number"),
        ('{"top_k": [5]}', "top_k is no number"),
        ('{"temperature": -1}', "temperature must be at least 0.0, not -1."),
        ('{"top_p": 5}', "top_p must be between 0.0 and 1.0, not 5."),
    ],
)
def test_a_generation_config_has_usable_values(folder: Path, content: str, said: str) -> None:
    path = folder / "generation_config.json"
    path.write_text(content)
    assert refusal(folder) == f"generation_config.json of {folder}: {said}"
    path.write_text('{"eos_token_id": [1, 2], "temperature": 0, "top_k": -1, "top_p": null}')
    assert load_model(ModelConfig(model=str(folder))).eos_token_ids == {1, 2}


def test_a_generation_config_of_the_hub_is_not_ignored(tmp_path: Path) -> None:
    tiny_model("llama").save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "generation_config.json").write_text("{bad")
    with running_hub(tmp_path / "cache") as hub:
        hub.folders["org/tiny"] = tmp_path / "model"
        with pytest.raises(ModelLoadError, match=r"generation_config\.json is not valid JSON"):
            load_model(ModelConfig(model="org/tiny"))


def test_a_checkpoint_that_is_cut_off_is_named(folder: Path) -> None:
    path = folder / "model.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    assert refusal(folder) == (
        f"{path} is cut off: it has {len(whole) // 2:,} of {len(whole):,} bytes"
    )


def test_the_shard_that_is_cut_off_is_named(shards: Path) -> None:
    path = sorted(shards.glob("model-*"))[2]
    path.write_bytes(path.read_bytes()[:-7])
    assert refusal(shards).startswith(f"{path} is cut off")


def test_a_shard_that_is_not_there_is_named(shards: Path) -> None:
    path = sorted(shards.glob("model-*"))[1]
    path.unlink()
    assert f"lacks {path.name} of " in refusal(shards)


@pytest.mark.parametrize(
    "content", ["{bad", "[]", "{}", '{"weight_map": []}', '{"weight_map": {"a": "b"}}']
)
def test_a_broken_index_is_named(shards: Path, content: str) -> None:
    path = shards / "model.safetensors.index.json"
    path.write_text(content)
    assert refusal(shards).startswith(f"{path} ")


def test_an_index_may_name_files_elsewhere(shards: Path) -> None:
    index = shards / "model.safetensors.index.json"
    text = index.read_text()
    (shards / "parts").mkdir()
    for part in shards.glob("model-*.safetensors"):
        part.rename(shards / "parts" / part.name)
    index.write_text(text.replace('"model-', '"parts/model-'))
    assert load_model(ModelConfig(model=str(shards))).vocab_size
    index.write_text(text.replace('"model-', '"../model-'))
    assert "lacks model-00001-of-" in refusal(shards)


@pytest.mark.parametrize("name", ["model.safetensors", "model.safetensors.index.json"])
def test_a_directory_is_no_file_of_weights(folder: Path, name: str) -> None:
    (folder / "model.safetensors").unlink()
    (folder / name).mkdir()
    assert refusal(folder) == f"{folder / name} cannot be read: Is a directory"


def test_shards_without_an_index_are_said(shards: Path) -> None:
    (shards / "model.safetensors.index.json").unlink()
    said = refusal(shards)
    assert "it has model-00001-of-" in said
    assert said.endswith("and lacks model.safetensors.index.json, which says what is where")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("consolidated.safetensors", "only consolidated.safetensors, which are in their authors'"),
        ("consolidated.00.pth", "only consolidated.00.pth, which are in their authors' own"),
        ("tf_model.h5", "it has neither model.safetensors nor pytorch_model.bin, only tf_model.h5"),
        ("tiny.gguf", "it has tiny.gguf, which --gguf-file tiny.gguf serves"),
        (None, "it has neither model.safetensors nor pytorch_model.bin"),
    ],
)
def test_what_there_is_without_weights_is_said(folder: Path, name: str | None, said: str) -> None:
    weights = folder / "model.safetensors"
    if name is None:
        weights.unlink()
    else:
        weights.rename(folder / name)
    assert said in refusal(folder)


@pytest.mark.parametrize("content", [POINTER, PAGE, b"", b"PK\x03\x04"])
def test_a_state_dict_that_is_none_is_named(folder: Path, content: bytes) -> None:
    path = folder / "weights.pt"
    path.write_bytes(content)
    said = refusal(path, config=str(folder), tokenizer=str(folder))
    assert said.startswith(f"{path} is ")
    for nothing in ({"not": "a tensor"}, {"state_dict": {"a": torch.zeros(1)}}, [1], {}):
        torch.save(nothing, path)
        said = refusal(path, config=str(folder), tokenizer=str(folder))
        assert said == f"{path} does not hold a state dict of tensors"


@pytest.mark.parametrize("name", ["weights.pt", "pytorch_model.bin"])
def test_what_torch_saves_besides_tensors(folder: Path, name: str) -> None:
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    path, fields = folder / name, {"config": str(folder), "tokenizer": str(folder)}
    model, given = (path, fields) if name == "weights.pt" else (folder, {})
    torch.save(tensors | {"step": 3}, path)
    config = ModelConfig(model=str(model), **given)
    assert load_model(config).vocab_size
    estimate_fit(config, EngineConfig())
    torch.save(torch.nn.Linear(2, 2), path)
    assert refusal(model, **given).startswith(f"{model} holds other objects than tensors")
    torch.save(tensors, path, _use_new_zipfile_serialization=False)
    path.write_bytes(whole := path.read_bytes()[:-9])
    assert refusal(model, **given) == f"the weights of {model} are cut off"
    path.write_bytes(whole[:99])
    assert refusal(model, **given) == f"the weights of {model} are cut off"


def test_a_gguf_file_needs_no_other_file(tmp_path: Path) -> None:
    """Other files in the directory are not read, whatever they hold."""
    write_tiny(tmp_path / "m.gguf", "llama")
    for name in ("config.json", "generation_config.json", "model.safetensors"):
        (tmp_path / name).write_bytes(POINTER)
    config = ModelConfig(model=str(tmp_path), gguf_file="m.gguf")
    assert load_model(config).vocab_size == 300
    estimate_fit(config, EngineConfig())


def test_a_gguf_file_without_a_tensor_fits_nowhere(tmp_path: Path) -> None:
    tensors = tensors_of_file("llama")
    del tensors["blk.1.ffn_up.weight"]
    write_gguf(tmp_path / "m.gguf", values_of_file("llama"), tensors)
    with pytest.raises(ModelLoadError, match="it lacks tensors for 1 parameters of a llama model"):
        estimate_fit(ModelConfig(model=str(tmp_path / "m.gguf")), EngineConfig())
