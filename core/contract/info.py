"""EngineInfo: the facts about a loaded engine."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from core.contract.config import Task


class MessageTemplate(msgspec.Struct, frozen=True, kw_only=True):
    """The form in which the chat template shows a text, as a message, or a pair, as two.

    With ``has_parts`` the contents are lists of parts, else texts. An instruction, if the template
    shows one, is a message of the role system before them. ``options`` are further variables of
    the template.
    """

    has_parts: bool = False
    takes_instruction: bool = False
    adds_generation_prompt: bool = False
    options: dict[str, Any] = {}


class PoolingInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about a model that makes a vector, or a score, of a text.

    ``size`` is the vectors' length. They may be cut to ``sizes``; empty: to any length, None: to
    none. ``poolings`` say how a vector is made of a text's states; there are none for scores.
    ``prompts`` are texts that begin an input, by name. ``template`` is None if the model reads
    texts, and pairs of them, as its tokenizer makes tokens of them.
    """

    task: Task
    size: int
    sizes: tuple[int, ...] | None = None
    poolings: tuple[str, ...] = ()
    is_normalized: bool = False
    lowercases: bool = False
    prompts: dict[str, str] = {}
    default_prompt: str | None = None
    template: MessageTemplate | None = None


PathName: TypeAlias = Literal[
    "whole model in one call",
    "module by module",
    "transformers' modules",
]
"""Ways to compute a step, the fastest first."""

ONE_CALL: PathName = "whole model in one call"


class ModelPath(msgspec.Struct, frozen=True, kw_only=True):
    """The way in which the model's steps are computed.

    ``expected`` is the path that the model's family has on such a device, or ``name``; if they
    differ, ``slower_because`` says why.
    """

    name: PathName = "transformers' modules"
    expected: PathName = "transformers' modules"
    slower_because: str = ""

    def __str__(self) -> str:
        if not self.slower_because:
            return self.name
        return f"{self.name}, not {self.expected}: {self.slower_because}"


class EngineInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about a loaded engine for a front end. Counts are in tokens.

    ``vocab_size`` is the width of the logits. Ids in prompts must be below ``num_token_ids``, which
    is smaller if the embedding has fewer rows. ``architecture`` is the configuration's
    ``model_type``. ``pooling`` is None if the model generates. ``computation`` says in words what
    computes, on a CPU with ``num_threads``; ``path`` says by how many calls.
    """

    max_model_len: int
    max_num_seqs: int
    vocab_size: int
    num_token_ids: int
    num_kv_tokens: int
    dtype: str
    device: str
    architecture: str = ""
    default_sampling: dict[str, float] = {}
    eos_token_ids: tuple[int, ...] = ()
    pooling: PoolingInfo | None = None
    computation: str = ""
    path: ModelPath = ModelPath()
    num_threads: int = 0
