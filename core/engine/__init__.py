"""The engine: requests in, outputs of steps out."""
