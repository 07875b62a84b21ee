"""The proof at load: the assembled engine against transformers' forward pass."""
