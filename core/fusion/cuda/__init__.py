"""Fused modules over the Triton kernels."""
