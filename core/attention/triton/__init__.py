"""The backend for CUDA, with Triton kernels. On a CPU it needs Triton's interpreter."""
