"""Tokenizers that are read without transformers are those that transformers loads."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import transformers
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from transformers import CONFIG_MAPPING, AutoTokenizer
from transformers.models.auto import tokenization_auto

from core import builtin_model
from core.contract.errors import InvalidRequest
from core.models.families import FAMILIES
from core.text import tokenizer_classes
from core.text.tokenizer import Tokenizer
from core.text.tokenizer_classes import BASE, RULES
from core.text.tokenizer_json import NotReadError, read_tokenizer
from tests.support.pooling_models import bert_tokenizer, pair_tokenizer
from tests.support.same_tokenizers import check_same, check_text, state_of
from tests.support.tokenizers import (
    byte_fallback,
    byte_level,
    metaspace,
    pure_python,
    word_piece,
)

BUILDERS = (byte_level, byte_fallback, metaspace, word_piece, bert_tokenizer, pair_tokenizer)
CLASSES = sorted(RULES.keys() - {BASE})
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<unk>", "<s>", "</s>", "<tool_call>", "the")
NAMES = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "image_token")


IS_NEW = version("transformers") >= "5.24"


def has_changed(written: dict[str, Any]) -> bool:
    """Whether releases before 5.24 load another tokenizer: not the file's, but Llama's."""
    kind = (written["tokenizer_config"] or {}).get("tokenizer_class", "")
    return kind.startswith("LlamaTokenizer")


def write(folder: Path, **files: Any) -> Path:
    """Write JSON files; those that are None are removed, fields of objects replace others."""
    for name, content in files.items():
        path = folder / f"{name}.json"
        if content is None:
            path.unlink(missing_ok=True)
        else:
            path.write_text(json.dumps(content))
    return folder


def fields_of(folder: Path, name: str = "tokenizer_config") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / f"{name}.json").read_text())
    return found


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Those of all tokenizers at hand."""
    made = [builtin_model.path()]
    for builder in BUILDERS:
        made.append(tmp_path_factory.mktemp(builder.__name__))
        builder().save_pretrained(made[-1])
    return made + [saved_class(tmp_path_factory.mktemp(name), name) for name in CLASSES]


def saved_class(folder: Path, name: str) -> Path:
    """A tokenizer of a class, saved by transformers."""
    is_of_bytes = name not in ("GemmaTokenizer", "LlamaTokenizer")
    model = state_of(byte_level() if is_of_bytes else byte_fallback())["model"]
    merges = [tuple(pair) for pair in model["merges"]]
    getattr(transformers, name)(vocab=model["vocab"], merges=merges).save_pretrained(folder)
    return folder


# -- classes ---------------------------------------------------------------------------------


@pytest.mark.skipif(not IS_NEW, reason="the table is that of the newest release")
def test_types_have_the_classes_of_transformers():
    """A new row of a family must be classed, and so must what a release changes."""
    registered = {t: tokenization_auto.TOKENIZER_MAPPING_NAMES.get(t) for t in FAMILIES}
    forced = tokenization_auto.MODELS_WITH_INCORRECT_HUB_TOKENIZER_CLASS
    assert registered == tokenizer_classes.REGISTERED
    assert {t for t in FAMILIES if t in forced and registered[t] != BASE} == (
        tokenizer_classes.FORCED
    )


# -- tokenizers ------------------------------------------------------------------------------


def test_all_tokenizers_at_hand_are_those_of_transformers(folders):
    for folder in folders:
        check_same(folder)


def test_a_tokenizer_reads_the_same_in_both(pairs):
    """What ``Tokenizer`` makes of them."""
    for pair in pairs:
        ours, theirs = map(Tokenizer, pair)
        assert len(ours) == len(theirs)
        for token_id in range(len(ours)):
            assert ours.token_bytes(token_id) == theirs.token_bytes(token_id)
        assert ours.vocabulary.is_exact == theirs.vocabulary.is_exact
        for name in (
            *("special_ids", "end_token_ids", "max_bytes_per_token", "takes_blanks"),
            *("model_max_length", "chat_template", "tool_template"),
        ):
            assert getattr(ours, name) == getattr(theirs, name)
        assert ours.fim_token_ids() == theirs.fim_token_ids()
        ids, start = ours.first_of_pairs("the fox").with_second("a fox")
        assert (ids, start) == theirs.first_of_pairs("the fox").with_second("a fox")
        if ours.chat_template is not None:
            talk = [{"role": "user", "content": "hi <|im_end|>"}]
            assert ours.encode_chat(talk) == theirs.encode_chat(talk)


def test_arguments_of_transformers_are_no_variables_of_templates():
    tokenizer = Tokenizer.load(builtin_model.path())
    for name in ("padding", "tokenize", "messages", "return_dict"):
        with pytest.raises(InvalidRequest, match=name):
            tokenizer.render_chat([{"role": "user", "content": "a"}], template_kwargs={name: 1})


@given(text=st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=40))
@settings(max_examples=60, deadline=None)
def test_any_text_has_the_ids_of_transformers(pairs, text):
    for ours, theirs in pairs:
        check_text(ours, theirs, text)


@pytest.fixture(scope="module")
def pairs(folders: list[Path]) -> list[tuple[Any, Any]]:
    return [(read_tokenizer(path), AutoTokenizer.from_pretrained(str(path))) for path in folders]


def tokens() -> st.SearchStrategy[Any]:
    """A token as files write it."""
    text = st.sampled_from((*SPECIAL, "<new>"))
    flags = {name: st.booleans() for name in ("lstrip", "rstrip", "normalized", "special")}
    written = st.fixed_dictionaries({"content": text, "__type": st.just("AddedToken"), **flags})
    return text | written


@st.composite
def files(draw: st.DrawFn) -> dict[str, Any]:
    """Files beside a tokenizer.json, of all forms and ages."""
    optional: dict[str, Any] = dict.fromkeys(NAMES, st.none() | tokens())
    name = draw(st.sampled_from(["additional_special_tokens", "extra_special_tokens"]))
    optional[name] = st.lists(tokens(), max_size=2)
    if name == "extra_special_tokens":
        optional[name] |= st.just({"video_token": "<video>", "sep_token": "the"})
    optional["add_prefix_space"] = st.booleans()
    optional["legacy"] = st.booleans() | st.none()
    optional["model_max_length"] = st.sampled_from([None, 5, 10**30])
    optional["tokenizer_class"] = st.sampled_from(
        [*CLASSES, *(f"{name}Fast" for name in CLASSES), BASE, "PreTrainedTokenizerFast"]
    )
    flags = {name: st.booleans() for name in ("lstrip", "normalized", "special")}
    added = st.fixed_dictionaries({"content": st.sampled_from((*SPECIAL, "<new>")), **flags})
    optional["added_tokens_decoder"] = st.dictionaries(st.sampled_from(["1", "300"]), added)
    config = draw(st.fixed_dictionaries({}, optional=optional))
    several = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(SPECIAL), max_size=3)
    pad = {"strategy": "BatchLongest", "direction": "Right", "pad_to_multiple_of": None}
    pad |= {"pad_id": 1, "pad_type_id": 0, "pad_token": "<unk>"}
    bert = {"type": "BertProcessing", "sep": ["</s>", 2], "cls": ["<s>", 1]}
    changed = {"padding": st.just(pad), "post_processor": st.sampled_from([None, bert])}
    return {
        "tokenizer": draw(st.fixed_dictionaries({}, optional=changed)),
        "tokenizer_config": draw(st.none() | st.just(config)),
        "special_tokens_map": draw(st.none() | several),
        "added_tokens": draw(st.sampled_from([None, {"<new>": 400, "<s>": 401}])),
        "config": draw(
            st.none()
            | st.sampled_from([t for t in sorted(FAMILIES) if t in CONFIG_MAPPING]).map(
                lambda t: {"model_type": t}
            )
        ),
    }


@pytest.mark.parametrize("builder", [byte_level, byte_fallback, metaspace])
@given(written=files())
@settings(max_examples=80, deadline=None)
def test_files_of_any_form_are_read_as_transformers_reads_them(tmp_path_factory, builder, written):
    folder = tmp_path_factory.mktemp("any")
    builder().save_pretrained(folder)
    assume(IS_NEW or not has_changed(written))
    write(folder, **written | {"tokenizer": fields_of(folder, "tokenizer") | written["tokenizer"]})
    try:
        read_tokenizer(folder)
    except NotReadError:
        return  # transformers' way, which may be an error
    check_same(folder)


def test_what_is_not_read_goes_transformers_way(tmp_path, caplog):
    byte_level().save_pretrained(tmp_path)
    expected = byte_level().encode("the fox")
    fields = fields_of(tmp_path)
    none = {"config": None, "added_tokens": None}
    for written, reason in (
        ({"added_tokens": {"<new>": 0}}, "added_tokens.json and tokenizer.json differ on '<new>'"),
        ({"added_tokens": {"<|im_end|>": 9}}, "tokenizer.json differ on"),
        ({"config": {"model_type": "bert"}}, "no rule says which tokenizer class models of type"),
        ({"config": {"auto_map": {}}}, "config.json names code of its own"),
        ({"config": {"tokenizer_class": "X"}, "tokenizer_config": {}}, "config.json names the tok"),
        ({"tokenizer_config": fields | {"tokenizer_class": "T5Tokenizer"}}, "the rules of T5Tok"),
        ({"tokenizer_config": fields | {"fix_mistral_regex": True}}, "has fix_mistral_regex"),
    ):
        folder = write(tmp_path, **none | {"tokenizer_config": fields} | written)
        with pytest.raises(NotReadError, match=reason):
            read_tokenizer(folder)
    with caplog.at_level(logging.DEBUG, "roseinfer.core"):
        tokenizer = Tokenizer.load(folder)
    assert tokenizer.encode("the fox", add_special_tokens=True) == expected
    assert f"transformers loads the tokenizer of {folder}: tokenizer_config.json" in caplog.text
    pure_python().save_pretrained(folder := tmp_path / "bytes")
    with pytest.raises(NotReadError, match=r"there is no tokenizer\.json"):
        read_tokenizer(folder)


def test_the_text_side_starts_without_transformers():
    program = (
        "import sys\n"
        "from core import builtin_model\n"
        "from core.grammar.matcher.matchers import MatcherFactory, TokenTable\n"
        "from core.text.tokenizer import Tokenizer\n"
        "tokenizer = Tokenizer.load(str(builtin_model.path()))\n"
        "ids = tokenizer.encode_chat([{'role': 'user', 'content': 'hi'}])\n"
        "ends = tuple(tokenizer.end_token_ids)\n"
        "table = TokenTable.of(tokenizer.vocabulary, ends, len(tokenizer))\n"
        "assert ids and ends and MatcherFactory(table).failed_matcher()\n"
        "print([name for name in ('torch', 'transformers') if name in sys.modules])\n"
    )
    done = subprocess.run(  # noqa: S603 - our own
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("in_config", "own", "others"),
    [
        (None, None, {}),
        ("C", None, {}),
        ("C", "J é\r\n", {}),
        ([{"name": "default", "template": "D"}, {"name": "rag", "template": "R"}], None, {}),
        ({"default": "D", "tool_use": "T"}, None, {}),
        ("C", "J", {"tool_use": "T", "a.b": "B"}),
        ("C", "J", {"default": "D"}),
        ("C", None, {"tool_use": "T"}),
    ],
)
def test_templates_are_found_where_transformers_finds_them(tmp_path, in_config, own, others):
    byte_level().save_pretrained(tmp_path)
    write(tmp_path, tokenizer_config=fields_of(tmp_path) | {"chat_template": in_config})
    (tmp_path / "chat_template.jinja").unlink()
    if own is not None:
        (tmp_path / "chat_template.jinja").write_text(own, encoding="utf-8", newline="")
    for name, template in others.items():
        path = tmp_path / "additional_chat_templates" / f"{name}.jinja"
        path.parent.mkdir(exist_ok=True)
        path.write_text(template, encoding="utf-8")
    check_same(tmp_path)
