"""Fused modules and their catalogue for CPUs with compiled kernels."""
