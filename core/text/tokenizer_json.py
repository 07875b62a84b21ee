"""read_tokenizer: the tokenizer of a folder, as transformers loads it, without transformers.

This follows ``PreTrainedTokenizerBase.from_pretrained`` and ``TokenizersBackend.__init__``.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer

from core.contract.errors import ModelLoadError, first_line
from core.system.checkpoint_files import read_file
from core.text.fast_tokenizer import NAMES, UNBOUNDED, FastTokenizer, add_missing
from core.text.tokenizer_classes import RULES, class_of

_OTHER_KEYS = ("auto_map", "fast_tokenizer_files", "fix_mistral_regex", "init_inputs")
"""Fields of tokenizer_config.json with which transformers does what is not done here."""


class NotReadError(Exception):
    """The tokenizer must be loaded by transformers; the message says why."""


def read_tokenizer(folder: Path) -> FastTokenizer:
    """Read tokenizer.json, the files beside it and the chat templates. Raises NotReadError.

    A broken file is such a reason too: transformers' way tells what is wrong with it.
    """
    try:
        return _read(folder)
    except ModelLoadError as error:
        raise NotReadError(str(error)) from error
    except Exception as error:  # the library raises no narrower one
        raise NotReadError(first_line(error)) from error


def _read(folder: Path) -> FastTokenizer:
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise LookupError("there is no tokenizer.json")
    fields = _object(folder / "tokenizer_config.json")
    kind = _class_of(folder, fields, path)
    if (rules := RULES.get(kind)) is None:
        raise LookupError(f"the rules of {kind} are not known")
    backend = Tokenizer.from_file(str(path))
    values, own, added = _special_tokens(folder, fields, backend)
    values = {**rules.defaults, **values}
    if backend.padding is not None:
        values.setdefault("pad_token", backend.padding["pad_token"])
    slots = {name: values.get(name) for name in NAMES} | own
    named = {name: value for name, value in slots.items() if value is not None}
    others = values.get("extra_special_tokens") or []
    for token in (*named.values(), *others):
        if not isinstance(token, str | AddedToken):
            raise TypeError(f"a special token is {token!r}")
    backend = rules.apply(backend, fields, named)
    add_missing(backend, named, others, [token for _, token in sorted(added.items())])
    if rules.again is not None:
        backend.add_tokens([rules.again(token) for token in (*named.values(), *others)])
    length = fields.get("model_max_length", fields.get("max_len"))
    return FastTokenizer(
        backend,
        named,
        chat_template=_templates(folder, fields),
        model_max_length=UNBOUNDED if length is None else length,
        model_input_names=fields.get("model_input_names", ()),
    )


def _object(path: Path) -> dict[str, Any]:
    """The content of a file, empty without the file. Raises ModelLoadError."""
    content: dict[str, Any] = read_file(path) if path.is_file() else {}
    return content


def _class_of(folder: Path, fields: Mapping[str, Any], path: Path) -> str:
    """The class that transformers chooses. Raises LookupError if that is not known."""
    if keys := [key for key in _OTHER_KEYS if fields.get(key)]:
        raise LookupError(f"tokenizer_config.json has {keys[0]}")
    config = _object(folder / "config.json")
    if "auto_map" in config or "model_name" in config:
        raise LookupError("config.json names code of its own")
    named = fields.get("tokenizer_class")
    if named is None and "tokenizer_class" in config:
        raise LookupError("config.json names the tokenizer class")
    if (folder / "tekken.json").is_file() and find_spec("mistral_common") is not None:
        raise LookupError("mistral_common reads tekken.json")
    return class_of(config.get("model_type"), named, path.read_bytes)


def _special_tokens(
    folder: Path, fields: Mapping[str, Any], backend: Tokenizer
) -> tuple[dict[str, Any], dict[str, Any], dict[int, AddedToken]]:
    """Fields with tokens by ``NAMES``, special tokens with names of their own, added tokens.

    A field may be None, which is not the default of a class.
    """
    values = dict(fields)
    if not values.get("extra_special_tokens") and "additional_special_tokens" in values:
        values["extra_special_tokens"] = values.pop("additional_special_tokens")
    own = _own_names(values, str)
    if (given := values.get("added_tokens_decoder")) is not None:
        added = {int(i): AddedToken(**token) for i, token in given.items()}
    else:
        added = _older_files(folder, values, backend) | backend.get_added_tokens_decoder()
    if isinstance(values.get("extra_special_tokens"), dict):
        own |= values.pop("extra_special_tokens")
    if "additional_special_tokens" in values:
        values.setdefault("extra_special_tokens", values["additional_special_tokens"])
    by_text = {token.content: token for token in added.values()}
    values, own = _tokens(values), _tokens(own)
    for name in NAMES:
        if (value := values.get(name)) is not None:
            values[name] = by_text.get(str(value), value)
    return values, _own_names(values, (str, AddedToken)) | own, added


def _own_names(values: dict[str, Any], kinds: Any) -> dict[str, Any]:
    """Take out the special tokens with names of their own, such as ``image_token``."""
    names = [name for name in values if name.endswith("_token") and name not in NAMES]
    return {name: values.pop(name) for name in names if isinstance(values[name], kinds)}


def _older_files(folder: Path, values: dict[str, Any], backend: Tokenizer) -> dict[int, AddedToken]:
    """Read special_tokens_map.json into ``values``, and return the tokens of added_tokens.json.

    Raises LookupError where added_tokens.json and tokenizer.json give a token or an id differently.
    """
    for name, value in _object(folder / "special_tokens_map.json").items():
        if isinstance(value, dict) and name != "extra_special_tokens":
            value = AddedToken(**{**value, "special": True})  # noqa: PLW2901
        elif isinstance(value, list) and name == "extra_special_tokens":
            raise TypeError("special_tokens_map.json has a list of extra_special_tokens")
        values[name] = value
    others = values.get("extra_special_tokens") or []
    special = {str(value) for name in NAMES if (value := values.get(name))} | {*map(str, others)}
    added = _object(folder / "added_tokens.json")
    for text, index in added.items():
        if backend.token_to_id(text) not in (None, index) or (
            backend.id_to_token(index) not in (None, text)
        ):
            raise LookupError(f"added_tokens.json and tokenizer.json differ on {text!r}")
    return {
        index: AddedToken(text, normalized=text not in special, special=text in special)
        for text, index in added.items()
    }


def _tokens(values: dict[str, Any]) -> dict[str, Any]:
    return {name: _token(value) for name, value in values.items()}


def _token(value: Any) -> Any:
    """A token, or a list of tokens, that may be written as an object with its properties."""
    if isinstance(value, list):
        return [*map(_token, value)]
    if isinstance(value, dict) and value.get("__type") == "AddedToken":
        return AddedToken(**{name: each for name, each in value.items() if name != "__type"})
    return value


def _templates(folder: Path, fields: Mapping[str, Any]) -> Any:
    """The chat template or named ones, from their files or else from tokenizer_config.json."""
    files = {path.stem: path for path in folder.glob("additional_chat_templates/*.jinja")}
    if (path := folder / "chat_template.jinja").is_file():
        files = {"default": path, **files}
    found: Any = {name: path.read_text(encoding="utf-8") for name, path in files.items()}
    if not found:
        found = fields.get("chat_template")
        if isinstance(found, list):
            found = {each["name"]: each["template"] for each in found}
        return found
    return found["default"] if list(found) == ["default"] else found
