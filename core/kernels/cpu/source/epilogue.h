// Activations that are applied to a product before it is stored.
#pragma once
#include "vec.h"

enum Epilogue { NONE = 0, GELU_TANH = 1, SILU = 2, SILU_GATE = 3, GELU_TANH_GATE = 4, CLAMPED_GATE = 5 };

ROSE_INLINE bool is_gated(int epilogue) { return epilogue >= SILU_GATE; }

ROSE_INLINE vf tanh_v(vf x) {
  vf e = exp(2.0f * x);
  return 1.0f - 2.0f / (e + 1.0f);
}
// tanh(x) with a relative error below 2e-7, also of small x (Cephes' tanhf).
ROSE_INLINE vf exact_tanh(vf x) {
  vf z = x * x, p = splat(-5.70498872745e-3f);
  p = p * z + 2.06390887954e-2f;
  p = p * z - 5.37397155531e-2f;
  p = p * z + 1.33314422036e-1f;
  p = p * z - 3.33332819422e-1f;
  return z < 0.390625f ? p * z * x + x : tanh_v(x);
}
ROSE_INLINE vf gelu_tanh(vf x) {
  return 0.5f * x * (1.0f + tanh_v(0.7978845608f * (x + 0.044715f * x * x * x)));
}
ROSE_INLINE vf silu(vf x) { return x / (1.0f + exp(-x)); }

// The gate of gpt-oss: both halves are limited, and one is added to the second.
constexpr float GATE_SLOPE = 1.702f, GATE_LIMIT = 7;
ROSE_INLINE vf clamped_gate(vf a, vf b) {
  a = a > GATE_LIMIT ? splat(GATE_LIMIT) : a;
  b = b > GATE_LIMIT ? splat(GATE_LIMIT) : b;
  b = b < -GATE_LIMIT ? splat(-GATE_LIMIT) : b;
  return (b + 1.0f) * (a / (1.0f + exp(-GATE_SLOPE * a)));
}

ROSE_INLINE vf activate(int epilogue, vf x) {
  switch (epilogue) {
    case GELU_TANH:
    case GELU_TANH_GATE: return gelu_tanh(x);
    case SILU:
    case SILU_GATE: return silu(x);
    default: return x;
  }
}

// The product of an activated gate and b.
ROSE_INLINE vf gate(int epilogue, vf a, vf b) {
  return epilogue == CLAMPED_GATE ? clamped_gate(a, b) : activate(epilogue, a) * b;
}
