"""The model's small operations as single Triton kernels: plain functions over torch tensors.

They compute in float32 and round where transformers' own modules round. On a CPU they run in
Triton's interpreter only (TRITON_INTERPRET=1).
"""
