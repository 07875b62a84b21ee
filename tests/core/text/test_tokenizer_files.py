"""The files of a tokenizer: broken ones are named, and templates of processors are read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from transformers import BertTokenizerFast

from core.contract.errors import ModelLoadError
from core.text.tokenizer import Tokenizer
from tests.support.damaged import PAGE, POINTER
from tests.support.tokenizers import byte_level

MESSAGES = [{"role": "user", "content": "hi"}]
OTHER = "{% for m in messages %}[{{ m.content }}]{% endfor %}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A tokenizer without a template."""
    byte_level().save_pretrained(tmp_path)
    (tmp_path / "chat_template.jinja").unlink()
    assert Tokenizer.load(tmp_path).chat_template is None
    return tmp_path


def refusal(folder: Path) -> str:
    with pytest.raises(ModelLoadError) as caught:
        Tokenizer.load(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja"])
@pytest.mark.parametrize(("content", "said"), [(POINTER, "`git lfs pull`"), (PAGE, "web page")])
def test_a_file_that_is_another_is_named(
    folder: Path, name: str, content: bytes, said: str
) -> None:
    (folder / name).write_bytes(content)
    assert refusal(folder).startswith(f"{folder / name} ")
    assert said in refusal(folder)


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
def test_a_file_that_is_cut_off_is_named(folder: Path, name: str) -> None:
    path = folder / name
    path.write_bytes(path.read_bytes()[:-9])
    assert refusal(folder).startswith(f"{path} is not valid JSON: ")
    path.write_bytes(b"")
    assert refusal(folder) == f"{path} is empty"


@pytest.mark.parametrize("name", ["special_tokens_map.json", "added_tokens.json"])
def test_a_file_of_older_versions_is_named(folder: Path, name: str) -> None:
    (folder / "tokenizer_config.json").unlink()
    (folder / name).write_text("{bad")
    assert refusal(folder).startswith(f"{folder / name} is not valid JSON: ")


NAMES = [
    *("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "tokenizer.json"),
    *("chat_template.jinja", "chat_template.json"),
]


@pytest.mark.parametrize("name", NAMES)
def test_a_link_to_nothing_and_a_folder_are_named(folder: Path, name: str) -> None:
    """transformers counts them as no file."""
    path = folder / name
    path.unlink(missing_ok=True)
    path.symlink_to("gone")
    assert refusal(folder) == f"{path} is a link to a file that is not there"
    path.unlink()
    path.mkdir()
    assert refusal(folder) == f"{path} cannot be read: Is a directory"


@pytest.mark.parametrize("name", NAMES[:4])
@pytest.mark.parametrize("content", ["[1]", "null", '"x"'])
def test_json_of_another_kind_is_named(folder: Path, name: str, content: str) -> None:
    (folder / name).write_text(content)
    assert refusal(folder) == f"{folder / name} holds no JSON object"


def test_what_the_library_says_of_a_tokenizer_is_told(folder: Path) -> None:
    path = folder / "tokenizer.json"
    path.write_text("{}")
    assert f"cannot be loaded: {path}: Model missing" in refusal(folder)
    path.unlink()
    assert refusal(folder).endswith(f"; there is no {path}")


def test_what_is_not_read_beside_a_tokenizer_may_be_broken(folder: Path) -> None:
    (folder / "vocab.json").symlink_to("gone")
    (folder / "merges.txt").mkdir()
    (folder / "tokens").mkdir()
    assert Tokenizer.load(folder).vocabulary


@pytest.mark.parametrize("template", [3, {"default": 3}, [{"name": "default", "template": 3}]])
def test_a_template_is_a_text(folder: Path, template: object) -> None:
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"chat_template": template}))
    assert refusal(folder) == f"The chat template of {folder} is no text"


def test_the_longest_text_is_a_number(folder: Path) -> None:
    path = folder / "tokenizer_config.json"
    for value in ("many", [1], {}):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"model_max_length": value}))
        assert refusal(folder) == f"model_max_length in the tokenizer of {folder} is no number"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"model_max_length": -1}))
    assert Tokenizer.load(folder).model_max_length is None


def test_the_template_for_tools_is_compiled_at_load(folder: Path) -> None:
    templates = {"default": OTHER, "rag": "{% is not read %}"}
    path = folder / "chat_template.json"
    path.write_text(json.dumps({"chat_template": templates}))
    assert Tokenizer.load(folder).chat_template is not None
    path.write_text(json.dumps({"chat_template": {**templates, "tool_use": "{% if %}"}}))
    assert refusal(folder).startswith("The chat template is not valid Jinja")


def test_a_pointer_is_no_vocabulary(tmp_path: Path) -> None:
    """transformers would take its three lines for tokens."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b"]
    BertTokenizerFast(vocab={word: i for i, word in enumerate(words)}).save_pretrained(tmp_path)
    (tmp_path / "vocab.txt").write_bytes(POINTER)
    assert Tokenizer.load(tmp_path).vocabulary  # it is not read beside a tokenizer.json
    (tmp_path / "tokenizer.json").unlink()
    assert refusal(tmp_path).startswith(f"{tmp_path / 'vocab.txt'} is a pointer of Git LFS")


def test_a_processors_template_is_read(folder: Path) -> None:
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": OTHER}))
    assert Tokenizer.load(folder).render_chat(MESSAGES) == "[hi]"


def test_a_processors_named_templates_are_read(folder: Path) -> None:
    named = [{"name": "default", "template": OTHER}, {"name": "tool_use", "template": "tools"}]
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": named}))
    loaded = Tokenizer.load(folder)
    assert loaded.render_chat(MESSAGES) == "[hi]"
    assert loaded.tool_template == "tools"


@pytest.mark.parametrize("place", ["chat_template.jinja", "tokenizer_config.json"])
def test_the_tokenizers_own_template_goes_first(folder: Path, place: str) -> None:
    """As transformers' tokenizers have it, which know no other."""
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": "processor"}))
    if place.endswith(".jinja"):
        (folder / place).write_text(OTHER)
    else:
        fields = json.loads((folder / place).read_text())
        (folder / place).write_text(json.dumps(fields | {"chat_template": OTHER}))
    assert Tokenizer.load(folder).render_chat(MESSAGES) == "[hi]"


@pytest.mark.parametrize(
    "content", ["{bad", "[]", "{}", '{"chat_template": 3}', '{"chat_template": [{}]}', ""]
)
def test_a_processors_template_that_is_none_is_named(folder: Path, content: str) -> None:
    path = folder / "chat_template.json"
    path.write_text(content)
    assert refusal(folder).startswith(f"{path} ")


def test_the_operators_template_needs_no_other(folder: Path) -> None:
    (folder / "chat_template.json").write_text("{bad")
    (folder / "chat_template.jinja").write_bytes(POINTER)
    assert Tokenizer.load(folder, chat_template=OTHER).render_chat(MESSAGES) == "[hi]"
