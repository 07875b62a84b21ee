"""The engine's outputs to API objects. Only this package builds responses."""
