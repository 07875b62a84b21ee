"""The tensors of a step."""
