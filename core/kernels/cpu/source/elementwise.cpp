// Norms, RoPE, and argmax.
#include "exports.h"

#include <omp.h>

#include <algorithm>

namespace {

constexpr int64_t MIN_PARALLEL = 1 << 15;  // values; below, waking threads costs more than it saves

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

// y = (x - mean) / sqrt(variance + eps) * weight + bias over rows of n values. Without `center` the mean
// is 0 (RMSNorm). bias may be null. y is contiguous; row (i, j) of x starts at i * outer + j * inner, for
// i < count and j < heads.
ROSE_EXPORT void rose_norm(const float* x, int64_t count, int64_t heads, int64_t outer, int64_t inner, int64_t n,
                           int64_t center, double eps, const float* weight, const float* bias, float* y) {
#pragma omp parallel for schedule(static) if (count * heads * n >= MIN_PARALLEL)
  for (int64_t row = 0; row < count * heads; row++) {
    const float* in = x + row / heads * outer + row % heads * inner;
    float* out = y + row * n;
    float mean = center ? sum_of(in, n) / n : 0;
    float scale = 1 / std::sqrt(sum_of_squares(in, n, mean) / n + (float)eps);
    int64_t i = 0;
    for (; i + W <= n; i += W) {
      vf v = (load(in + i) - mean) * scale * load(weight + i);
      store(out + i, bias ? v + load(bias + i) : v);
    }
    for (; i < n; i++) out[i] = (in[i] - mean) * scale * weight[i] + (bias ? bias[i] : 0);
  }
}

// RoPE of the first `rotated` values of each head: y = x * cos + rotate_half(x) * sin (RoFormer, in the
// layout of GPT-NeoX). Head h of token t starts at t * token + h * head in x; y is [tokens, heads, n]. cos
// and sin are [tokens, rotated].
ROSE_EXPORT void rose_rotary(const float* x, int64_t tokens, int64_t heads, int64_t token, int64_t head, int64_t n,
                             int64_t rotated, const float* cos, const float* sin, float* y) {
  int64_t half = rotated / 2;
#pragma omp parallel for schedule(static) if (tokens * heads * n >= MIN_PARALLEL)
  for (int64_t t = 0; t < tokens; t++) {
    const float *c = cos + t * rotated, *s = sin + t * rotated;
    for (int64_t h = 0; h < heads; h++) {
      const float* in = x + t * token + h * head;
      float* out = y + (t * heads + h) * n;
      int64_t i = 0;
      for (; i + W <= half; i += W) {
        vf a = load(in + i), b = load(in + half + i);
        store(out + i, a * load(c + i) - b * load(s + i));
        store(out + half + i, b * load(c + half + i) + a * load(s + half + i));
      }
      for (; i < half; i++) {
        float a = in[i], b = in[half + i];
        out[i] = a * c[i] - b * s[i];
        out[half + i] = b * c[half + i] + a * s[half + i];
      }
      for (i = rotated; i < n; i++) out[i] = in[i];
    }
  }
}

namespace {

int64_t first_of_largest(const float* x, int64_t n) {
  constexpr int64_t BLOCK = 1024;
  float best = 0;
  int64_t at = -1;
  for (int64_t first = 0; first < n; first += BLOCK) {
    int64_t last = std::min(first + BLOCK, n), i = first;
    vf high = splat(-std::numeric_limits<float>::infinity());
    vi nan = vi{};
    for (; i + W <= last; i += W) {
      vf v = load(x + i);
      nan |= v != v;
      high = max(high, v);
    }
    float most = largest(high);
    bool has_nan = false;
    for (int lane = 0; lane < W; lane++) has_nan |= nan[lane] != 0;
    for (; i < last; i++) {
      has_nan |= x[i] != x[i];
      most = std::max(most, x[i]);
    }
    if (has_nan) return std::find_if(x + first, x + last, [](float v) { return v != v; }) - x;
    if (at < 0 || most > best) {
      best = most;
      at = first;
    }
  }
  return std::find(x + at, x + n, best) - x;
}

}  // namespace

// argmax of each row of n values: the first one on ties, and NaN counts as the maximum. x has row stride
// `stride`.
ROSE_EXPORT void rose_argmax(const float* x, int64_t count, int64_t stride, int64_t n, int64_t* ids) {
#pragma omp parallel for schedule(static) if (count > 1)
  for (int64_t row = 0; row < count; row++) ids[row] = first_of_largest(x + row * stride, n);
}
