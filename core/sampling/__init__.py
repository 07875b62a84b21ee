"""Sampling: logits processors, the draw, log-probabilities. Owned by the core thread."""
