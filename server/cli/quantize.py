"""``roseinfer quantize MODEL OUT``: its flags, and the command."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, get_args

import msgspec

from core.contract.config import GgufMix, ModelConfig
from core.contract.errors import ModelLoadError
from core.gguf.names import SUFFIX
from server.settings.engine import MODEL_FLAGS
from server.settings.flags import Commands, Flag, FlagGroup, add_groups, flag_of, named
from server.settings.types import OneOf, path, struct_of


class QuantizeSettings(msgspec.Struct, frozen=True, kw_only=True):
    model: ModelConfig
    out: Path
    type: GgufMix = "q4_k_m"


_FLAGS = named(
    model=Flag("hub id or directory in Hugging Face format", path, is_positional=True),
    out=Flag(
        "the file to write, which ends in .gguf; an existing one is replaced when the new one is "
        "complete",
        path,
        is_positional=True,
    ),
    type=Flag("types of the matrices, by the names of llama.cpp's mixes", OneOf(get_args(GgufMix))),
    tokenizer=flag_of(MODEL_FLAGS, "tokenizer"),
    chat_template=flag_of(MODEL_FLAGS, "chat-template"),
    trust_remote_code=flag_of(MODEL_FLAGS, "trust-remote-code"),
)

QUANTIZE_GROUPS = (FlagGroup("files", _FLAGS, (QuantizeSettings, ModelConfig)),)


def add_quantize_command(commands: Commands) -> None:
    parser = commands.add_parser(
        "quantize",
        help="write a model as a quantised GGUF file",
        description="Write a model as a GGUF file, with its "
        "configuration, tokenizer and chat template.",
    )

    def make(given: dict[str, Any]) -> QuantizeSettings:
        if "out" not in given:
            parser.error(_what_to_type(given.get("model", "")))
        model = struct_of(ModelConfig, given, device="cpu")
        return struct_of(QuantizeSettings, given, model=model, out=Path(given["out"]))

    parser.set_defaults(make_settings=make)
    add_groups(parser, QUANTIZE_GROUPS)


def _what_to_type(name: str) -> str:
    """The message for a command without the file to write. ``name`` is its only one, or empty."""
    if not name:
        return "name the model and the file to write: roseinfer quantize MODEL OUT.gguf"
    if name.endswith(SUFFIX):
        return (
            "name the model before the file to write: roseinfer quantize MODEL OUT.gguf. The "
            "built-in model cannot be written: its tokenizer has no form in GGUF files"
        )
    return "name the file to write behind the model: roseinfer quantize MODEL OUT.gguf"


def run_quantize(settings: QuantizeSettings) -> int:
    """Write the file; return the exit code: 2 if that is not possible."""
    from core.export.gguf_export import export_gguf  # noqa: PLC0415 - imports torch

    try:
        export_gguf(settings.model, settings.out, settings.type)
    except ModelLoadError as error:
        print(f"roseinfer: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0
