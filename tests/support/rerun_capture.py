"""A GraphCapture for devices without CUDA graphs."""

from core.batch.logits import Logits
from core.run.graphs.capture import Compute


class RerunCapture:
    """Runs the function again, and copies the result to the tensors of its first result."""

    def capture(self, compute: Compute) -> Compute:
        first = compute()

        def rerun() -> Logits:
            again = compute()
            first.values.copy_(again.values)
            if first.best is not None and again.best is not None:
                first.best.copy_(again.best)
            return first

        return rerun
