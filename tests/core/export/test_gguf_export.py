"""``roseinfer quantize``: what is written is what is read, in every family."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, Qwen3Config

from core.assembly.build import load_engine
from core.contract.config import EngineConfig, GgufMix, ModelConfig
from core.contract.errors import ModelLoadError
from core.export.gguf_export import export_gguf
from core.gguf.blocks import BF16, F32, Q4_K, Q6_K
from core.gguf.file import GgufFile
from core.gguf.quantise import Q4_K_M, quantised
from core.gguf.values import values_of
from core.kernels.cpu.library import kernels
from core.module.gguf import load_gguf
from core.text.tokenizer import Tokenizer
from tests.support.gguf_models import MODELS, SIZE, tensors_of_file, tiny_model, values_of_file
from tests.support.tiny_engine import run_prompts
from tests.support.tokenizers import byte_level

CPU = torch.device("cpu")
IDS = torch.randint(3, 290, (1, 100), generator=torch.Generator().manual_seed(1))
SMALL = {
    "vocab_size": 300,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "eos_token_id": None,
}


def saved(folder: Path, model: Any) -> str:
    model.save_pretrained(folder)
    byte_level(280).save_pretrained(folder)
    return str(folder)


def random_model(config: Any, dtype: torch.dtype = torch.float32) -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return AutoModelForCausalLM.from_config(config, dtype=dtype)


def exported(folder: Path, model: Any, mix: GgufMix, **choices: Any) -> Path:
    source = saved(folder / "source", model)
    export_gguf(ModelConfig(model=source, device="cpu", **choices), folder / "m.gguf", mix)
    return folder / "m.gguf"


def read(path: Path) -> Any:
    return load_gguf(ModelConfig(model=str(path), dtype="float32"), path, CPU).eval()


@pytest.mark.parametrize("family", MODELS)
def test_a_model_is_read_as_it_was_written(tmp_path, family):
    path = exported(tmp_path, tiny_model(family), "f32")
    model, expected = read(path), tiny_model(family)
    ours, theirs = dict(model.named_parameters()), dict(expected.named_parameters())
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():  # an offset of norms was added and taken off in float32
        assert torch.allclose(ours[name], value, rtol=0, atol=2e-7), name
    with torch.no_grad():
        logits, wanted = model(IDS).logits, expected(IDS).logits
    assert (logits - wanted).abs().max() < 1e-4 * wanted.std()


@pytest.mark.parametrize("family", MODELS)
def test_keys_and_tensors_are_those_of_llama_cpps_converter(tmp_path, family):
    """tests/support writes files as the converter does, and tests/real compares with it."""
    file = GgufFile.open(exported(tmp_path, tiny_model(family), "f32"))
    wanted = values_of_file(family)
    for key, value in wanted.items():
        if not key.startswith("tokenizer."):
            assert key in file.metadata, key
            found = file.metadata._values[key]
            assert found == (pytest.approx(value, rel=1e-6) if type(value) is float else value), key
    raws = tensors_of_file(family)
    assert {name: t.shape for name, t in file.tensors.items()} == {
        name: tuple(raw.shape) for name, raw in raws.items()
    }
    assert all(file.tensors[name].data.tobytes() == raw.data for name, raw in raws.items())


def test_a_gpt2_without_a_width_of_its_own_has_four_times_that_of_the_model(tmp_path):
    """The configurations of OpenAI's checkpoints have no width of their own."""
    original = tiny_model("gpt2", n_inner=None)
    path = exported(tmp_path, original, "f32")
    assert GgufFile.open(path).metadata.integer("gpt2.feed_forward_length") == 4 * SIZE
    with torch.no_grad():
        logits, wanted = read(path)(IDS).logits, original(IDS).logits
    assert (logits - wanted).abs().max() < 1e-4 * wanted.std()


WIDE = Qwen3Config(
    **SMALL | {"hidden_size": 256, "intermediate_size": 512, "tie_word_embeddings": True},
    head_dim=32,
)


def test_blocks_are_those_of_int4_and_the_answers_too(tmp_path):
    """The same matrices in the same blocks: the engine of the file has the bits of int4's."""
    path = exported(tmp_path, random_model(WIDE, torch.bfloat16), "q4_k_m")
    limits = EngineConfig(max_model_len=128, max_num_seqs=2, kv_cache_memory=4 << 20, threads=1)
    source = str(tmp_path / "source")
    configs = (
        ModelConfig(model=source, device="cpu", quantization="int4"),
        ModelConfig(model=str(path), device="cpu"),
    )
    prompts = [IDS[0, :20].tolist()]
    answers = [run_prompts(load_engine(c, limits).engine, prompts, 24) for c in configs]
    assert answers[0] == answers[1]


def test_values_in_the_file_are_those_of_the_blocks(tmp_path):
    model = random_model(WIDE)
    path = exported(tmp_path, model, "q4_k_m")
    file, compiled = GgufFile.open(path), kernels()
    kinds = {name: tensor.info.type for name, tensor in file.tensors.items()}
    assert kinds["token_embd.weight"] is Q6_K
    assert kinds["blk.0.attn_q.weight"] is Q4_K
    assert kinds["blk.1.ffn_down.weight"] is Q4_K_M.type_of("model.layers.1.mlp.down_proj", 2)
    assert kinds["blk.0.attn_norm.weight"] is F32
    ours = dict(read(path).named_parameters())
    for name, tensor, kind in (
        ("blk.0.attn_q.weight", "model.layers.0.self_attn.q_proj.weight", Q4_K),
        ("token_embd.weight", "model.embed_tokens.weight", Q6_K),
    ):
        weight = dict(model.named_parameters())[tensor].detach()
        blocks = quantised(compiled, kind, weight, name)
        assert file.tensors[name].data.tobytes() == blocks.data.tobytes()
        assert torch.equal(ours[tensor], values_of(blocks))


@pytest.mark.parametrize("mix", ["bf16", "f16"])
def test_matrices_are_rounded_to_16_bits(tmp_path, mix):
    model = random_model(LlamaConfig(**SMALL))
    ours = dict(read(exported(tmp_path, model, mix)).named_parameters())
    narrow = torch.bfloat16 if mix == "bf16" else torch.float16
    for name, value in model.named_parameters():
        expected = value.to(narrow).float() if value.dim() > 1 else value
        assert torch.equal(ours[name], expected), name


def test_matrices_that_divide_into_no_blocks_keep_their_values(tmp_path):
    config = LlamaConfig(**SMALL | {"intermediate_size": 80})
    file = GgufFile.open(exported(tmp_path, random_model(config, torch.bfloat16), "q4_k_m"))
    assert file.tensors["blk.0.ffn_down.weight"].info.type is BF16


def test_tokenizer_template_and_end_tokens_are_the_models(tmp_path):
    model = random_model(LlamaConfig(**SMALL))
    model.generation_config.eos_token_id = [0, 2, 5]
    path = exported(tmp_path, model, "q8_0")
    tokenizer = Tokenizer.load(path)
    wanted = Tokenizer.load(tmp_path / "source")
    assert tokenizer.chat_template == wanted.chat_template
    assert set(read(path).generation_config.eos_token_id) == {0, 2, 5}
    for text in ("Hello, world! 12345", "<|im_start|>user\nnaïve 日本語<|im_end|>"):
        ids = wanted.encode(text, add_special_tokens=True)
        assert tokenizer.encode(text, add_special_tokens=True) == ids
        assert tokenizer.decode(ids) == wanted.decode(ids)


def test_end_tokens_that_only_the_configuration_names_are_written(tmp_path):
    model = random_model(LlamaConfig(**(SMALL | {"eos_token_id": [5, 6]})))
    model.generation_config.eos_token_id = None
    path = exported(tmp_path, model, "f32")
    assert {5, 6} <= set(read(path).generation_config.eos_token_id)


def refused(tmp_path: Path, model: Any, mix: GgufMix = "f32", **choices: Any) -> str:
    (tmp_path / "m.gguf").write_text("earlier")
    with pytest.raises(ModelLoadError) as raised:
        exported(tmp_path, model, mix, **choices)
    assert (tmp_path / "m.gguf").read_text() == "earlier"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.gguf", "source"]
    return str(raised.value)


OTHER = {
    "hidden_act 'gelu'": LlamaConfig(**SMALL, hidden_act="gelu"),
    "RoPE of type 'dynamic' cannot be written": LlamaConfig(
        **SMALL, rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
    ),
    "layer_types ": Qwen3Config(
        **SMALL,
        head_dim=16,
        use_sliding_window=True,
        sliding_window=8,
        max_window_layers=1,
    ),
}


@pytest.mark.parametrize("message", OTHER)
def test_a_configuration_that_a_file_cannot_hold_is_refused_by_name(tmp_path, message):
    assert message in refused(tmp_path, random_model(OTHER[message]))


def test_other_architectures_are_refused_by_name(tmp_path):
    from transformers import OlmoConfig  # noqa: PLC0415

    message = refused(tmp_path, random_model(OlmoConfig(**SMALL)))
    assert "models of type 'olmo' cannot be written as GGUF files; gemma, gemma2, " in message


def test_more_end_tokens_than_a_file_has_room_for_are_refused(tmp_path):
    model = random_model(LlamaConfig(**SMALL))
    model.generation_config.eos_token_id = [5, 6, 7, 8]
    assert "no room for all its end tokens: [7, 8]" in refused(tmp_path, model)


def test_weights_that_are_not_finite_or_too_large_are_refused(tmp_path):
    model = random_model(LlamaConfig(**SMALL))
    model.model.layers[1].mlp.up_proj.weight.data[3, 5] = 1e9
    message = refused(tmp_path, model, "f16")
    assert message == "blk.1.ffn_up.weight has weights that are too large for F16"
    model.model.layers[1].mlp.up_proj.weight.data[3, 5] = torch.inf
    assert "ffn_up.weight has weights that are not finite" in refused(tmp_path, model, "q8_0")


def test_what_cannot_be_written_is_refused_before_loading(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.gguf").touch()
    (tmp_path / "several").mkdir()
    (tmp_path / "several" / "a.gguf").touch()
    (tmp_path / "several" / "b.gguf").touch()
    (tmp_path / "capitals").mkdir()
    (tmp_path / "capitals" / "M.GGUF").touch()
    (tmp_path / "blob").write_bytes(b"GGUF\x03\x00")
    (tmp_path / "neither").mkdir()
    for model, path, message in (
        (None, tmp_path / "m.gguf", "the built-in model cannot be written"),
        ("nowhere", tmp_path / "m.bin", "does not end in .gguf"),
        ("nowhere", tmp_path / "no" / "m.gguf", f"there is no directory {tmp_path / 'no'}"),
        ("a.gguf", tmp_path / "m.gguf", "a GGUF file cannot be quantised"),
        (str(tmp_path / "folder"), tmp_path / "m.gguf", "a GGUF file cannot be quantised"),
        (str(tmp_path / "several"), tmp_path / "m.gguf", "a GGUF file cannot be quantised"),
        (str(tmp_path / "capitals"), tmp_path / "m.gguf", "a GGUF file cannot be quantised"),
        (str(tmp_path / "blob"), tmp_path / "m.gguf", "a GGUF file cannot be quantised"),
        (str(tmp_path / "neither"), tmp_path / "m.gguf", "has neither a config.json nor"),
        ("", tmp_path / "m.gguf", "the name of the model is empty"),
    ):
        with pytest.raises(ModelLoadError, match=message):
            export_gguf(ModelConfig(model=model), path, "q4_k_m")


def test_the_size_is_logged(tmp_path, caplog):
    with caplog.at_level(logging.INFO):
        exported(tmp_path, random_model(MistralConfig(**SMALL, sliding_window=24)), "q8_0")
    assert f"wrote {tmp_path / 'm.gguf'}: 0.1 MB, 8." in caplog.text
    assert "Q8_0 0.1 MB, F32" in caplog.text
    assert read(tmp_path / "m.gguf").config.sliding_window == 24


LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 5e5,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
ROPES = {
    "llama3": LLAMA3,
    "linear": {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0},
    "yarn": {
        "rope_type": "yarn",
        "rope_theta": 1e4,
        "factor": 4.0,
        "original_max_position_embeddings": 64,
        "beta_fast": 16.0,
        "attention_factor": 1.2,
    },
}


@pytest.mark.parametrize("kind", ROPES)
def test_frequencies_are_those_of_the_configuration(tmp_path, kind):
    model = random_model(LlamaConfig(**SMALL, head_dim=32, rope_parameters=ROPES[kind]))
    found = read(exported(tmp_path, model, "f32"))
    with torch.no_grad():
        logits, wanted = found(IDS).logits, model(IDS).logits
    assert (logits - wanted).abs().max() < 1e-4 * wanted.std()


def test_rope_that_would_be_read_otherwise_is_refused(tmp_path):
    """``truncate`` changes the frequencies of yarn, and a file has no key for it."""
    rope = ROPES["yarn"] | {"truncate": False, "beta_fast": 7.0}
    config = LlamaConfig(**SMALL, head_dim=32, rope_parameters=rope)
    assert "the frequencies model.rotary_emb.inv_freq" in refused(tmp_path, random_model(config))
