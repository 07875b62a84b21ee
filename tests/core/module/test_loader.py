"""Every kind of model source loads, and a broken one gives a one-line error."""

import copy
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from core.assembly.fit import estimate_fit
from core.contract.config import EngineConfig, ModelConfig
from core.contract.errors import ModelLoadError
from core.load.devices import pick_device, pick_dtype
from core.load.source import STATE_DICT_SUFFIXES
from core.module.facts import describe
from core.module.loader import load_model
from tests.support.checkpoints import CONTEXT, VOCAB_SIZE, tiny_model


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    tiny_model("llama").save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def state_dict(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("state") / "weights.pt"
    torch.save(tiny_model("llama").state_dict(), path)
    return path


def assert_same_weights(module: torch.nn.Module) -> None:
    expected = tiny_model("llama").state_dict()
    actual = module.state_dict()
    assert actual.keys() == expected.keys()
    assert all(torch.equal(actual[name], expected[name]) for name in expected)


def test_a_directory_loads(directory: Path) -> None:
    loaded = load_model(ModelConfig(model=str(directory)))
    assert_same_weights(loaded.module)
    assert (loaded.vocab_size, loaded.max_model_len) == (VOCAB_SIZE, CONTEXT)
    assert loaded.num_token_ids == VOCAB_SIZE
    assert not loaded.module.training
    assert loaded.dtype is torch.float32


def test_a_state_dict_with_a_config_loads(directory: Path, state_dict: Path) -> None:
    config = ModelConfig(model=str(state_dict), config=str(directory), tokenizer=str(directory))
    assert_same_weights(load_model(config).module)


@pytest.mark.parametrize("suffix", STATE_DICT_SUFFIXES)
def test_a_directory_is_no_state_dict_whatever_its_name(
    directory: Path, tmp_path: Path, suffix: str
) -> None:
    folder = shutil.copytree(directory, tmp_path / f"dir{suffix}")
    assert_same_weights(load_model(ModelConfig(model=str(folder))).module)


def test_a_directory_without_a_config_takes_the_operators(directory: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(directory, tmp_path / "weights")
    (folder / "config.json").rename(tmp_path / "config.json")
    config = ModelConfig(model=str(folder), config=str(tmp_path))
    assert_same_weights(load_model(config).module)
    limits = EngineConfig(kv_cache_memory=2**20)
    assert estimate_fit(config, limits).max_model_len == CONTEXT


def test_the_named_dtype_is_used(directory: Path) -> None:
    loaded = load_model(ModelConfig(model=str(directory), dtype="bfloat16"))
    assert loaded.dtype is torch.bfloat16


def test_the_builtin_model_has_end_tokens() -> None:
    loaded = load_model(ModelConfig())
    assert loaded.eos_token_ids
    assert loaded.max_model_len >= 2048


def test_tied_weights_may_be_missing_from_a_state_dict(tmp_path: Path) -> None:
    model = tiny_model("gpt2")
    state = {k: v for k, v in model.state_dict().items() if k != "lm_head.weight"}
    torch.save(state, tmp_path / "gpt2.pt")
    model.config.save_pretrained(tmp_path)
    config = ModelConfig(
        model=str(tmp_path / "gpt2.pt"), config=str(tmp_path), tokenizer=str(tmp_path)
    )
    module = load_model(config).module
    assert torch.equal(module.lm_head.weight, model.lm_head.weight)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (ModelConfig(model="no/such/place"), "no/such/place"),
        (ModelConfig(model="weights.pt"), "--config and --tokenizer"),
        (ModelConfig(model="gone.pt", config="DIR", tokenizer="DIR"), "no file gone.pt"),
        (
            ModelConfig(model="OTHER", config="DIR", tokenizer="DIR"),
            "it lacks 39 parameters of a llama",
        ),
        (ModelConfig(model="PICKLE", config="DIR", tokenizer="DIR"), "other objects than tensors"),
    ],
)
def test_a_broken_source_gives_a_one_line_error(
    config: ModelConfig, message: str, directory: Path, tmp_path: Path
) -> None:
    torch.save({"odd": torch.zeros(1)}, tmp_path / "other.pt")
    torch.save({"code": print}, tmp_path / "pickle.pt")
    places = {
        "DIR": str(directory),
        "OTHER": str(tmp_path / "other.pt"),
        "PICKLE": str(tmp_path / "pickle.pt"),
    }
    values = {name: getattr(config, name) for name in ("model", "config", "tokenizer")}
    config = ModelConfig(**{name: places.get(v, v) for name, v in values.items()})
    with pytest.raises(ModelLoadError, match=message) as caught:
        load_model(config)
    assert "\n" not in str(caught.value)


def test_cuda_without_a_device_is_an_error() -> None:
    if torch.cuda.is_available():
        assert pick_device("cuda").type == "cuda"
    else:
        with pytest.raises(ModelLoadError, match="no CUDA device"):
            pick_device("cuda")


def test_auto_dtype_is_the_checkpoints_own_on_a_gpu() -> None:
    assert pick_dtype("auto", torch.bfloat16, torch.device("cuda")) is torch.bfloat16
    assert pick_dtype("auto", None, torch.device("cuda")) is torch.float32
    assert pick_dtype("auto", torch.float32, torch.device("cpu")) is torch.float32


def test_an_embedding_with_fewer_rows_bounds_the_ids(directory: Path) -> None:
    loaded = load_model(ModelConfig(model=str(directory)))
    loaded.module.set_input_embeddings(torch.nn.Embedding(VOCAB_SIZE - 5, 8))
    assert loaded.num_token_ids == VOCAB_SIZE - 5
    loaded.module.set_input_embeddings(torch.nn.Embedding(VOCAB_SIZE + 5, 8))
    assert loaded.num_token_ids == VOCAB_SIZE


def test_a_pass_may_ask_for_padding_by_keyword() -> None:
    """As code of a checkpoint may. transformers' own asks by position."""
    module: Any = describe(copy.deepcopy(tiny_model("gpt2")), torch.device("cpu")).module
    ids = torch.tensor([[3, 4]])
    module.transformer.warn_if_padding_and_no_attention_mask(input_ids=ids, attention_mask=None)
