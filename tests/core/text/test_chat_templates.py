"""The templates that come with the server, rendered as transformers does."""

import copy
import json
import shutil

import pytest

from core import builtin_model
from core.build import load_engine
from core.contract.config import EngineConfig, ModelConfig
from core.contract.errors import ModelLoadError
from core.text.chat_templates import TEMPLATE_NAMES, named_template
from core.text.tokenizer import Tokenizer
from tests.support.tokenizers import byte_fallback, byte_level

TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Hello!"},
    {"role": "user", "content": "Bye"},
]
EXPECTED = {
    "alpaca": (
        "<s>Be brief.\n\n### Instruction:\nHi\n\n### Response:\nHello!</s>\n\n"
        "### Instruction:\nBye\n\n### Response:\n"
    ),
    "chatml": (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\nHello!<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n"
        "<|im_start|>assistant\n"
    ),
    "gemma": (
        "<s><start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n"
        "<start_of_turn>model\nHello!<end_of_turn>\n<start_of_turn>user\nBye<end_of_turn>\n"
        "<start_of_turn>model\n"
    ),
    "llama2": (
        "<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nHi [/INST] Hello! </s><s>[INST] Bye [/INST]"
    ),
    "llama3": (
        "<s><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\nHello!<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nBye<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    ),
    "mistral": "<s>[INST] Be brief.\n\nHi [/INST] Hello!</s>[INST] Bye [/INST]",
    "phi3": (
        "<s><|system|>\nBe brief.<|end|>\n<|user|>\nHi<|end|>\n<|assistant|>\nHello!<|end|>\n"
        "<|user|>\nBye<|end|>\n<|assistant|>\n"
    ),
    "vicuna": "<s>Be brief.\n\nUSER: Hi\nASSISTANT: Hello!</s>\nUSER: Bye\nASSISTANT:",
    "zephyr": (
        "<|system|>\nBe brief.</s>\n<|user|>\nHi</s>\n<|assistant|>\nHello!</s>\n"
        "<|user|>\nBye</s>\n<|assistant|>\n"
    ),
}


def make(name, build=byte_fallback):
    inner = copy.deepcopy(build())
    inner.chat_template = named_template(name)
    return Tokenizer(inner)


def test_all_are_tested():
    assert EXPECTED.keys() == set(TEMPLATE_NAMES)
    assert named_template("../chatml") is None


@pytest.mark.parametrize("name", TEMPLATE_NAMES)
def test_a_conversation(name):
    tokenizer = make(name)
    rendered = tokenizer.render_chat(TALK)
    assert rendered == EXPECTED[name]
    open_turn = tokenizer.render_chat(TALK, add_generation_prompt=False)
    assert EXPECTED[name].startswith(open_turn)


@pytest.mark.parametrize("name", TEMPLATE_NAMES)
def test_a_system_turn_alone_and_a_late_one(name):
    tokenizer = make(name)
    assert "Be brief." in tokenizer.render_chat(TALK[:1])
    late = [*TALK, {"role": "system", "content": "Be kind."}, {"role": "user", "content": "Why?"}]
    rendered = tokenizer.render_chat(late)
    assert rendered.index("Bye") < rendered.index("Be kind.") < rendered.index("Why?")


@pytest.mark.parametrize("name", TEMPLATE_NAMES)
def test_a_turn_is_continued(name):
    rendered = make(name).render_chat(
        TALK[:3], add_generation_prompt=False, continue_final_message=True
    )
    assert rendered.endswith("Hello!")


@pytest.mark.parametrize("name", TEMPLATE_NAMES)
def test_a_tokenizer_without_these_tokens(name):
    assert "Bye" in make(name, byte_level).render_chat(TALK)


def test_the_engine_ends_answers_where_turns_end(tmp_path):
    """Also if checkpoint and tokenizer name other tokens."""
    shutil.copytree(builtin_model.path(), tmp_path, dirs_exist_ok=True)
    for name in ("config.json", "generation_config.json"):
        config = json.loads((tmp_path / name).read_text())
        (tmp_path / name).write_text(json.dumps(config | {"eos_token_id": 5}))
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"eos_token": "<|endoftext|>"}))
    for template, ends in ((None, {0, 2, 5}), ("chatml", {0, 2, 5}), ("vicuna", {0, 5})):
        config = ModelConfig(model=str(tmp_path), device="cpu", chat_template=template)
        info = load_engine(config, EngineConfig(max_model_len=64, max_num_seqs=1)).info
        assert set(info.eos_token_ids) == ends


def test_a_template_is_chosen_by_its_name(tmp_path):
    byte_level().save_pretrained(tmp_path)
    loaded = Tokenizer.load(tmp_path, chat_template="llama3")
    assert loaded.chat_template == named_template("llama3")
    with pytest.raises(ModelLoadError, match="none of the names alpaca, chatml"):
        Tokenizer.load(tmp_path, chat_template="llama33")
