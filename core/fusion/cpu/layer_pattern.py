"""LayerPattern: recognise decoder layers that can be fused."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from core.fusion.cpu.layer import FusedLayer, LayerParts, Workspace
from core.fusion.cpu.layer_candidate import LayerCandidate
from core.fusion.cpu.mixture import fused_mixture
from core.fusion.cpu.mlp import fused_mlp
from core.fusion.cpu.norm import FusedNorm, proved_norm
from core.fusion.patterns import (
    HEAD_NORMS,
    JOINT_QKV,
    OUTPUTS,
    QKV,
    clips,
    layer_names,
    matrix_of,
)
from core.fusion.proof import Proof
from core.fusion.rotary import applies_rope, repeats_angles
from core.fusion.visitor import AttentionSite, NotRecognisedError, place_of
from core.layer_spec import LayerSpec
from core.weights.packer import Packer
from core.weights.roles import Matrix


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
        if not _fit(parts, site.spec):
            raise _unknown("the sizes of its parts do not go together")
        fused = FusedLayer(
            *(self._packer.kernels, site.layer, site.attention),
            *(site.spec, parts, self._workspace),
        )
        yield LayerCandidate(place_of(self._model, site.layer), site, fused)

    def _parts(self, site: AttentionSite) -> LayerParts:
        names = layer_names(site.layer)
        if names is None or getattr(site.layer, names.attention) is not site.attention:
            listed = ", ".join(name for name, _ in site.layer.named_children())
            raise _unknown(f"its modules are not two norms, attention and a block, but {listed}")
        projections, output, head_norms = _attention_parts(site)
        norms = [getattr(site.layer, name) for name in (names.first_norm, names.second_norm)]
        found = self._proved_norms([*norms, *head_norms])
        if not _fit_heads(found[2:], site.spec):
            raise _unknown("norms of its queries and keys are neither over a head nor over all")
        block = getattr(site.layer, names.mlp)
        mlp = fused_mlp(self._packer, block) or fused_mixture(self._packer, block, self._proof)
        if mlp is None:
            raise _unknown(f"its block, {type(block).__name__}, is not known")
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

    def _proved_norms(self, modules: list[nn.Module]) -> list[FusedNorm]:
        found = []
        for module in modules:
            norm = proved_norm(self._packer.kernels, module, self._proof)
            if norm is None:
                raise _unknown(f"its norm, {type(module).__name__}, is not known")
            found.append(norm)
        return found


def _unknown(reason: str) -> NotRecognisedError:
    return NotRecognisedError("layer", reason)


def _attention_parts(site: AttentionSite) -> tuple[list[Matrix], Matrix, list[nn.Module]]:
    """Projections, output, and the norms of queries and keys, if any."""
    name = type(site.attention).__name__
    children = _without_dropout(site.attention)
    projections = _take_projections(children, site.spec)
    output = next((matrix_of(children.pop(n)) for n in OUTPUTS if n in children), None)
    head_norms = [children.pop(name) for name in HEAD_NORMS if name in children]
    if projections is None or output is None:
        raise _unknown(f"the linear layers of its attention, {name}, are not plain")
    if children or len(head_norms) not in (0, 2):
        listed = ", ".join(children) or "a norm of queries or keys alone"
        raise _unknown(f"its attention, {name}, has modules that are not known: {listed}")
    if clips(site.attention):
        raise _unknown(f"its attention, {name}, clips its projections")
    return projections, output, head_norms


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
