// Activations that are applied to a product before it is stored.
#pragma once
#include "vec.h"

// Mirrors core/kernels/cpu/linear.py. A gated one is FIRST_GATE and the activation of its gate.
enum Epilogue {
  NONE,
  GELU_TANH,
  SILU,
  GELU,
  RELU,
  RELU2,
  XIELU,
  FIRST_GATE = 16,
  CLAMPED_GATE = 32
};

ROSE_INLINE bool is_gated(int epilogue) { return epilogue >= FIRST_GATE; }

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

// erf(x) with an absolute error below 1.2e-7: polynomials of Norbert Juffa
// (stackoverflow.com/a/35148199), for small x of erf(x) / x, else of log(1 - erf(x)).
ROSE_INLINE vf erf_v(vf x) {
  vf t = max(x, -x), s = x * x;
  vf far = multiply_add(splat(-1.72853470e-5f), t, splat(3.83197126e-4f));
  far = multiply_add(far, s, multiply_add(splat(-3.88396438e-3f), t, splat(2.42546219e-2f)));
  far = multiply_add(far, t, splat(-1.06777877e-1f));
  far = multiply_add(far, t, splat(-6.34846687e-1f));
  far = multiply_add(far, t, splat(-1.28717512e-1f));
  far = 1.0f - exp(multiply_add(far, t, -t));
  vf near = splat(-5.96761703e-4f);
  near = multiply_add(near, s, splat(4.99119423e-3f));
  near = multiply_add(near, s, splat(-2.67681349e-2f));
  near = multiply_add(near, s, splat(1.12819925e-1f));
  near = multiply_add(near, s, splat(-3.76125336e-1f));
  near = multiply_add(near, s, splat(1.28379166e-1f));
  vf signed_far = x < 0.0f ? -far : far;
  return t > 0.927734375f ? signed_far : multiply_add(near, x, x);
}
ROSE_INLINE vf gelu(vf x) { return 0.5f * x * (1.0f + erf_v(0.70710678f * x)); }
ROSE_INLINE vf relu(vf x) { return x < 0.0f ? vf{} : x; }  // NaN stays

// xIELU (arxiv.org/abs/2411.13010) with a beta of 0.5. `slopes` are those of positive and of
// negative values.
ROSE_INLINE vf xielu(vf x, const float* slopes) {
  constexpr float TAYLOR[] = {2.7557319e-7f, 2.7557319e-6f, 2.4801587e-5f,
                              1.9841270e-4f, 1.3888889e-3f, 8.3333333e-3f,
                              4.1666667e-2f, 1.6666667e-1f, 5e-1f};
  vf series = splat(2.5052108e-8f);
  for (float factor : TAYLOR) series = multiply_add(series, x, splat(factor));
  vf bent = x > -1.0f ? series * x * x : exp(x) - 1.0f - x;
  return (x > 0.0f ? slopes[0] * x * x : bent * (0.5f + slopes[1])) + 0.5f * x;
}

// The gate of gpt-oss: both halves are limited, and one is added to the second.
constexpr float GATE_SLOPE = 1.702f, GATE_LIMIT = 7;
ROSE_INLINE vf clamped_gate(vf a, vf b) {
  a = a > GATE_LIMIT ? splat(GATE_LIMIT) : a;
  b = b > GATE_LIMIT ? splat(GATE_LIMIT) : b;
  b = b < -GATE_LIMIT ? splat(-GATE_LIMIT) : b;
  return (b + 1.0f) * (a / (1.0f + exp(-GATE_SLOPE * a)));
}

// `slopes` are those of XIELU.
ROSE_INLINE vf activate(int epilogue, vf x, const float* slopes = nullptr) {
  switch (epilogue) {
    case GELU_TANH:
      return gelu_tanh(x);
    case SILU:
      return silu(x);
    case GELU:
      return gelu(x);
    case RELU:
      return relu(x);
    case RELU2:
      return relu(x) * relu(x);
    case XIELU:
      return xielu(x, slopes);
    default:
      return x;
  }
}

// The product of an activated gate and b.
ROSE_INLINE vf gate(int epilogue, vf a, vf b) {
  return epilogue == CLAMPED_GATE ? clamped_gate(a, b) : activate(epilogue - FIRST_GATE, a) * b;
}
