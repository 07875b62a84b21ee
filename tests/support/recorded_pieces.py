"""A GraphCapture for devices without CUDA graphs that records operations and runs them again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from core.batch.logits import Logits
from core.run.graphs.capture import Compute, ComputeInPieces, Work
from tests.support.rerun_capture import RerunCapture


class RecordedPieces(RerunCapture):
    """Captures pieces as CUDA does: what a replay runs is the operations, not the code.

    ``num_cuts`` counts the cuts of all captures.
    """

    def __init__(self) -> None:
        self.num_cuts = 0

    def capture_pieces(self, compute: ComputeInPieces) -> Compute:
        compute(lambda *_: None)
        steps: list[Callable[[], object]] = []
        with ExitStack() as stack:

            def cut(work: Work, *tensors: torch.Tensor) -> None:
                self.num_cuts += 1
                stack.close()
                steps.append(partial(work, *tensors))
                stack.enter_context(_Recorder(steps))

            stack.enter_context(_Recorder(steps))
            result = compute(cut)

        def replay() -> Logits:
            for step in steps:
                step()
            return result

        return replay


class _Recorder(TorchDispatchMode):
    """Appends each operation: it writes to the tensors that it returned when it was recorded."""

    def __init__(self, steps: list[Callable[[], object]]) -> None:
        super().__init__()
        self._steps = steps

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        outputs = func(*args, **kwargs)
        inputs = {_storage(tensor) for tensor in _tensors((args, kwargs))}
        targets = [tensor for tensor in _tensors(outputs) if _storage(tensor) not in inputs]

        def again() -> None:
            found = func(*args, **kwargs)  # a view of an input stays one
            if targets:
                for target, tensor in zip(targets, _tensors(found), strict=True):
                    target.copy_(tensor)

        self._steps.append(again)
        return outputs


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
