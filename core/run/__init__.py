"""One step of a model: limits, forward pass, sampling."""
