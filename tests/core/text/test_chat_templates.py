"""The templates that come with the server, rendered as transformers does."""

import copy
import json
import shutil

import pytest

from core import builtin_model
from core.assembly.build import load_engine
from core.contract.config import EngineConfig, ModelConfig
from core.contract.errors import ModelLoadError
from core.text.chat_templates import TEMPLATE_NAMES, named_template
from core.text.tokenizer import Tokenizer
from tests.support.each import each
from tests.support.engines import request
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


def load(folder, *, template=None, config=0, generation=0, eos="<|endoftext|>"):
    """The engine of the built-in model, whose files name these end tokens."""
    shutil.copytree(builtin_model.path(), folder, dirs_exist_ok=True)
    named = {
        "config.json": {"eos_token_id": config},
        "generation_config.json": {"eos_token_id": generation},
        "tokenizer_config.json": {"eos_token": eos},
    }
    for name, fields in named.items():
        path = folder / name
        path.write_text(json.dumps(json.loads(path.read_text()) | fields))
    chosen = ModelConfig(model=str(folder), device="cpu", chat_template=template)
    return load_engine(chosen, EngineConfig(max_model_len=64, max_num_seqs=1))


NO_END = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"


@pytest.mark.slow
@each(
    ("files", "ends"),
    [
        ({}, {0, 2}),  # the model's template
        ({"template": NO_END}, {0}),
        ({"template": NO_END, "eos": "<|im_end|>"}, {0, 2}),
        ({"template": NO_END, "config": 2}, {0, 2}),
        ({"template": NO_END, "generation": [2, 0]}, {0, 2}),
        ({"template": NO_END, "generation": None, "config": 2}, {0, 2}),
        ({"template": "chatml", "config": 5, "generation": 5}, {0, 2, 5}),
        ({"template": "vicuna", "generation": 5}, {0, 5}),
        ({"template": NO_END, "config": 300}, {0}),  # no special token: a class's default
        ({"template": NO_END, "generation": [0, 1 << 20, -1]}, {0}),
    ],
)
def test_an_answer_ends_at_all_tokens_that_are_named(tmp_path, files, ends):
    assert set(load(tmp_path, **files).info.eos_token_ids) == ends


def test_the_engine_treats_all_of_them_alike(tmp_path):
    engine = load(tmp_path).engine

    def answer(**fields):
        engine.add(request(logit_bias={2: 100.0}, max_tokens=5, temperature=0.0, **fields))
        outputs = []
        while engine.has_work:
            outputs += engine.step()
        return [i for o in outputs for i in o.token_ids], outputs[-1].finish_reason

    assert answer() == ([2], "stop")
    assert answer(ignore_eos=True) == ([2] * 5, "length")
    ids, reason = answer(min_tokens=3)
    assert ids.index(2) == len(ids) - 1 >= 2
    assert reason == "stop"


def test_a_template_is_chosen_by_its_name(tmp_path):
    byte_level().save_pretrained(tmp_path)
    loaded = Tokenizer.load(tmp_path, chat_template="llama3")
    assert loaded.chat_template == named_template("llama3")
    with pytest.raises(ModelLoadError, match="none of the names alpaca, chatml"):
        Tokenizer.load(tmp_path, chat_template="llama33")
