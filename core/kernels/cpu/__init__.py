"""Kernels of our own for the CPU: C++ compiled on this machine, and its face in Python."""
