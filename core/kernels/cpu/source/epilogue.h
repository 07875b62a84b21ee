// Activations that are applied to a product before it is stored.
#pragma once
#include "vec.h"

enum Epilogue { NONE = 0, GELU_TANH = 1, SILU = 2, SILU_GATE = 3, GELU_TANH_GATE = 4 };

ROSE_INLINE bool is_gated(int epilogue) { return epilogue == SILU_GATE || epilogue == GELU_TANH_GATE; }

ROSE_INLINE vf tanh_v(vf x) {
  vf e = exp(2.0f * x);
  return 1.0f - 2.0f / (e + 1.0f);
}
ROSE_INLINE vf gelu_tanh(vf x) {
  return 0.5f * x * (1.0f + tanh_v(0.7978845608f * (x + 0.044715f * x * x * x)));
}
ROSE_INLINE vf silu(vf x) { return x / (1.0f + exp(-x)); }

ROSE_INLINE vf activate(int epilogue, vf x) {
  switch (epilogue) {
    case GELU_TANH:
    case GELU_TANH_GATE: return gelu_tanh(x);
    case SILU:
    case SILU_GATE: return silu(x);
    default: return x;
  }
}
