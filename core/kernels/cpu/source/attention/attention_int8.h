// Keys and values in int8: a row of a token and kv head times its scale, which is its largest
// magnitude / 127.
#pragma once
#include "attention_cache.h"
#include "quantise_rows.h"

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
    float rounded =
        x[d] * inverse + 12582912.0f;  // 1.5 * 2^23: the last byte is that of an integer
    int32_t bits;
    memcpy(&bits, &rounded, 4);
    to[at(d)] = (int8_t)bits;
  }
  return scale;
}

// Write tokens `t` to `t` + `count` of a block and kv head, and their scales.
inline void write_tokens(const Layout<Int8Lanes>& layout, int64_t t, int64_t count,
                         const States& from, int8_t* keys, int8_t* values, float* key_scales,
                         float* value_scales) {
  for (int64_t i = 0; i < count; i++, t++) {
    const float *key = from.key + i * from.key_token, *value = from.value + i * from.value_token;
    key_scales[t] =
        write_int8(key, layout.key_size, keys, [&](int64_t d) { return layout.key(t, d); });
    value_scales[t] =
        write_int8(value, layout.value_size, values, [&](int64_t d) { return layout.value(t, d); });
  }
}

// Exchange the middle two of every four lanes: their order in a factor of Int8Lanes.
ROSE_INLINE vi swap_middle(vi v) {
#if ROSE_WIDTH == 16
  return ROSE_SHUFFLE(v, v, 0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15);
#elif ROSE_WIDTH == 8
  return ROSE_SHUFFLE(v, v, 0, 2, 1, 3, 4, 6, 5, 7);
#else
  return ROSE_SHUFFLE(v, v, 0, 2, 1, 3);
#endif
}

// Write W integers as factors.
ROSE_INLINE void put_factors(int16_t* to, vi integers) {
  *(vs_half_u*)to = __builtin_convertvector(swap_middle(integers), vs_half_u);
}

// Write a query times `scale` as factors and return what their integers are multiplied by, which is
// NaN if a value is not finite. The integers are so small that the sum of their products with keys
// fits.
inline float write_query(const float* x, int64_t n, float scale, int16_t* to) {
  float most = (float)std::min<int64_t>(32767, INT32_MAX / (127 * std::max<int64_t>(n, 1)));
  float unit = scale_of(x, n) * (127.0f / most), inverse = unit > 1e-30f ? 1.0f / unit : 0.0f;
  int64_t d = 0;
  for (; d + W <= n; d += W) put_factors(to + d, nearest(load(x + d) * inverse));
  for (; d < n; d++)
    to[d / 4 * 4 + (d % 4 * 2 - d % 4 / 2 * 3)] = (int16_t)nearest(splat(x[d] * inverse))[0];
  return unit * scale;
}
