// Norms and RoPE.
#include "elementwise.h"

#include "epilogue.h"

namespace {

ROSE_INLINE float sum_of_squares(const float* x, int64_t n, float mean) {
  vf a = vf{};
  int64_t i = 0;
  for (; i + W <= n; i += W) {
    vf v = load(x + i) - mean;
    a += v * v;
  }
  float s = sum(a);
  for (; i < n; i++) s += (x[i] - mean) * (x[i] - mean);
  return s;
}

ROSE_INLINE float sum_of(const float* x, int64_t n) {
  vf a = vf{};
  int64_t i = 0;
  for (; i + W <= n; i += W) a += load(x + i);
  float s = sum(a);
  for (; i < n; i++) s += x[i];
  return s;
}

}  // namespace

void norm_row(const float* x, int64_t n, bool center, float eps, const float* weight,
              const float* bias, float* y) {
  float mean = center ? sum_of(x, n) / n : 0;
  float scale = 1 / std::sqrt(sum_of_squares(x, n, mean) / n + eps);
  int64_t i = 0;
  for (; i + W <= n; i += W) {
    vf v = (load(x + i) - mean) * scale * load(weight + i);
    store(y + i, bias ? v + load(bias + i) : v);
  }
  for (; i < n; i++) y[i] = (x[i] - mean) * scale * weight[i] + (bias ? bias[i] : 0);
}

void add_row(const float* base, const float* x, int64_t n, float scale, float* y) {
  int64_t i = 0;
  for (; i + W <= n; i += W) store(y + i, multiply_add(load(x + i), splat(scale), load(base + i)));
  for (; i < n; i++) y[i] = std::fma(x[i], scale, base[i]);
}

void gate_row(int epilogue, const float* x, int64_t n, float* y) {
  for (int64_t i = 0; i < n; i += W)
    put(y + i, gate(epilogue, get(x + i, n - i), get(x + n + i, n - i)), n - i);
}

void rotate_head(const float* x, int64_t n, int64_t rotated, const float* cos, const float* sin,
                 float* y) {
  int64_t half = rotated / 2, i = 0;
  for (; i + W <= half; i += W) {
    vf a = load(x + i), b = load(x + half + i);
    store(y + i, a * load(cos + i) - b * load(sin + i));
    store(y + half + i, b * load(cos + half + i) + a * load(sin + half + i));
  }
  for (; i < half; i++) {
    float a = x[i], b = x[half + i];
    y[i] = a * cos[i] - b * sin[i];
    y[half + i] = b * cos[half + i] + a * sin[half + i];
  }
  for (i = rotated; i < n; i++) y[i] = x[i];
}
