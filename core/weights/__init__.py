"""The weights of a spec: tensors by role, and matrices in the layout of the compiled kernels."""
