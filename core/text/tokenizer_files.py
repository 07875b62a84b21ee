"""load_tokenizer: a tokenizer from a folder, a GGUF file or the hub.

A folder with a tokenizer.json is read without transformers, and so are GGUF files. What
``tokenizer_json`` does not read has transformers' tokenizer.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from core.contract.errors import ModelLoadError, first_line
from core.gguf.file import GgufFile
from core.gguf.names import SUFFIX
from core.system.checkpoint_files import check_files, find_file, folder_of, read_file
from core.text.chat_templates import PAIR_TEMPLATE_NAMES, TEMPLATE_NAMES, named_template

logger = logging.getLogger("roseinfer.core")

_OBJECTS = (
    *("tokenizer_config.json", "special_tokens_map.json"),
    *("added_tokens.json", "tokenizer.json"),
)
"""Files of JSON that hold an object."""

_VOCABULARIES = ("vocab.json", "vocab.txt", "merges.txt")
"""transformers reads them without a tokenizer.json, and takes any line of a text for a token."""

_TEMPLATES = ("chat_template.jinja", "additional_chat_templates/*.jinja")

_USED = ("default", "tool_use")
"""Names of templates that transformers chooses by itself."""

_FILES = ("*token*", "*vocab*", "*.model", "tekken.json")


def load_tokenizer(
    source: str | Path, *, trust_remote_code: bool, chat_template: str | None
) -> Any:
    """Load from a folder, a GGUF file or by a model's public name.

    ``chat_template`` replaces the model's template: a file, Jinja text, or one of
    ``TEMPLATE_NAMES``. Raises ModelLoadError.
    """
    if str(source).endswith(SUFFIX):
        tokenizer = _from_gguf(source)
    else:
        tokenizer = _from_folder(source, trust_remote_code=trust_remote_code)
        if chat_template is None:
            _check_files(source, _TEMPLATES)
            tokenizer.chat_template = tokenizer.chat_template or _processors_template(str(source))
    if not isinstance(tokenizer.model_max_length, int | float):
        raise ModelLoadError(f"model_max_length in the tokenizer of {source} is no number")
    if chat_template is not None:
        tokenizer.chat_template = _read_template(chat_template)
    if tokenizer.chat_template is not None:
        _check_template(tokenizer, source)
    return tokenizer


def _from_gguf(path: str | Path) -> Any:
    from core.gguf.vocabulary.tokenizer import tokenizer_of  # noqa: PLC0415 - imports the tokenizers library
    from core.text.fast_tokenizer import FastTokenizer, add_missing  # noqa: PLC0415

    metadata = GgufFile.open(path).metadata
    try:
        backend, named, template = tokenizer_of(metadata)
        add_missing(backend, named)
        return FastTokenizer(backend, named, chat_template=template)
    except ModelLoadError as error:
        raise ModelLoadError(
            f"The tokenizer of {path} cannot be loaded: {error}; name the model's own with "
            "--tokenizer"
        ) from error


def _from_folder(source: str | Path, *, trust_remote_code: bool) -> Any:
    """Load from a folder or by a model's public name."""
    from core.text.tokenizer_json import NotReadError, read_tokenizer  # noqa: PLC0415 - as above

    if isinstance(source, Path) or source.startswith(("/", ".")):
        source = Path(source)
        _check_folder(source)
    try:
        tokenizer: Any = read_tokenizer(Path(source))
    except NotReadError as error:
        logger.debug("transformers loads the tokenizer of %s: %s", source, error)
        tokenizer = _of_transformers(source, trust_remote_code=trust_remote_code)
    _check_objects(source, is_loaded=True)
    if not Path(source, "tokenizer.json").is_file():
        _check_files(source, _VOCABULARIES)
    return tokenizer


def _of_transformers(source: str | Path, *, trust_remote_code: bool) -> Any:
    from transformers import AutoTokenizer  # noqa: PLC0415 - slow to import

    try:
        return AutoTokenizer.from_pretrained(str(source), trust_remote_code=trust_remote_code)
    except Exception as error:
        _check_files(source, ("config.json", *_OBJECTS, *_FILES, *_VOCABULARIES, *_TEMPLATES))
        _check_objects(source)
        raise ModelLoadError(
            f"The tokenizer of {source} cannot be loaded: {_reason(source, error)}"
        ) from error


def _check_files(source: str | Path, patterns: Iterable[str]) -> None:
    """Raise ModelLoadError for a file of these names that is here and broken."""
    folder = folder_of(str(source))
    if folder is not None:
        found = {file for each in patterns if "*" in each for file in folder.glob(each)}
        names = [name for name in patterns if "*" not in name]
        files = sorted(file for file in found if not file.is_dir())
        check_files([*(folder / name for name in names), *files])


def _check_objects(source: str | Path, *, is_loaded: bool = False) -> None:
    """Raise ModelLoadError for one of ``_OBJECTS`` that is none.

    A directory, or a link to nothing, counts as no file for transformers. What it has loaded is
    checked for no more than that.
    """
    folder = folder_of(str(source))
    for path in (folder / name for name in _OBJECTS) if folder is not None else ():
        if not path.is_file():
            check_files([path])
        elif not is_loaded:
            read_file(path)


def _reason(source: str | Path, error: Exception) -> str:
    """Why transformers cannot load a tokenizer whose files are what their names say."""
    reason, folder = first_line(error).rstrip(","), folder_of(str(source))
    if folder is None:
        return reason
    path = folder / "tokenizer.json"
    if not path.is_file():
        return f"{reason}; there is no {path}"
    from tokenizers import Tokenizer  # noqa: PLC0415 - only for what cannot be loaded

    try:
        Tokenizer.from_file(str(path))
    except Exception as found:  # noqa: BLE001 - the library raises no narrower one
        return f"{path}: {first_line(found)}"
    return reason


def _processors_template(source: str) -> Any:
    """The template that transformers' processors wrote beside the tokenizer, None without one."""
    path = find_file(source, "chat_template.json")
    if path is None:
        return None
    template = read_file(path).get("chat_template")
    with contextlib.suppress(KeyError, TypeError):
        if isinstance(template, list):
            template = {each["name"]: each["template"] for each in template}
    if not isinstance(template, str | dict):
        raise ModelLoadError(f"{path} has no text chat_template")
    return template or None


def _check_folder(folder: Path) -> None:
    """Raise ModelLoadError with a short message if the folder holds no tokenizer."""
    if not folder.is_dir():
        raise ModelLoadError(f"There is no tokenizer in {folder}: no such folder.")
    if not any(file for pattern in _FILES for file in folder.glob(pattern)):
        raise ModelLoadError(f"There is no tokenizer in {folder}: no tokenizer.json or the like.")


def _read_template(given: str) -> str:
    if "{" in given or "\n" in given:
        return given
    named = named_template(given)
    if named is not None:
        return named
    try:
        # here, not where the flag is read: there it may be a template
        return Path(os.path.expanduser(given)).read_text(encoding="utf-8")  # noqa: PTH111
    except (OSError, UnicodeDecodeError) as error:
        raise ModelLoadError(
            f"The chat template {given} cannot be read, and is none of the names "
            f"{', '.join((*TEMPLATE_NAMES, *PAIR_TEMPLATE_NAMES))}: {error}"
        ) from error


def _check_template(tokenizer: Any, source: str | Path) -> None:
    """Compile what is used, so that errors are found at load and the first request is fast."""
    from jinja2 import TemplateSyntaxError  # noqa: PLC0415 - slow to import

    given = tokenizer.chat_template
    templates = given if isinstance(given, dict) else {"default": given}
    if not all(isinstance(template, str) for template in templates.values()):
        raise ModelLoadError(f"The chat template of {source} is no text")
    for template in filter(None, map(templates.get, _USED)):
        try:
            tokenizer.apply_chat_template(
                [{"role": "user", "content": ""}], chat_template=template, tokenize=False
            )
        except TemplateSyntaxError as error:
            raise ModelLoadError(
                f"The chat template is not valid Jinja: {error.message} (line {error.lineno})."
            ) from error
        except Exception:  # noqa: BLE001, S110 - a template may refuse this conversation
            pass
