"""Visitor: walks over a model and replaces what a catalogue of patterns recognises.

A pattern yields candidates for a place in the model. The visitor proves a candidate, installs and
counts it, and only then asks for the next one, which therefore sees the changed model. Patterns go
by names and shapes and may be wrong: what is not equal is not installed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import nn

from core.fusion.patterns import reads_weights
from core.fusion.proof import Proof
from core.kv.layer_spec import LayerSpec
from core.observe import load_progress


@dataclass(frozen=True, slots=True)
class Place:
    """An attribute of a module that holds another module."""

    parent: nn.Module
    name: str

    @property
    def module(self) -> nn.Module:
        """The module that is there now."""
        module: nn.Module = getattr(self.parent, self.name)
        return module

    def put(self, module: nn.Module) -> None:
        """Replace the module."""
        setattr(self.parent, self.name, module)


@dataclass(frozen=True, slots=True)
class AttentionSite:
    """An attention module and the decoder layer around it."""

    attention: nn.Module
    spec: LayerSpec
    layer: nn.Module


Attention = Sequence[tuple[nn.Module, LayerSpec]]
"""The attention modules of a model, in the order in which they are called."""


class Candidate(Protocol):
    """A change to a model. It is installed only if a proof finds the results unchanged."""

    @property
    def counts(self) -> Mapping[str, int]:
        """Numbers of replacements by kind, for ``Visitor.counts``."""

    def is_equal(self, proof: Proof) -> bool:
        """Return true if the model would compute the same. Leaves the model as it was."""

    def install(self) -> None:
        """Change the model."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """Modules that may take the places of others with a common input ``[..., size]``."""

    counts: Mapping[str, int]
    places: Sequence[Place]
    modules: Sequence[nn.Module]
    size: int
    is_product: bool
    """True if they multiply by weights."""

    def is_equal(self, proof: Proof) -> bool:
        """See Candidate."""
        originals = [place.module for place in self.places]
        return proof.is_equal(originals, self.modules, self.size, is_product=self.is_product)

    def install(self) -> None:
        """See Candidate."""
        for place, module in zip(self.places, self.modules, strict=True):
            place.put(module)


AttentionPattern = Callable[[AttentionSite], Iterable[Candidate]]
ModulePattern = Callable[[Place], Iterable[Candidate]]


class Visitor:
    """Offers the places of one model to patterns; ``counts`` says what was installed."""

    def __init__(self, model: nn.Module, attention: Attention, proof: Proof) -> None:
        self.counts: Counter[str] = Counter()
        self._model = model
        self._attention = attention
        self._proof = proof
        num_modules = sum(1 for _ in model.modules())
        load_progress.begin("packing weights", 2 * num_modules + len(attention))

    def visit_attention(self, *patterns: AttentionPattern) -> None:
        """Try all candidates for each attention module and its layer."""
        for attention, spec in self._attention:
            for pattern in patterns:
                layer = place_of(self._model, attention).parent
                site = AttentionSite(attention, spec, layer)
                for candidate in pattern(site):
                    self._try(candidate)
            load_progress.advance()

    def visit_modules(self, *patterns: ModulePattern) -> None:
        """Offer every module, parents first, to all patterns; the first equal candidate wins."""
        self._visit_children(self._model, patterns)

    def _visit_children(self, parent: nn.Module, patterns: Sequence[ModulePattern]) -> None:
        keeps_children = reads_weights(parent)
        for name, _ in list(parent.named_children()):
            place = Place(parent, name)
            if not keeps_children:
                candidates = (candidate for pattern in patterns for candidate in pattern(place))
                any(self._try(candidate) for candidate in candidates)
            load_progress.advance()
            self._visit_children(place.module, patterns)

    def _try(self, candidate: Candidate) -> bool:
        if not candidate.is_equal(self._proof):
            return False
        candidate.install()
        self.counts.update(candidate.counts)
        return True


def place_of(model: nn.Module, wanted: nn.Module) -> Place:
    """Find where the model holds a module."""
    for parent in model.modules():
        for name, child in parent.named_children():
            if child is wanted:
                return Place(parent, name)
    raise AssertionError(f"{type(wanted).__name__} is not part of {type(model).__name__}")
