"""Leaves of a model (linear layers, norms, embeddings) replaced by faster ones that are equal."""
