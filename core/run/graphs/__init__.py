"""Replay decode steps as CUDA graphs.

A CUDA graph repeats the same kernels on the same memory. So there is one graph for each of a few
batch sizes. A step uses the next larger size and pads the batch. Everything that changes from step
to step (token ids, positions, the attention plan) lies in one device buffer, which one copy fills.
"""
