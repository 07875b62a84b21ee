"""CPU kernels: C++ sources, compiled on this machine, and their Python bindings."""
