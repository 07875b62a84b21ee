// How keys and values are stored in the cache.
//
// A lane is 4 bytes: one float32, two bfloat16, or four int8. The keys of a block and kv head are stored by
// dimension, one lane per token: lane t of step s is dimension s of token t, or dimensions 2s and 2s + 1, or 4s to
// 4s + 3. Values are stored by token, one lane per dimension: lane d of step s is token s, or tokens 2s and 2s + 1,
// or 4s to 4s + 3. So a vector
// is W keys or W dimensions of values, the query's values and the weights are broadcast, and every sum runs
// over dimensions or tokens in order, for any number of rows.
#pragma once
#include "vec.h"

// `Value` is the type of a query's value or a weight, `Factor` is what is broadcast in a step. A product of weights goes on
// from the float32 values of `begin`, and `end` stores them.
struct FloatSums {
  using Sum = vf;
  ROSE_INLINE vf value(vf sum) { return sum; }
  ROSE_INLINE vf begin(const float* from) { return load(from); }
  ROSE_INLINE void end(float* to, vf sum, float) { store(to, sum); }
};

struct Float32Lanes : FloatSums {
  using Stored = float;
  using Value = float;
  using Factor = float;
  static constexpr int PER_LANE = 1;
  ROSE_INLINE vf add(vf acc, Factor x, vu lanes) { return acc + x * (vf)lanes; }
};

#if defined(ROSE_DOT)
struct BFloat16Lanes : FloatSums {
  using Stored = uint16_t;
  using Value = uint16_t;
  typedef uint32_t Factor __attribute__((may_alias));  // written as two values
  static constexpr int PER_LANE = 2;
  ROSE_INLINE vf add(vf acc, Factor x, vu lanes) { return dot_pairs(acc, vu{} + x, lanes); }
};
#else
struct BFloat16Lanes : FloatSums {
  using Stored = uint16_t;
  using Value = float;
  struct Factor {
    float low, high;
  };
  static constexpr int PER_LANE = 2;
  ROSE_INLINE vf add(vf acc, Factor x, vu lanes) {
    acc += x.low * (vf)(lanes << 16);
    return acc + x.high * (vf)(lanes & 0xffff0000u);
  }
};
#endif

// int8 with a scale per token and head. Queries and weights are integers of 16 bits with a factor; see attention_int8.h.
// A factor of four has the values 0 and 2, then 1 and 3. Sums are exact.
struct Int8Lanes {
  using Stored = int8_t;
  using Value = int16_t;
  struct __attribute__((may_alias)) Factor {
    uint32_t even, odd;
  };
  using Sum = vi;
  static constexpr int PER_LANE = 4;
  ROSE_INLINE vi add(vi acc, Factor x, vu lanes) {
    vs bytes = (vs)lanes;
    acc = dot_int16(acc, (vs)(vu{} + x.even), bytes << 8 >> 8);
    return dot_int16(acc, (vs)(vu{} + x.odd), bytes >> 8);
  }
  ROSE_INLINE vf value(vi sum) { return __builtin_convertvector(sum, vf); }
  ROSE_INLINE vi begin(const float*) { return vi{}; }
  ROSE_INLINE void end(float* to, vi sum, float factor) { store(to, load(to) + value(sum) * factor); }
};

ROSE_INLINE void put(float* to, float x) { *to = x; }
ROSE_INLINE void put(uint16_t* to, float x) { *to = narrow(x); }

// The place of value d of token t within a block and kv head. Blocks and heads that are not multiples of the
// vector width are stored by token, and are copied before they are read.
template <class L>
struct Layout {
  int64_t block_size, key_size, value_size;
  bool is_by_lane;

  Layout(int64_t block_size, int64_t key_size, int64_t value_size)
      : block_size(block_size), key_size(key_size), value_size(value_size) {
    is_by_lane = block_size % W == 0 && key_size % L::PER_LANE == 0 && value_size % W == 0;
  }

  int64_t key(int64_t t, int64_t d) const {
    constexpr int N = L::PER_LANE;
    return is_by_lane ? (d / N * block_size + t) * N + d % N : t * key_size + d;
  }
  int64_t value(int64_t t, int64_t d) const {
    constexpr int N = L::PER_LANE;
    return is_by_lane ? (t / N * value_size + d) * N + t % N : t * value_size + d;
  }
};

#if ROSE_WIDTH == 16 && defined(__AVX512BW__)
#define ROSE_SCATTERS
// Write pairs of dimensions of a key to every `stride`-th lane. `size` is a multiple of 32.
ROSE_INLINE void put_pairs(const float* key, int64_t size, uint32_t* to, int64_t stride) {
  const __m512i at = _mm512_mullo_epi32(_mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0),
                                        _mm512_set1_epi32((int32_t)stride));
  for (int64_t d = 0; d < size; d += 32, to += 16 * stride) {
    __m256i low = _mm512_cvtepi32_epi16((__m512i)narrow(load(key + d)));
    __m256i high = _mm512_cvtepi32_epi16((__m512i)narrow(load(key + d + 16)));
    _mm512_i32scatter_epi32((int*)to, at, _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1), 4);
  }
}

// Write a value to every other bfloat16. `size` is a multiple of 16.
ROSE_INLINE void put_every_other(const float* value, int64_t size, uint16_t* to) {
  for (int64_t d = 0; d < size; d += 16)
    _mm512_mask_storeu_epi16(to + 2 * d, 0x55555555, (__m512i)narrow(load(value + d)));
}
#endif

// Write the key and the value of a token, each to its block and kv head. Several threads may write tokens of
// one lane: each writes only its own bytes.
template <class L>
void write_token(const Layout<L>& layout, int64_t t, const float* key, const float* value, typename L::Stored* keys,
                 typename L::Stored* values) {
  if constexpr (L::PER_LANE == 2) {
    if (layout.is_by_lane) {
#if defined(ROSE_SCATTERS)
      if (layout.key_size % 32 == 0) {
        put_pairs(key, layout.key_size, (uint32_t*)keys + t, layout.block_size);
        return put_every_other(value, layout.value_size, values + t / 2 * layout.value_size * 2 + t % 2);
      }
#endif
      for (int64_t d = 0; d < layout.key_size; d += 2)
        ((uint32_t*)keys)[d / 2 * layout.block_size + t] = narrow(key[d]) | (uint32_t)narrow(key[d + 1]) << 16;
      uint16_t* to = values + t / 2 * layout.value_size * 2 + t % 2;
      for (int64_t d = 0; d < layout.value_size; d++) to[d * 2] = narrow(value[d]);
      return;
    }
  }
  for (int64_t d = 0; d < layout.key_size; d++) put(keys + layout.key(t, d), key[d]);
  for (int64_t d = 0; d < layout.value_size; d++) put(values + layout.value(t, d), value[d]);
}
