"""Decoder families as data: specs, rows that make them of configurations, names of tensors."""
