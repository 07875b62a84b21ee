"""LayerCandidate: prove that a fused decoder layer computes what the original does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import torch
from torch import nn

from core.fusion.cpu.layer import ROTATION, FusedLayer
from core.fusion.kinds import kind_of
from core.fusion.patterns import layer_names
from core.fusion.proof import NUM_ROWS, Proof, left_out, no_attention, output_of, plain_attention
from core.fusion.visitor import AttentionSite, Place
from core.model.attention_interface import ModuleAttention, routed
from core.model.without_products import WithoutProducts


class _Reached(Exception):
    """A layer has come to its second norm."""


class _Pass(NamedTuple):
    """The residual stream before the second norm, and after the layer if it went so far."""

    before: torch.Tensor
    after: torch.Tensor


class LayerCandidate:
    """A candidate for a whole decoder layer."""

    counts: ClassVar[Mapping[str, int]] = {"layer": 1}

    def __init__(self, place: Place, site: AttentionSite, fused: FusedLayer) -> None:
        self._place = place
        self._site = site
        self._fused = fused

    def is_equal(self, proof: Proof) -> bool:
        """See Candidate.

        The attention half and what the feed-forward block adds are compared separately: an error
        of the smaller one would not show in the sum. RoPE may rotate only half of each head: if
        the original accepts such angles, both have to agree on them too. The feed-forward block is
        compared without attention: then both get the same input, and no rounding error before it
        changes which experts serve a token.
        """
        site = self._site
        kind = (kind_of(self._place.module, attention=site.attention), site.spec)
        return proof.once(kind, lambda: self._is_equal(proof))

    def _is_equal(self, proof: Proof) -> bool:
        spec = self._site.spec
        [original] = proof.references([self._place.module])
        x = proof.random(1, NUM_ROWS, self._fused.hidden_size)
        known = []
        for width in (spec.head_dim, spec.head_dim // 2) if self._fused.applies_rope else (0,):
            angles = [proof.random(1, NUM_ROWS, width) for _ in range(2)]
            rope: dict[str, Any] = {ROTATION: tuple(angles)} if width else {}
            with WithoutProducts():  # angles are refused after the products of attention
                takes_angles = self._original(original, x, rope, no_attention(spec)) is not None
            if takes_angles:
                known.append(
                    self._attends_equally(proof, original, x, rope)
                    and self._feeds_equally(proof, original, x, rope)
                )
        return bool(known) and all(known)

    def _attends_equally(
        self, proof: Proof, original: nn.Module, x: torch.Tensor, rope: dict[str, Any]
    ) -> bool:
        """Compare the attention halves. The original's feed-forward block is not computed."""
        attention = plain_attention(self._site.spec)
        expected = self._original(original, x, rope, attention, is_half=True)
        actual = self._replacement(x, rope, attention)
        return expected is not None and proof.is_close(
            expected.before - x, actual.before - x, is_product=True
        )

    def _feeds_equally(
        self, proof: Proof, original: nn.Module, x: torch.Tensor, rope: dict[str, Any]
    ) -> bool:
        """Compare the feed-forward blocks. What attention multiplies does not reach them."""
        attention = no_attention(self._site.spec)
        names = layer_names(original)
        assert names is not None
        with WithoutProducts([getattr(original, names.attention)]):
            expected = self._original(original, x, rope, attention)
        actual = self._replacement(x, rope, attention)
        return expected is not None and proof.is_close(
            expected.after - expected.before, actual.after - actual.before, is_product=True
        )

    def _original(
        self,
        original: nn.Module,
        x: torch.Tensor,
        rope: dict[str, Any],
        attention: ModuleAttention,
        *,
        is_half: bool = False,
    ) -> _Pass | None:
        """Compute the original, with ``is_half`` up to its second norm.

        None if it refuses, or is no such layer.
        """
        names = layer_names(original)
        assert names is not None
        seen: list[torch.Tensor] = []
        after = None

        def see(_module: nn.Module, args: tuple[torch.Tensor, ...]) -> None:
            seen.append(args[0])
            if is_half:
                raise _Reached

        hook = getattr(original, names.second_norm).register_forward_pre_hook(see)
        with routed([getattr(original, names.attention)], attention):
            try:
                after = output_of(original, x, **rope, **left_out(original, rope))
            except _Reached:
                after = seen[0]
            finally:
                hook.remove()
        return _Pass(seen[-1], after) if isinstance(after, torch.Tensor) and seen else None

    def _replacement(
        self, x: torch.Tensor, rope: dict[str, Any], attention: ModuleAttention
    ) -> _Pass:
        """Compute the fused layer."""
        with routed([self._site.attention], attention):
            after = self._fused(x, **rope)
        return _Pass(self._fused.hidden[None].clone(), after)

    def install(self) -> None:
        """See Candidate. Frees the weights of the attention module, which are packed now."""
        for name, _ in list(self._site.attention.named_children()):
            delattr(self._site.attention, name)
        self._place.put(self._fused)
