"""Fused modules and their catalogue for CUDA, over Triton kernels."""
