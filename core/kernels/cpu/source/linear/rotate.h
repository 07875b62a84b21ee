// Rotation of rows before they are rounded to 8 bits: random signs, then a Hadamard matrix for each
// block of columns.
//
// It is orthogonal, so a product of rotated rows is the product of the rows. It spreads a large
// value over its block, so that the others are not rounded by that value's step. Ashkboos et al.,
// QuaRot, 2024.
//
// A block has ROTATED columns. The columns behind the last one are blocks of 128, 64, 32 and 16,
// and fewer than 16 stay.
#pragma once
#include "vec.h"

#include <utility>

namespace {

constexpr int64_t ROTATED = 256;

// 1 or -1 for each column of a block: bits of a linear congruential generator.
struct Signs {
  alignas(64) float values[ROTATED] = {};
  constexpr Signs() {
    uint32_t state = 1;
    for (float& value : values) {
      state = state * 1664525u + 1013904223u;
      value = state >> 31 ? -1.0f : 1.0f;
    }
  }
};
inline constexpr Signs SIGNS;

// Values in lanes whose numbers differ in bit D become their sum and their difference.
template <int D, int... LANE>
ROSE_INLINE vf add_lanes(vf v, std::integer_sequence<int, LANE...>) {
  const vf signs = {(LANE & D ? -1.0f : 1.0f)...};
  return v * signs + ROSE_SHUFFLE(v, v, (LANE ^ D)...);
}
template <int D>
ROSE_INLINE vf add_lanes(vf v) {
  return add_lanes<D>(v, std::make_integer_sequence<int, W>());
}

// Vectors whose numbers differ in bits from D on become their sum and their difference.
template <int D, int COUNT>
ROSE_INLINE void add_vectors(vf (&v)[COUNT]) {
  if constexpr (D < COUNT) {
#pragma GCC unroll 64
    for (int i = 0; i < COUNT; i++) {
      if (i & D) continue;
      vf a = v[i], b = v[i + D];
      v[i] = a + b;
      v[i + D] = a - b;
    }
    add_vectors<2 * D>(v);
  }
}

// y = x times signs and the Hadamard matrix, or the inverse of that. y may be x.
template <int64_t N, bool IS_INVERSE>
void rotate_block(const float* x, float* y) {
  constexpr int COUNT = N / W;
  const vf norm = splat((float)(1 / std::sqrt((double)N)));
  vf v[COUNT];
#pragma GCC unroll 64
  for (int i = 0; i < COUNT; i++) {
    v[i] = load(x + i * W) * norm;
    if (!IS_INVERSE) v[i] *= load(SIGNS.values + i * W);
  }
  add_vectors<1>(v);
#pragma GCC unroll 64
  for (int i = 0; i < COUNT; i++) {
    vf own = add_lanes<1>(v[i]);
    own = add_lanes<2>(own);
#if ROSE_WIDTH >= 8
    own = add_lanes<4>(own);
#endif
#if ROSE_WIDTH == 16
    own = add_lanes<8>(own);
#endif
    if (IS_INVERSE) own *= load(SIGNS.values + i * W);
    store(y + i * W, own);
  }
}

// y = the rotation of K columns, or its inverse. y may be x.
template <bool IS_INVERSE = false>
void rotate(const float* x, int64_t K, float* y) {
  int64_t k = 0;
  for (; k + ROTATED <= K; k += ROTATED) rotate_block<ROTATED, IS_INVERSE>(x + k, y + k);
  auto rest = [&](auto size) {
    constexpr int64_t N = decltype(size)::value;
    if (K - k < N) return;
    rotate_block<N, IS_INVERSE>(x + k, y + k);
    k += N;
  };
  rest(std::integral_constant<int64_t, 128>());
  rest(std::integral_constant<int64_t, 64>());
  rest(std::integral_constant<int64_t, 32>());
  rest(std::integral_constant<int64_t, 16>());
  if (y != x)
    for (; k < K; k++) y[k] = x[k];
}

}  // namespace
