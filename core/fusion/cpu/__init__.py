"""Fused modules over the compiled CPU kernels."""
