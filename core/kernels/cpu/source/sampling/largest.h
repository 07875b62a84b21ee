// The largest values of a row.
#pragma once
#include "best.h"

#include <algorithm>
#include <functional>

namespace {

constexpr int64_t BLOCK = 128;  // values whose largest one is found first

ROSE_INLINE int64_t num_blocks(int64_t n) { return (n + BLOCK - 1) / BLOCK; }

// What one pass over a row finds. `lowest` is the smallest value above -inf.
struct Extent {
  bool has_nan;
  float highest, lowest;
};

// maxima[b] is the largest value of block b. They are undefined if there is a NaN.
inline Extent block_maxima(const float* x, int64_t n, float* maxima) {
  const vf infinity = splat(std::numeric_limits<float>::infinity());
  vf all_low = infinity, all_high = -infinity;
  vi nan = vi{};
  for (int64_t first = 0; first < n; first += BLOCK) {
    vf high = -infinity;
    for (int64_t i = first; i < std::min(first + BLOCK, n); i += W) {
      vf v = load_until(x + i, n - i);
      nan |= v != v;
      high = max(high, v);
      vf finite = v > -infinity ? v : infinity;
      all_low = finite < all_low ? finite : all_low;
    }
    maxima[first / BLOCK] = largest(high);
    all_high = max(all_high, high);
  }
  return {any(nan), largest(all_high), -largest(-all_low)};
}

// The index of `highest`, the first one on ties.
inline int64_t first_of_highest(const float* x, int64_t n, const float* maxima, float highest) {
  int64_t start = (std::find(maxima, maxima + num_blocks(n), highest) - maxima) * BLOCK;
  return std::find(x + start, x + n, highest) - x;
}

// A bound that at least k values reach: the k-th largest maximum of a block. -inf if there are
// fewer blocks. Changes the order of `maxima`.
inline float bound_of_top(int64_t k, float* maxima, int64_t count) {
  if (k > count) return -std::numeric_limits<float>::infinity();
  std::nth_element(maxima, maxima + k - 1, maxima + count, std::greater<float>());
  return maxima[k - 1];
}

}  // namespace
