"""The memory of steps and of the KV cache."""
