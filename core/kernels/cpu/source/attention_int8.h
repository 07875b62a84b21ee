// Keys and values in int8: a row of a token and kv head times its scale, which is its largest magnitude / 127.
#pragma once
#include "attention_cache.h"

// The scale of n values. It is NaN if one of them is not finite.
inline float scale_of(const float* x, int64_t n) {
  vf most = vf{}, finite = vf{};
  int64_t d = 0;
  for (; d + W <= n; d += W) {
    vf v = load(x + d);
    most = max(most, max(v, -v));
    finite += v * 0.0f;
  }
  float found = largest(most), zero = sum(finite);
  for (; d < n; d++) {
    found = std::fmax(found, std::fabs(x[d]));
    zero += x[d] * 0.0f;
  }
  return found / 127.0f + zero;
}

// Write n values, each to the place that `at` gives, and return their scale.
template <class At>
inline float write_int8(const float* x, int64_t n, int8_t* to, At at) {
  float scale = scale_of(x, n), inverse = scale > 1e-30f ? 1.0f / scale : 0.0f;
  for (int64_t d = 0; d < n; d++) {
    float rounded = x[d] * inverse + 12582912.0f;  // 1.5 * 2^23: the last byte is that of an integer
    int32_t bits;
    memcpy(&bits, &rounded, 4);
    to[at(d)] = (int8_t)bits;
  }
  return scale;
}

ROSE_INLINE vf byte_of(vu lanes, int i) { return __builtin_convertvector((vi)(lanes << (24 - 8 * i)) >> 24, vf); }

// W keys in float32 by dimension: to[d * stride + t]. `keys` are those of a block by lane, from the first token on.
inline void expand_keys(const int8_t* keys, int64_t block_size, int64_t size, const float* scales, float* to, int64_t stride) {
  vf scale = load(scales);
  for (int64_t d = 0; d < size; d += 4, keys += block_size * 4)
    for (int i = 0; i < 4; i++) store(to + (d + i) * stride, byte_of(*(const vu_u*)keys, i) * scale);
}

// W tokens' values in float32 by token: to[t * size + d].
inline void expand_values(const int8_t* values, int64_t size, const float* scales, float* to) {
  for (int64_t t = 0; t < W; t += 4)
    for (int64_t d = 0; d < size; d += W, values += W * 4)
      for (int i = 0; i < 4; i++) store(to + (t + i) * size + d, byte_of(*(const vu_u*)values, i) * scales[t + i]);
}
