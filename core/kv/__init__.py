"""The paged KV cache: bookkeeping in plain integers, tensors in ``storage``."""
