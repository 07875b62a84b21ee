// The best value of a row: the largest, and of equal ones the first.
#pragma once
#include "vec.h"

#include <algorithm>

// In place of a token; see core/sampling/greedy.py.
constexpr int64_t FAILED = -1, MASKED = -3;

// The largest of some values, and the number of the first one that is so large. Both are undefined
// with a NaN.
struct Best {
  float value = -std::numeric_limits<float>::infinity();
  bool has_nan = false;
  int64_t id = std::numeric_limits<int64_t>::max();
};

// The vector that starts `left` values before the end of a row; -inf after the end.
ROSE_INLINE vf load_until(const float* p, int64_t left) {
  if (left >= W) return load(p);
  vf v = splat(-std::numeric_limits<float>::infinity());
  for (int64_t lane = 0; lane < left; lane++) v[lane] = p[lane];
  return v;
}

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
  Best best{largest(high), any(nan)};
  for (int lane = 0; lane < W; lane++)
    if (high[lane] == best.value) best.id = std::min(best.id, start + at[lane] + lane);
  return best;
}

// The better one of two, whose values have different numbers.
inline Best better(const Best& a, const Best& b) {
  Best best = b.value > a.value || (b.value == a.value && b.id < a.id) ? b : a;
  best.has_nan = a.has_nan || b.has_nan;
  return best;
}

// Update `best` with n more values, whose columns begin with `start`. The usual case is that none
// of them is larger.
inline void improve(Best& best, const float* x, int64_t n, int64_t start) {
  vi is_below = ~vi{};
  for (int64_t i = 0; i < n; i += W) is_below &= load_until(x + i, n - i) < best.value;
  if (any(~is_below)) best = better(best, best_of(x, n, start));
}

// The number of the best value. FAILED if there is NaN or infinity, MASKED if there is only -inf.
inline int64_t token_of(const Best& best) {
  if (best.has_nan || best.value == std::numeric_limits<float>::infinity()) return FAILED;
  return best.value == -std::numeric_limits<float>::infinity() ? MASKED : best.id;
}
