"""Triton kernels for CUDA, each with the function that launches it.

    attention/         paged attention: cache write, split-KV decode, merge, prompt chunks
    quantised_linear   linear layer with int8 or float8 weights, and its tile sizes
    norm               RMSNorm
    rotary             RoPE, with the RMSNorm of each head (head_norm) before it
    gated              activation of a gated MLP times its gated input
    draw               sampling: one token of each row of logits
    types              operand types of matrix products

The launchers take torch tensors and never wait for the device. The kernels compute in float32 and
round where transformers' modules round. On a CPU they run in Triton's interpreter only
(TRITON_INTERPRET=1).
"""
