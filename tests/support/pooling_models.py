"""Small checkpoints of models that make vectors and scores, with random weights."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3Model,
)

from tests.support.tokenizers import byte_level

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *(chr(code) for code in range(33, 127))]
WIDTH, CONTEXT = 32, 64


def bert_tokenizer(**fields: Any) -> PreTrainedTokenizerFast:
    """A token for each character, between CLS and SEP."""
    vocabulary = {word: index for index, word in enumerate(WORDS)}
    vocabulary |= {f"##{word}": len(WORDS) + i for i, word in enumerate(WORDS[4:])}
    backend = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, model_input_names=inputs, **names, **fields
    )


def _bert_config(**fields: Any) -> BertConfig:
    return BertConfig(
        vocab_size=2 * len(WORDS),
        hidden_size=WIDTH,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=CONTEXT,
        initializer_range=0.5,
        **fields,
    )


def save_encoder(folder: Path, **fields: Any) -> BertModel:
    """Save a BERT without a head, and return it."""
    torch.manual_seed(0)
    model = BertModel(_bert_config(**fields)).eval()
    model.save_pretrained(folder)
    bert_tokenizer().save_pretrained(folder)
    return model


def save_cross_encoder(folder: Path, **fields: Any) -> BertForSequenceClassification:
    """Save a BERT that scores pairs, and return it."""
    torch.manual_seed(0)
    config = _bert_config(**({"num_labels": 1} | fields))
    model = BertForSequenceClassification(config).eval()
    model.save_pretrained(folder)
    bert_tokenizer().save_pretrained(folder)
    return model


def decoder_config(**fields: Any) -> Qwen3Config:
    """A small Qwen 3."""
    return Qwen3Config(
        hidden_size=WIDTH,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        intermediate_size=48,
        initializer_range=0.5,
        **({"vocab_size": 2 * len(WORDS), "max_position_embeddings": CONTEXT} | fields),
    )


def save_decoder(folder: Path, **fields: Any) -> Qwen3Model:
    """Save a Qwen 3 without a head, and return it."""
    torch.manual_seed(0)
    model = Qwen3Model(decoder_config(**fields)).eval()
    model.save_pretrained(folder)
    bert_tokenizer().save_pretrained(folder)
    return model


PAIR_TEMPLATE = (
    "{% macro of(role) %}{% for m in messages if m.role == role %}{{ m.content }}{% endfor %}"
    "{% endmacro %}<|im_start|>{{ of('system') or 'Any.' }} <Q>{{ of('query') }}"
    "<D>{{ of('document') }}<|im_end|>\n<think>"
)
"""Of the kind of Qwen3-Reranker's."""
TRUE_ID, FALSE_ID = 60, 70
PAIR_CONTEXT = 200


def shown_pair(query: str, document: str, instruction: str = "Any.") -> str:
    """The text that PAIR_TEMPLATE makes."""
    return f"<|im_start|>{instruction} <Q>{query}<D>{document}<|im_end|>\n<think>"


def pair_tokenizer(template: str | None = PAIR_TEMPLATE) -> PreTrainedTokenizerFast:
    """A byte-level tokenizer with a template of pairs."""
    chosen = copy.deepcopy(byte_level())
    chosen.chat_template = template
    return chosen


def save_reranker(
    folder: Path, model: PreTrainedModel | None = None, *, template: str | None = PAIR_TEMPLATE
) -> PreTrainedModel:
    """Save a causal model, if not another one, without sentence-transformers' files."""
    torch.manual_seed(0)
    size = len(pair_tokenizer())
    config = decoder_config(vocab_size=size, max_position_embeddings=PAIR_CONTEXT)
    model = model or Qwen3ForCausalLM(config).eval()
    model.save_pretrained(folder)
    pair_tokenizer(template).save_pretrained(folder)
    return model


def describe_scores(folder: Path, **files: dict[str, Any]) -> None:
    """Write the files that sentence-transformers 6 writes for a causal cross-encoder.

    ``files`` are further fields of ``logits``, ``transformer`` and ``model``.
    """
    kinds = {
        "": "base.modules.transformer.Transformer",
        "1_LogitScore": "cross_encoder.modules.logit_score.LogitScore",
    }
    listed = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.{kind}"}
        for i, (path, kind) in enumerate(kinds.items())
    ]
    way = {"method": "forward", "method_output_name": "logits"}
    transformer = {
        "transformer_task": "text-generation",
        "modality_config": {"text": way, "message": {**way, "format": "flat"}},
        "module_output_name": "causal_logits",
    }
    logits = {"true_token_id": TRUE_ID, "false_token_id": FALSE_ID}
    _write(folder / "modules.json", listed)
    _write(folder / "1_LogitScore" / "config.json", logits | files.get("logits", {}))
    _write(folder / "sentence_bert_config.json", transformer | files.get("transformer", {}))
    named = {"model_type": "CrossEncoder", "prompts": {}, "default_prompt_name": None}
    _write(folder / "config_sentence_transformers.json", named | files.get("model", {}))


def describe(
    folder: Path,
    *,
    pooling: dict[str, Any] | None = None,
    dense: tuple[int, int] | None = None,
    normalizes: bool = False,
    bert: dict[str, Any] | None = None,
    prompts: dict[str, Any] | None = None,
) -> torch.nn.Linear | None:
    """Write sentence-transformers' files beside a model; return the dense layer, if any."""
    modules = [("Transformer", "")]
    linear = None
    if pooling is not None:
        modules.append(("Pooling", "1_Pooling"))
        _write(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": WIDTH, **pooling})
    if dense is not None:
        modules.append(("Dense", "2_Dense"))
        linear = torch.nn.Linear(*dense)
        config = {"in_features": dense[0], "out_features": dense[1], "bias": True}
        function = "torch.nn.modules.activation.Tanh"
        _write(folder / "2_Dense" / "config.json", config | {"activation_function": function})
        state = {f"linear.{name}": value for name, value in linear.state_dict().items()}
        save_file(state, folder / "2_Dense" / "model.safetensors")
    if normalizes:
        modules.append(("Normalize", "3_Normalize"))
    listed = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, path) in enumerate(modules)
    ]
    _write(folder / "modules.json", listed)
    _write(folder / "sentence_bert_config.json", {"max_seq_length": CONTEXT - 2, **(bert or {})})
    if prompts is not None:
        _write(folder / "config_sentence_transformers.json", prompts)
    return linear


def _write(path: Path, value: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")
