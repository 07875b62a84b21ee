import json
import random
import string

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from bench import random_model
from bench.random_model import (
    RANDOM_MODELS,
    WORDS,
    cached_random_model,
    make_random_model,
    random_prompt,
)
from bench.random_tokenizer import SPECIAL, silent_token_ids
from bench.shapes import random_model_config

PRINTABLE = set(string.printable) - set("\t\n\r\x0b\x0c")


@pytest.fixture(scope="module")
def tokenizer(tiny):
    return AutoTokenizer.from_pretrained(tiny)


def test_every_word_is_one_token(tokenizer):
    for word in WORDS:
        assert len(tokenizer.encode(f" {word}")) == 1
    assert len(tokenizer.encode(random_prompt(random.Random(1), 100))) == 100


def test_every_text_can_be_tokenized(tokenizer):
    text = "Zürich, 東京 🙂\n def f(x): return x"
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_every_token_that_can_be_generated_is_printable(tokenizer):
    vocab_size = len(tokenizer)
    assert vocab_size == 4096
    silent = set(silent_token_ids(vocab_size))
    assert set(tokenizer.convert_tokens_to_ids(list(SPECIAL))) <= silent
    for token_id in set(range(vocab_size)) - silent:
        text = tokenizer.decode([token_id])
        assert text
        assert set(text) <= PRINTABLE


def test_the_model_loads_and_never_ends_its_answer(tiny, tokenizer):
    model, info = AutoModelForCausalLM.from_pretrained(tiny, output_loading_info=True)
    assert not any(info.values())
    assert model.dtype == torch.bfloat16
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    prompt = tokenizer(random_prompt(random.Random(2), 8), return_tensors="pt")
    ids = model.generate(**prompt, max_new_tokens=64, do_sample=False)
    assert ids.shape[1] == 8 + 64
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id
    with torch.inference_mode():
        logits = model(**prompt).logits[0]
    silent = silent_token_ids(model.config.vocab_size)
    assert (logits[:, silent] == 0).all()
    assert (logits.max(dim=-1).values > 0).all()


def test_the_experts_of_a_mixture_load(tmp_path, monkeypatch):
    config = random_model_config("qwen3-moe-0.9b-a0.2b")
    config.update({"hidden_size": 64, "vocab_size": 4096, "num_hidden_layers": 1})
    monkeypatch.setattr(random_model, "random_model_config", lambda _name: config)
    made = make_random_model("mixture", tmp_path / "mixture")
    model, info = AutoModelForCausalLM.from_pretrained(made, output_loading_info=True)
    assert not any(info.values())
    experts = model.model.layers[0].mlp.experts
    for weight in (experts.gate_up_proj, experts.down_proj):
        spread = float(weight.detach().float().std())
        assert spread == pytest.approx(random_model.STANDARD_DEVIATION, rel=0.1)
        assert not torch.equal(weight[0], weight[1])


def test_the_same_model_has_the_same_weights(tiny, tmp_path):
    again = make_random_model("tiny", tmp_path / "a" / "tiny")
    assert sorted(p.name for p in again.iterdir()) == sorted(p.name for p in tiny.iterdir())
    for file in tiny.iterdir():
        assert (again / file.name).read_bytes() == file.read_bytes()


def test_a_large_model_is_written_in_several_files(tmp_path, tiny, monkeypatch):
    monkeypatch.setattr(random_model, "MAX_SHARD_SIZE", 100_000)
    made = make_random_model("tiny", tmp_path / "tiny")
    index = json.loads((made / "model.safetensors.index.json").read_text())
    files = set(index["weight_map"].values())
    assert len(files) > 1
    assert files == {file.name for file in made.glob("*.safetensors")}
    whole = load_file(tiny / "model.safetensors")
    parts = {key: value for file in files for key, value in load_file(made / file).items()}
    assert parts.keys() == whole.keys() == index["weight_map"].keys()
    assert all(torch.equal(parts[key], whole[key]) for key in whole)


def test_an_existing_directory_is_not_changed(tmp_path):
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "precious").touch()
    with pytest.raises(OSError, match="x"):
        make_random_model("tiny", tmp_path / "x")
    assert [p.name for p in tmp_path.iterdir()] == ["x"]
    assert [p.name for p in (tmp_path / "x").iterdir()] == ["precious"]


def test_a_model_made_by_another_process_is_kept(tmp_path, tiny):
    make_random_model("tiny", tmp_path / "x")
    assert make_random_model("tiny", tmp_path / "x") == tmp_path / "x"


def test_a_random_model_is_cached(tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(random_model, "model_cache", lambda: tmp_path)
    first = cached_random_model("tiny", on_make=made.append)
    assert cached_random_model("tiny", on_make=made.append) == first
    assert made == [first]


@pytest.mark.parametrize("name", RANDOM_MODELS)
def test_shapes_have_the_parameters_of_their_models(name):
    sizes = {
        "gpt2": 124_439_808,
        "qwen3-0.6b": 596_049_920,
        "qwen3-0.6b-seventh": 85_207_040,
        "llama-1b": 1_235_814_400,
        "qwen3-8b": 8_190_735_360,
        "qwen3-moe-0.9b-a0.2b": 914_918_400,
        "tiny": 336_192,
    }
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(random_model_config(name))
    assert sum(parameter.numel() for parameter in model.parameters()) == sizes[name]


def test_an_unknown_shape_is_an_error(tmp_path):
    with pytest.raises(KeyError):
        make_random_model("gpt5", tmp_path / "x")
