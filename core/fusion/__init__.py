"""Replace modules of a loaded model with faster ones that are proved to compute the same."""
