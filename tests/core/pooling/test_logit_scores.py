"""Causal rerankers: scores from logits, against transformers with the pair written out.

sentence-transformers 6.2 gives the same scores for these files within 1e-5.
"""

import json

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    BloomConfig,
    GPT2Config,
    MambaConfig,
    Qwen3ForSequenceClassification,
)

from core.assembly.load import load
from core.contract.config import EngineConfig, ModelConfig
from core.contract.errors import ModelLoadError
from core.contract.messages import EngineRequest
from core.contract.params import SamplingParams
from core.text.message_template import encode_shown
from tests.support.pooling_models import (
    FALSE_ID,
    PAIR_CONTEXT,
    TRUE_ID,
    decoder_config,
    describe_scores,
    pair_tokenizer,
    save_cross_encoder,
    save_encoder,
    save_reranker,
    shown_pair,
)

PAIRS = [("who", "the fox"), ("who", "a"), ("what is it?", "jumps  over\nthe dog. "), ("q", "")]


def loaded(folder, **model):
    return load(ModelConfig(model=str(folder), device="cpu", **model), EngineConfig())


def scores(pooler, instruction=""):
    """Of PAIRS, in batches."""
    template = pooler.info.pooling.template
    for i, pair in enumerate(PAIRS):
        ids = encode_shown(pooler.tokenizer, template, pair, instruction)
        params = SamplingParams(max_tokens=0)
        pooler.engine.add(
            EngineRequest(request_id=str(i), prompt_token_ids=tuple(ids), params=params)
        )
    found = {}
    while pooler.engine.has_work:
        found |= {output.request_id: output.vector for output in pooler.engine.step()}
    return [float(np.frombuffer(found[str(i)], "<f4")[0]) for i in range(len(PAIRS))]


def last_logits(model, text):
    """[size] after a text alone, by transformers."""
    ids = pair_tokenizer()(text, add_special_tokens=False, return_tensors="pt")["input_ids"]
    with torch.inference_mode():
        logits = model(input_ids=ids).logits
    return logits[0, -1] if logits.dim() == 3 else logits[0]


def check(pooler, expected, **options):
    assert scores(pooler, **options) == pytest.approx([float(one) for one in expected], abs=1e-5)


def differences(model, shown=shown_pair):
    logits = [last_logits(model, shown(*pair)) for pair in PAIRS]
    return [one[TRUE_ID] - one[FALSE_ID] for one in logits]


IDENTITY = {"activation_fn": "torch.nn.modules.linear.Identity"}


def test_a_score_is_the_difference_of_two_logits(tmp_path):
    model = save_reranker(tmp_path)
    describe_scores(tmp_path, model=IDENTITY)
    pooler = loaded(tmp_path)
    assert (pooler.info.pooling.task, pooler.info.max_model_len) == ("score", PAIR_CONTEXT)
    check(pooler, differences(model))


def test_the_activation_is_a_sigmoid_unless_named(tmp_path):
    model = save_reranker(tmp_path)
    describe_scores(tmp_path)
    check(loaded(tmp_path), map(torch.sigmoid, differences(model)))


def test_one_token_alone_may_make_a_score(tmp_path):
    model = save_reranker(tmp_path)
    describe_scores(tmp_path, model=IDENTITY, logits={"false_token_id": None})
    check(loaded(tmp_path), [last_logits(model, shown_pair(*pair))[TRUE_ID] for pair in PAIRS])


ENDS = {"vocab_size": len(pair_tokenizer()), "bos_token_id": 0, "eos_token_id": 0}
POSITIONS = {
    "learned": GPT2Config(**ENDS, n_positions=PAIR_CONTEXT, n_embd=32, n_layer=2, n_head=4),
    "of attention": BloomConfig(**ENDS, hidden_size=32, n_layer=2, n_head=4),
    "none": MambaConfig(**ENDS, hidden_size=32, num_hidden_layers=2),
}


@pytest.mark.parametrize("name", POSITIONS)
def test_padding_has_no_effect_on_any_kind_of_positions(tmp_path, name):
    torch.manual_seed(1)
    config = POSITIONS[name]
    config.initializer_range = 0.5
    model = save_reranker(tmp_path, AutoModelForCausalLM.from_config(config).eval())
    describe_scores(tmp_path, model=IDENTITY)
    check(loaded(tmp_path), differences(model))


def test_an_instruction_is_a_message_before_the_pair(tmp_path):
    model = save_reranker(tmp_path)
    describe_scores(tmp_path, model=IDENTITY)
    pooler = loaded(tmp_path)
    assert pooler.info.pooling.template.takes_instruction
    expected = differences(model, lambda *pair: shown_pair(*pair, "Cats."))
    check(pooler, expected, instruction="Cats.")


@pytest.mark.parametrize("form", ["structured", "auto"])
def test_contents_may_be_parts_and_a_template_have_options(tmp_path, form):
    template = (
        "{% for m in messages %}{{ m.role }}:{% for c in m.content if c.type == 'text' %}"
        "{{ c.text }}{% endfor %};{% endfor %}{{ mood }}{% if add_generation_prompt %}>{% endif %}"
    )
    model = save_reranker(tmp_path, template=template)
    message = {"method": "forward", "method_output_name": "logits", "format": form}
    options = {"add_generation_prompt": True, "mood": "calm", "restore_suffix": True}
    transformer = {
        "modality_config": {"message": message},
        "processing_kwargs": {"chat_template": options},
    }
    describe_scores(tmp_path, model=IDENTITY, transformer=transformer)
    check(loaded(tmp_path), differences(model, lambda q, d: f"query:{q};document:{d};calm>"))


def test_a_classifier_may_have_a_template_of_pairs(tmp_path):
    torch.manual_seed(2)
    fields = {"vocab_size": len(pair_tokenizer()), "max_position_embeddings": PAIR_CONTEXT}
    config = decoder_config(num_labels=1, pad_token_id=0, **fields)
    model = save_reranker(tmp_path, Qwen3ForSequenceClassification(config).eval())
    expected = [torch.sigmoid(last_logits(model, shown_pair(*pair))[0]) for pair in PAIRS]
    check(loaded(tmp_path), expected)


@pytest.mark.parametrize(
    "template", [None, "{% for m in messages if m.role == 'user' %}x{% endfor %}"]
)
def test_a_classifier_without_such_a_template_reads_two_texts(tmp_path, template):
    save_cross_encoder(tmp_path)
    pair_tokenizer(template).save_pretrained(tmp_path)
    assert loaded(tmp_path).info.pooling.template is None


def test_a_plain_causal_model_needs_its_tokens_named(tmp_path):
    model = save_reranker(tmp_path)
    with pytest.raises(ModelLoadError, match="--score-tokens, as yes,no"):
        loaded(tmp_path, task="score")
    with pytest.raises(ModelLoadError, match="'yes' is no token"):
        loaded(tmp_path, task="score", score_tokens=("yes", "n"))
    words = tuple(pair_tokenizer().convert_ids_to_tokens([TRUE_ID, FALSE_ID]))
    pooler = loaded(tmp_path, task="score", score_tokens=words)
    check(pooler, map(torch.sigmoid, differences(model)))


def test_a_template_that_drops_the_pair_is_refused(tmp_path):
    model = save_reranker(
        tmp_path, template="{% for m in messages if m.role == 'user' %}{% endfor %}"
    )
    describe_scores(tmp_path, model=IDENTITY)
    with pytest.raises(ModelLoadError, match=r"does not show a query .*qwen3-reranker"):
        loaded(tmp_path)
    shown = (
        "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query "
        'and the Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n'
        "<|im_start|>user\n<Instruct>: Given a web search query, retrieve relevant passages that "
        "answer the query\n<Query>: {}\n<Document>: {}<|im_end|>\n<|im_start|>assistant\n"
        "<think>\n\n</think>\n\n"
    )
    check(loaded(tmp_path, chat_template="qwen3-reranker"), differences(model, shown.format))


@pytest.mark.parametrize(
    ("logits", "says"),
    [
        ({"true_token_id": None}, "no true_token_id"),
        ({"true_token_id": "yes"}, "no true_token_id"),
        ({"false_token_id": 10**6}, "token 1000000"),
    ],
)
def test_tokens_that_are_none_are_an_error_at_load(tmp_path, logits, says):
    save_reranker(tmp_path)
    describe_scores(tmp_path, logits=logits)
    with pytest.raises(ModelLoadError, match=says):
        loaded(tmp_path)


def test_other_modules_of_a_cross_encoder_are_an_error_at_load(tmp_path):
    save_cross_encoder(tmp_path)
    listed = [{"type": "a.Transformer", "path": ""}, {"type": "a.Dense", "path": "1_Dense"}]
    (tmp_path / "modules.json").write_text(json.dumps(listed))
    with pytest.raises(ModelLoadError, match="Dense"):
        loaded(tmp_path)


@pytest.mark.parametrize(
    ("save", "task", "flag", "value"),
    [
        (save_encoder, "embed", "score_tokens", ("yes", "no")),
        (save_cross_encoder, "score", "score_tokens", ("yes", "no")),
        (save_cross_encoder, "score", "pooling", "mean"),
        (save_cross_encoder, "score", "matryoshka_dimensions", ()),
        (save_reranker, "generate", "pooling", "last"),
    ],
)
def test_flags_without_effect_are_refused(tmp_path, save, task, flag, value):
    save(tmp_path)
    with pytest.raises(ModelLoadError, match=f"--{flag.replace('_', '-')} is for"):
        loaded(tmp_path, task=task, **{flag: value})
