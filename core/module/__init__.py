"""transformers' module of a model, from its files."""
