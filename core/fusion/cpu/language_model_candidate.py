"""ModelCandidate: prove that a language model is what FusedModel computes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, ClassVar

import torch
from torch import nn

from core.fusion.cpu.decoder import (
    FusedDecoder,
    decoder_pattern,
    fused_decoder,
    proof_attention,
)
from core.fusion.cpu.head import PackedHead
from core.fusion.cpu.language_model import FusedModel
from core.fusion.cpu.norm import FusedNorm
from core.fusion.cpu.tables import has_all_rows, position_table, token_table
from core.fusion.proof import NUM_ROWS, Proof, output_of
from core.fusion.visitor import Attention, ModelPattern, NotRecognisedError
from core.kernels.cpu.bindings import Kernels
from core.kernels.cpu.layer import MAX_PARTS, Matrix
from core.kernels.cpu.model import ModelCall
from core.model.forward import offer_forward


class ModelCandidate:
    """A candidate for the forward pass of a language model."""

    counts: ClassVar[Mapping[str, int]] = {"model": 1}

    def __init__(
        self, model: nn.Module, decoder: FusedDecoder, head: PackedHead, attention: Attention
    ) -> None:
        self._model = model
        self._decoder = decoder
        self._head = head
        self._attention = attention

    def is_equal(self, proof: Proof) -> bool:
        """See Candidate. Compares the logits with those of the output layer alone.

        The proof of the assembled engine compares those of the kernel with transformers'.
        """
        ids = torch.arange(NUM_ROWS)[None]
        batch = {"input_ids": ids, "position_ids": ids + 2, "use_cache": False}
        chosen = torch.tensor([0, NUM_ROWS - 1])
        with proof_attention(self._decoder, self._attention):
            expected = output_of(self._model, **batch, logits_to_keep=chosen)
            logits = getattr(expected, "logits", None)
            if not isinstance(logits, torch.Tensor):
                return False
            logits = logits.clone()  # the output layer has one result at a time
            states = self._decoder(**batch).last_hidden_state
            actual = self._head(states[:, chosen])
        return proof.is_close(logits, actual)

    def install(self) -> None:
        """See Candidate."""
        call = _call(self._model, self._decoder, self._head)
        assert call is not None
        offer_forward(self._model, FusedModel(self._decoder, self._head, call))


def model_patterns(kernels: Kernels, attention: Attention) -> tuple[ModelPattern, ModelPattern]:
    """The decoder, and then the model around it."""
    return partial(decoder_pattern, kernels, attention), partial(_model_pattern, attention)


def _model_pattern(attention: Attention, model: nn.Module) -> Iterator[ModelCandidate]:
    """A candidate for a model whose decoder is fused and whose output layer is packed.

    Raises NotRecognisedError.
    """
    decoder, find_head = fused_decoder(model), getattr(model, "get_output_embeddings", None)
    head = find_head() if callable(find_head) else None
    if decoder is None or not isinstance(head, PackedHead):
        part = "decoder" if decoder is None else "output layer"
        raise NotRecognisedError("model", f"its {part} is not fused")
    if _call(model, decoder, head) is None:
        reason = "its embeddings or last norm are not known, or lack rows for some tokens"
        raise NotRecognisedError("model", reason)
    yield ModelCandidate(model, decoder, head, attention)


def _call(model: Any, decoder: FusedDecoder, head: PackedHead) -> ModelCall | None:
    """Return the arguments that all steps share; None if the kernel does not support the model."""
    tokens, norm = token_table(decoder.embedding), decoder.norm
    positions = position_table(decoder.position_embedding)
    if tokens is None or positions is None or not isinstance(norm, FusedNorm):
        return None
    if head.weight.num_parts > MAX_PARTS:
        return None
    embeddings = decoder.embedding, decoder.position_embedding
    if not has_all_rows(model.config, *embeddings, num_ids=head.weight.num_rows):
        return None
    return ModelCall(
        tokens=tokens,
        positions=positions,
        norm=norm.arguments(),
        head=Matrix.of(head.weight),
        hidden=head.weight.num_columns,
    )
