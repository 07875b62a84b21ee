// What rounds a run of a row of x to integers, for products with integer instructions.
#pragma once
#include "vec.h"

#include <algorithm>

namespace {

typedef int8_t vb_w_u __attribute__((vector_size(W), aligned(1), may_alias));

// The largest magnitude of x[first] to x[last - 1], and NaN or zero: whether one of them is not
// finite.
struct Range {
  float highest, odd;
  Range(float highest, float odd) : highest(highest), odd(odd) {}
  Range(const float* x, int64_t first, int64_t last) {
    vf most = vf{}, none = vf{};
    int64_t k = first;
    for (; k + W <= last; k += W) {
      vf v = load(x + k);
      none += v * 0;
      most = max(most, max(v, -v));
    }
    highest = largest(most);
    odd = any(none != none) ? std::numeric_limits<float>::quiet_NaN() : 0;
    for (; k < last; k++) {
      odd += x[k] * 0;
      highest = std::max(highest, std::fabs(x[k]));
    }
  }
  // The scale of integers up to MOST. NaN makes all products of the run NaN.
  template <int MOST>
  float scale() const {
    return highest / MOST + odd;
  }
  // What x is multiplied by. Values that are too small are rounded to zero: their factor could
  // overflow.
  template <int MOST>
  float factor() const {
    return highest > 1e-30f ? MOST / highest : 0;
  }
};

// The nearest integers, ties to even, of values below 2^22: 1.5 * 2^23 leaves no bits for
// fractions.
ROSE_INLINE vi nearest(vf v) { return (vi)(v + 12582912.0f) - 0x4b400000; }

}  // namespace
