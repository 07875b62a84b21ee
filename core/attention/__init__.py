"""Attention over the paged KV cache: a protocol, and one file or folder per backend."""
