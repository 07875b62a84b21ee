"""Compute kernels: C++ for CPUs in `cpu`, Triton for CUDA in `triton`."""
