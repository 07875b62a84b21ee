// Products of the values of x that are not among the bytes of a narrow type's rows (see ByteRows).
#pragma once
#include "block_product.h"

namespace {

// The values of column k of a chunk, which starts at `block`, in both vectors of the panel.
template <class T>
ROSE_INLINE void read_values(const char* block, int k, vf values[2]) {
  const char* codes = block + T::HEAD;
  vu w[2];
  switch (k / 4) {
    case 0:
      read_quad<T, 0>(codes, w);
      break;
    case 1:
      read_quad<T, 1>(codes, w);
      break;
    case 2:
      read_quad<T, 2>(codes, w);
      break;
    case 3:
      read_quad<T, 3>(codes, w);
      break;
    case 4:
      read_quad<T, 4>(codes, w);
      break;
    case 5:
      read_quad<T, 5>(codes, w);
      break;
    case 6:
      read_quad<T, 6>(codes, w);
      break;
    default:
      read_quad<T, 7>(codes, w);
  }
  vf d[2], m[2];
  load_scales<T>(block, d, m);
  for (int h = 0; h < 2; h++) {
    values[h] = to_float((vi)(w[h] >> 8 * (k % 4) & 0xff) - T::OFFSET) * d[h];
    if constexpr (T::HAS_MIN) values[h] += m[h];
  }
}

// sums[r] += outliers of x[r] * the values of their columns, for `count` rows and a tile, of whose
// chunks `flags` have some.
template <class T>
__attribute__((noinline)) void multiply_outliers(const char* tile, int64_t t, uint32_t flags,
                                                 const ByteRows& x, int64_t count, float* sums) {
  for (; flags; flags &= flags - 1) {
    int chunk = __builtin_ctz(flags), column = -1;
    vf values[2];
    for (int64_t r = 0; r < count; r++) {
      if (!(x.flags[r * x.num_flags + t] >> chunk & 1)) continue;
      const Outlier& own = x.outliers[r * x.num_outliers + t * CHUNKS + chunk];
      if (own.column != column)
        read_values<T>(tile + chunk * T::BLOCK_BYTES, column = own.column, values);
      for (int h = 0; h < 2; h++) {
        float* to = sums + r * PANEL + h * W;
        store(to, load(to) + values[h] * own.value);
      }
    }
  }
}

template <class T>
ROSE_INLINE void add_outliers(const char* tile, int64_t t, const ByteRows& x, int64_t count,
                              float* sums) {
  uint32_t flags = 0;
  for (int64_t r = 0; r < count; r++) flags |= x.flags[r * x.num_flags + t];
  if (flags) multiply_outliers<T>(tile, t, flags, x, count, sums);
}

}  // namespace
