"""Recognise decoder layers, and prove that the fused ones compute the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, NamedTuple

import torch
from torch import nn

from core.fusion.cpu.layer import ROTATION, FusedLayer, LayerParts, Workspace
from core.fusion.cpu.mixture import fused_mixture
from core.fusion.cpu.mlp import fused_mlp
from core.fusion.cpu.norm import FusedNorm, proved_norm
from core.fusion.cpu.packer import Packer
from core.fusion.kinds import kind_of
from core.fusion.patterns import (
    HEAD_NORMS,
    JOINT_QKV,
    OUTPUTS,
    QKV,
    Matrix,
    clips,
    layer_names,
    matrix_of,
)
from core.fusion.proof import NUM_ROWS, Proof, no_attention, output_of, plain_attention
from core.fusion.rotary import applies_rope, repeats_angles
from core.fusion.visitor import AttentionSite, Place, place_of
from core.layer_spec import LayerSpec
from core.model.attention_interface import ModuleAttention, routed
from core.model.without_products import WithoutProducts


class LayerPattern:
    """Yields candidates for layers with plain norms, attention and feed-forward block."""

    def __init__(self, model: nn.Module, packer: Packer, proof: Proof) -> None:
        """``proof`` finds the norms of a layer; their offset is not known."""
        self._model = model
        self._packer = packer
        self._proof = proof
        self._workspace = Workspace()

    def __call__(self, site: AttentionSite) -> Iterator[LayerCandidate]:
        """See AttentionPattern."""
        parts = self._parts(site)
        if parts is not None and _fit(parts, site.spec):
            fused = FusedLayer(
                *(self._packer.kernels, site.layer, site.attention),
                *(site.spec, parts, self._workspace),
            )
            yield LayerCandidate(place_of(self._model, site.layer), site, fused)

    def _parts(self, site: AttentionSite) -> LayerParts | None:
        names = layer_names(site.layer)
        if names is None or getattr(site.layer, names.attention) is not site.attention:
            return None
        children = _without_dropout(site.attention)
        projections = _take_projections(children, site.spec)
        output = next((matrix_of(children.pop(n)) for n in OUTPUTS if n in children), None)
        head_norms = [children.pop(name) for name in HEAD_NORMS if name in children]
        if projections is None or output is None or children or len(head_norms) not in (0, 2):
            return None
        if clips(site.attention):
            return None
        norms = [getattr(site.layer, name) for name in (names.first_norm, names.second_norm)]
        found = self._proved_norms([*norms, *head_norms])
        if found is None or not _fit_heads(found[2:], site.spec):
            return None
        block = getattr(site.layer, names.mlp)
        mlp = fused_mlp(self._packer, block) or fused_mixture(self._packer, block, self._proof)
        if mlp is None:
            return None
        query_norm, key_norm = found[2:] or (None, None)
        return LayerParts(
            first_norm=found[0],
            projections=self._packer.stack(projections),
            query_norm=query_norm,
            key_norm=key_norm,
            output=self._packer.stack([output]),
            second_norm=found[1],
            mlp=mlp,
            applies_rope=applies_rope(site.attention),
            repeats_angles=repeats_angles(site.attention, site.spec.head_dim),
        )

    def _proved_norms(self, modules: list[nn.Module]) -> list[FusedNorm] | None:
        norms = [proved_norm(self._packer.kernels, module, self._proof) for module in modules]
        found = [norm for norm in norms if norm is not None]
        return found if len(found) == len(modules) else None


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
            with WithoutProducts():
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
                after = output_of(original, x, attention_mask=None, **rope)
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


def _fit(parts: LayerParts, spec: LayerSpec) -> bool:
    """Whether the parts' sizes go together: the kernel reads them without asking."""
    hidden = parts.projections.num_columns
    return (
        parts.first_norm.size == parts.second_norm.size == hidden
        and parts.output.num_columns == spec.num_heads * spec.value_dim
        and parts.output.num_rows == hidden
        and parts.mlp.fits(hidden)
    )


def _fit_heads(norms: list[FusedNorm], spec: LayerSpec) -> bool:
    """Whether the norms of queries and keys, if any, are over each head or over all heads."""
    sizes = [norm.size for norm in norms]
    heads = (spec.num_heads, spec.num_kv_heads)
    return sizes in ([], [spec.head_dim] * 2, [count * spec.head_dim for count in heads])


def _without_dropout(module: nn.Module) -> dict[str, nn.Module]:
    return {
        name: child for name, child in module.named_children() if not isinstance(child, nn.Dropout)
    }


def _take_projections(children: dict[str, nn.Module], spec: LayerSpec) -> list[Matrix] | None:
    """Remove the projections to queries, keys and values from the children of an attention."""
    names = next((names for names in (QKV, JOINT_QKV) if set(names) <= children.keys()), ())
    matrices = [matrix_of(children.pop(name)) for name in names]
    known = [matrix for matrix in matrices if matrix is not None]
    num_rows = (spec.num_heads + spec.num_kv_heads) * spec.head_dim
    num_rows += spec.num_kv_heads * spec.value_dim
    fit = len(known) == len(matrices) and len({weight.shape[1] for weight, _ in known}) == 1
    return known if fit and sum(len(weight) for weight, _ in known) == num_rows else None
