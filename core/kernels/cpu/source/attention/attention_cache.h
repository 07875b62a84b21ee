// How keys and values are stored in the cache.
//
// A lane is 4 bytes: one float32, two bfloat16, or four int8. The keys of a block and kv head are
// stored by dimension, one lane per token: lane t of step s is dimension s of token t, or
// dimensions 2s and 2s + 1, or 4s to 4s + 3. Values are stored by token, one lane per dimension:
// lane d of step s is token s, or tokens 2s and 2s + 1, or 4s to 4s + 3. So a vector is W keys or W
// dimensions of values, the query's values and the weights are broadcast, and every sum runs over
// dimensions or tokens in order, for any number of rows.
#pragma once
#include "vec.h"

// `Value` is the type of a query's value or a weight, `Factor` is what is broadcast in a step, and
// `value` is a sum in float32.
struct FloatSums {
  using Sum = vf;
  ROSE_INLINE vf value(vf sum) { return sum; }
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

// int8 with a scale per token and head. Queries and weights are integers of 16 bits with a factor;
// see attention_int8.h. A factor of four has the values 0 and 2, then 1 and 3. Sums are exact.
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
};

ROSE_INLINE void put(float* to, float x) { *to = x; }
ROSE_INLINE void put(uint16_t* to, float x) { *to = narrow(x); }

// The place of value d of token t within a block and kv head. Blocks and heads that are not
// multiples of the vector width are stored by token, and are copied before they are read.
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
// 32 values in bfloat16.
ROSE_INLINE __m512i rounded_pairs(const float* x) {
#if defined(__AVX512BF16__)
  return (__m512i)_mm512_cvtne2ps_pbh((__m512)load(x + 16), (__m512)load(x));
#else
  __m256i low = _mm512_cvtepi32_epi16((__m512i)narrow(load(x)));
  __m256i high = _mm512_cvtepi32_epi16((__m512i)narrow(load(x + 16)));
  return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
#endif
}

// Write pairs of dimensions of a key to every `stride`-th lane. `size` is a multiple of 32.
ROSE_INLINE void put_pairs(const float* key, int64_t size, uint32_t* to, int64_t stride) {
  const __m512i at =
      _mm512_mullo_epi32(_mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0),
                         _mm512_set1_epi32((int32_t)stride));
  for (int64_t d = 0; d < size; d += 32, to += 16 * stride)
    _mm512_i32scatter_epi32((int*)to, at, rounded_pairs(key + d), 4);
}

// Lane j of row i becomes lane i of row j.
ROSE_INLINE void transpose(__m512i (&rows)[16]) {
  __m512i pairs[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    pairs[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
    pairs[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
  }
  __m512i fours[16];  // fours[i + j] has lane 4 * k + j of rows i to i + 3 in its k-th four lanes
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    fours[i] = _mm512_unpacklo_epi64(pairs[i], pairs[i + 2]);
    fours[i + 1] = _mm512_unpackhi_epi64(pairs[i], pairs[i + 2]);
    fours[i + 2] = _mm512_unpacklo_epi64(pairs[i + 1], pairs[i + 3]);
    fours[i + 3] = _mm512_unpackhi_epi64(pairs[i + 1], pairs[i + 3]);
  }
  constexpr int EVEN = 0x88, ODD = 0xdd;
#pragma GCC unroll 4
  for (int j = 0; j < 4; j++) {
    __m512i low = _mm512_shuffle_i32x4(fours[j], fours[j + 4], EVEN),
            high = _mm512_shuffle_i32x4(fours[j + 8], fours[j + 12], EVEN);
    rows[j] = _mm512_shuffle_i32x4(low, high, EVEN);
    rows[j + 8] = _mm512_shuffle_i32x4(low, high, ODD);
    low = _mm512_shuffle_i32x4(fours[j], fours[j + 4], ODD),
    high = _mm512_shuffle_i32x4(fours[j + 8], fours[j + 12], ODD);
    rows[j + 4] = _mm512_shuffle_i32x4(low, high, EVEN);
    rows[j + 12] = _mm512_shuffle_i32x4(low, high, ODD);
  }
}

// Write pairs of values of `count` keys, `key_token` values apart, to lanes from `first` on of a
// vector of lanes.
inline void put_keys(const float* keys, int64_t key_token, int first, int count, int64_t size,
                     uint32_t* to, int64_t stride) {
  __mmask16 lanes = (__mmask16)(((1u << count) - 1) << first);
  for (int64_t d = 0; d < size; d += 32, to += 16 * stride) {
    __m512i rows[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) {
      bool is_there = i >= first && i < first + count;
      rows[i] =
          is_there ? rounded_pairs(keys + (i - first) * key_token + d) : _mm512_setzero_si512();
    }
    transpose(rows);
#pragma GCC unroll 16
    for (int s = 0; s < 16; s++) _mm512_mask_storeu_epi32(to + s * stride, lanes, rows[s]);
  }
}

// Write a value to every other bfloat16. `size` is a multiple of 16.
ROSE_INLINE void put_every_other(const float* value, int64_t size, uint16_t* to) {
  for (int64_t d = 0; d < size; d += 16) {
#if defined(__AVX512BF16__)
    __m512i rounded = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh((__m512)load(value + d)));
#else
    __m512i rounded = (__m512i)narrow(load(value + d));
#endif
    _mm512_mask_storeu_epi16(to + 2 * d, 0x55555555, rounded);
  }
}

// Write the values of two tokens to the lanes of both.
ROSE_INLINE void put_both(const float* even, const float* odd, int64_t size, uint32_t* to) {
  for (int64_t d = 0; d < size; d += 16) {
#if defined(__AVX512BF16__)
    const __m512i order =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                         21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    __m512i both = (__m512i)_mm512_cvtne2ps_pbh((__m512)load(odd + d), (__m512)load(even + d));
    _mm512_storeu_si512(to + d, _mm512_permutexvar_epi16(order, both));
#else
    *(vu_u*)(to + d) = narrow(load(odd + d)) << 16 | narrow(load(even + d));
#endif
  }
}
#endif

// Write the key and the value of a token, each to its block and kv head. Several threads may write
// tokens of one lane: each writes only its own bytes.
template <class L>
void write_token(const Layout<L>& layout, int64_t t, const float* key, const float* value,
                 typename L::Stored* keys, typename L::Stored* values) {
  if constexpr (L::PER_LANE == 2) {
    if (layout.is_by_lane) {
      for (int64_t d = 0; d < layout.key_size; d += 2)
        ((uint32_t*)keys)[d / 2 * layout.block_size + t] =
            narrow(key[d]) | (uint32_t)narrow(key[d + 1]) << 16;
      uint16_t* to = values + t / 2 * layout.value_size * 2 + t % 2;
      for (int64_t d = 0; d < layout.value_size; d++) to[d * 2] = narrow(value[d]);
      return;
    }
  }
  for (int64_t d = 0; d < layout.key_size; d++) put(keys + layout.key(t, d), key[d]);
  for (int64_t d = 0; d < layout.value_size; d++) put(values + layout.value(t, d), value[d]);
}

// Keys and values of tokens that follow each other: those of the first, and the distances from one
// to the next.
struct States {
  const float *key, *value;
  int64_t key_token, value_token;
};

// Write tokens `t` to `t` + `count` of a block and kv head. They are in one vector of lanes.
template <class L>
void write_tokens(const Layout<L>& layout, int64_t t, int64_t count, const States& from,
                  typename L::Stored* keys, typename L::Stored* values) {
#if defined(ROSE_SCATTERS)
  if constexpr (L::PER_LANE == 2) {
    constexpr int FEW = 3;  // are faster one by one
    if (layout.is_by_lane && layout.key_size % 32 == 0) {
      uint32_t* key_lanes = (uint32_t*)keys + t;
      if (count > FEW) {
        put_keys(from.key, from.key_token, (int)(t % W), (int)count, layout.key_size,
                 key_lanes - t % W, layout.block_size);
      } else {
        for (int64_t i = 0; i < count; i++)
          put_pairs(from.key + i * from.key_token, layout.key_size, key_lanes + i,
                    layout.block_size);
      }
      for (int64_t i = 0; i < count;) {
        const float* value = from.value + i * from.value_token;
        uint16_t* to = values + (t + i) / 2 * layout.value_size * 2;
        bool is_odd = (t + i) % 2, has_both = !is_odd && i + 1 < count;
        if (has_both)
          put_both(value, value + from.value_token, layout.value_size, (uint32_t*)to);
        else
          put_every_other(value, layout.value_size, to + is_odd);
        i += 1 + has_both;
      }
      return;
    }
  }
#endif
  for (int64_t i = 0; i < count; i++)
    write_token(layout, t + i, from.key + i * from.key_token, from.value + i * from.value_token,
                keys, values);
}
