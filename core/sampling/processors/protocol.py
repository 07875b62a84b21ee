"""LogitsProcessor: edits logits before a token is chosen; and what several of them share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt
import torch

from core.contract.params import SamplingParams
from core.state.sequence import Sequence
from core.system.pinned import upload


class LogitsProcessor(Protocol):
    """Edits the logits of the rows whose parameters ask for it. Core thread only.

    ``reads_tokens`` says whether the edit depends on which tokens were sampled before, not only on
    their number. Then the host must know them before the next step is launched.
    """

    @property
    def reads_tokens(self) -> bool: ...

    def applies(self, params: SamplingParams) -> bool:
        """Whether a request with these parameters may need this processor in any step."""
        ...

    def apply(self, logits: torch.Tensor, rows: list[int], sequences: list[Sequence]) -> None:
        """Change rows ``rows`` of ``logits`` in place; ``sequences[i]`` is that of ``rows[i]``.

        ``logits`` is float32 [num_rows, vocab_size] of the whole batch. There is at least one
        row. The edit of a row may depend only on that row and its sequence.
        """
        ...


@runtime_checkable
class PreparedProcessor(LogitsProcessor, Protocol):
    """A processor whose work depends only on the tokens so far and can start before the logits."""

    def prepare(self, sequences: list[Sequence]) -> None:
        """Start the work of the next ``apply``, which gets the same sequences. Does not wait.

        Called before the forward pass, with at least one sequence. ``apply`` does not follow if
        the step fails.
        """
        ...


V = TypeVar("V")


class PerRequest(Generic[V]):
    """Values made of objects, by identity, while the objects are in the batch.

    The choices of a request share their parameters' objects, so they share the value. What is not
    asked for in a step is dropped, so memory never exceeds one batch.
    """

    def __init__(self, make: Callable[[Any], V]) -> None:
        self._make = make
        self._kept: dict[int, tuple[object, V]] = {}

    def of(self, sources: Iterable[object]) -> list[V]:
        """Return the value of each object, made now if it is new."""
        earlier, self._kept = self._kept, {}
        values = []
        for source in sources:
            key = id(source)  # no other object has it, because the entry keeps `source` alive
            entry = self._kept.get(key) or earlier.get(key)
            if entry is None:
                entry = (source, self._make(source))
            self._kept[key] = entry
            values.append(entry[1])
        return values


Float64Array = npt.NDArray[np.float64]


def exclude(logits: torch.Tensor, rows: torch.Tensor, ids: torch.Tensor) -> None:
    """Set single logits to -inf.

    ``logits[rows, ids] = -inf`` would copy a number from the host and wait for it.
    """
    logits.index_put_((rows, ids), logits.new_full((), -torch.inf))


def entries(
    logits: torch.Tensor,
    rows: list[int],
    ids: list[Float64Array],
    *columns: list[Float64Array],
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Upload addresses of single logits, and numbers that belong to them, in one transfer.

    ``ids[i]`` are token ids in row ``rows[i]``; each column holds as many numbers per row. Ids
    outside the vocabulary are left out: they cannot be sampled, and one request must not break
    the step of the whole batch. Everything travels as float64, which is exact for ids and rows.

    Returns row indices [num_entries], token ids [num_entries] (both int64) and the columns
    [num_columns, num_entries] (float32).
    """
    packed = np.empty((2 + len(columns), sum(map(len, ids))), dtype=np.float64)
    if packed.shape[1]:
        packed[0] = np.repeat(np.asarray(rows, dtype=np.float64), [len(row) for row in ids])
        for line, column in zip(packed[1:], (ids, *columns), strict=True):
            np.concatenate(column, out=line)
    is_known = (packed[1] >= 0) & (packed[1] < logits.shape[1])
    if not is_known.all():
        packed = np.ascontiguousarray(packed[:, is_known])
    tensor = upload(packed, logits.device)
    address = tensor[:2].long()
    return address[0], address[1], tensor[2:].float()
