"""Sampling on CUDA: every row of a batch in one launch."""
