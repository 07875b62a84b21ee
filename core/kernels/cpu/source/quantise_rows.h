// Rows of x rounded to 8 bits, for products with integer instructions.
#pragma once
#include "vec.h"

#include <algorithm>

namespace {

typedef int8_t vb_w_u __attribute__((vector_size(W), aligned(1), may_alias));

// Columns of x with a scale in common. The sum of a run's products with bytes fits: 2^7 * 2^8 * 2^8 < 2^31.
constexpr int64_t RUN = 256;

ROSE_INLINE int64_t runs_of(int64_t K) { return (K + RUN - 1) / RUN; }

// The largest magnitude of x[first] to x[last - 1], and NaN or zero: whether one of them is not finite.
struct Range {
  float highest, odd;
  Range(const float* x, int64_t first, int64_t last) {
    vf most = vf{}, none = vf{};
    int64_t k = first;
    for (; k + W <= last; k += W) {
      vf v = load(x + k);
      none += v * 0;
      most = max(most, max(v, -v));
    }
    highest = largest(most);
    odd = sum(none);
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
  // What x is multiplied by. Values that are too small are rounded to zero: their factor could overflow.
  template <int MOST>
  float factor() const {
    return highest > 1e-30f ? MOST / highest : 0;
  }
};

// The nearest integers, ties to even, of values below 2^22: 1.5 * 2^23 leaves no bits for fractions.
ROSE_INLINE vi nearest(vf v) { return (vi)(v + 12582912.0f) - 0x4b400000; }

// Round a row of x: x[k] is close to out[k] * scales[k / RUN], with out[k] from -127 to 127. sums[i] is the sum of
// out over the i-th EACH columns; EACH is a multiple of W. out has `padded` values, at least K; those from K on are
// zero. A run with NaN or infinity gets a scale of NaN.
template <int64_t EACH>
ROSE_INLINE void quantise_row(const float* x, int64_t K, int64_t padded, int8_t* out, float* scales, int32_t* sums) {
  for (int64_t first = 0; first < K; first += RUN) {
    int64_t last = std::min(first + RUN, K), k = first;
    Range range(x, first, last);
    *scales++ = range.template scale<127>();
    float factor = range.template factor<127>();
    for (; k + W <= last; k += W) *(vb_w_u*)(out + k) = __builtin_convertvector(nearest(load(x + k) * factor), vb_w_u);
    for (; k < last; k++) out[k] = (int8_t)std::lrintf(range.odd == 0 ? x[k] * factor : 0);
  }
  std::fill(out + K, out + padded, 0);
  for (int64_t first = 0; first < K; first += EACH) {
    int64_t last = std::min(first + EACH, K), k = first;
    vi some = vi{};
    for (; k + W <= last; k += W) some += __builtin_convertvector(*(const vb_w_u*)(out + k), vi);
    int32_t all = (int32_t)sum(__builtin_convertvector(some, vf));  // exact: below 2^24
    for (; k < last; k++) all += out[k];
    *sums++ = all;
  }
}

}  // namespace
