"""EngineInfo: the facts about a loaded engine."""

from __future__ import annotations

import msgspec


class EngineInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about a loaded engine for a front end. Counts are in tokens.

    ``vocab_size`` is the width of the logits. Ids in prompts must be below ``num_token_ids``, which
    is smaller if the embedding has fewer rows. ``architecture`` is the configuration's
    ``model_type``.
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
