// The largest values of a row.
#pragma once
#include "vec.h"

#include <algorithm>
#include <functional>

namespace {

constexpr int64_t BLOCK = 128;  // values whose largest one is found first

ROSE_INLINE int64_t num_blocks(int64_t n) { return (n + BLOCK - 1) / BLOCK; }

// The vector that starts `left` values before the end of a row; -inf after the end.
ROSE_INLINE vf load_until(const float* p, int64_t left) {
  if (left >= W) return load(p);
  vf v = splat(-std::numeric_limits<float>::infinity());
  for (int64_t lane = 0; lane < left; lane++) v[lane] = p[lane];
  return v;
}

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

// In place of a token; see core/sampling/greedy.py.
constexpr int64_t FAILED = -1, MASKED = -3;

// The largest of some values, and the number of the first one that is so large. Both are undefined with a NaN.
struct Best {
  float value;
  bool has_nan;
  int64_t id;
};

// The best of n values (less than 2^31), whose numbers begin with `start`.
inline Best best_of(const float* x, int64_t n, int64_t start) {
  vf high = splat(-std::numeric_limits<float>::infinity());
  vi at = vi{}, nan = vi{};
  for (int64_t i = 0; i < n; i += W) {
    vf v = load_until(x + i, n - i);
    nan |= v != v;
    vi is_better = v > high;
    high = is_better ? v : high;
    at = is_better ? vi{} + (int32_t)i : at;
  }
  Best best{largest(high), any(nan), std::numeric_limits<int64_t>::max()};
  for (int lane = 0; lane < W; lane++)
    if (high[lane] == best.value) best.id = std::min(best.id, start + at[lane] + lane);
  return best;
}

// The better one; `first` has lower numbers.
inline Best better(const Best& first, const Best& second) {
  Best best = second.value > first.value ? second : first;
  best.has_nan = first.has_nan || second.has_nan;
  return best;
}

// The number of the best value. FAILED if there is NaN or infinity, MASKED if there is only -inf.
inline int64_t token_of(const Best& best) {
  if (best.has_nan || best.value == std::numeric_limits<float>::infinity()) return FAILED;
  return best.value == -std::numeric_limits<float>::infinity() ? MASKED : best.id;
}

// The index of `highest`, the first one on ties.
inline int64_t first_of_highest(const float* x, int64_t n, const float* maxima, float highest) {
  int64_t start = (std::find(maxima, maxima + num_blocks(n), highest) - maxima) * BLOCK;
  return std::find(x + start, x + n, highest) - x;
}

// A bound that at least k values reach: the k-th largest maximum of a block. -inf if there are fewer blocks.
// Changes the order of `maxima`.
inline float bound_of_top(int64_t k, float* maxima, int64_t count) {
  if (k > count) return -std::numeric_limits<float>::infinity();
  std::nth_element(maxima, maxima + k - 1, maxima + count, std::greater<float>());
  return maxima[k - 1];
}

}  // namespace
