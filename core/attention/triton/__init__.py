"""Attention on CUDA as Triton kernels of our own; on a CPU only in Triton's interpreter."""
