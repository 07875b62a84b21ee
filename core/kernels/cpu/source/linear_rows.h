// Rows of x in the form that a layout of packed weights multiplies, and what else the products share.
#pragma once
#include "packed.h"
#include "scratch.h"

#include <algorithm>

namespace {

// Rows of x: row stride `ldx` in steps, `lds` scales per row.
template <class P>
struct Rows {
  const typename P::Activation* x;
  int64_t ldx;
  const float* scales;
  int64_t lds;
  Rows from(int64_t row) const { return {x + row * ldx, ldx, scales + row * lds, lds}; }
};

// Weights to prefetch while others are multiplied: some cache lines with every few steps.
struct Prefetch {
  const char* at = nullptr;
  int64_t lines = 0;
  void fetch() {
    for (int64_t i = 0; i < lines; i++, at += 64) __builtin_prefetch(at, 0, 2);
  }
};

// Convert a row of x to the form that a layout multiplies, and write its scales if the layout has any. The
// values are padded with zeros to whole steps.
ROSE_INLINE void prepare(PackedFloat32, const float*, int64_t, float*, float*) {}

ROSE_INLINE void prepare(PackedBFloat16, const float* x, int64_t K, typename PackedBFloat16::Activation* out, float*) {
  uint16_t* to = (uint16_t*)out;
  int64_t k = 0;
  for (; k + W <= K; k += W) store(to + k, load(x + k));
  for (; k < K; k++) to[k] = narrow(x[k]);
  for (; k < steps_of<PackedBFloat16>(K) * PackedBFloat16::K_PER_STEP; k++) to[k] = 0;
}

// A run with NaN or infinity gets a scale of NaN, which makes its products NaN.
ROSE_INLINE void prepare(PackedInt8, const float* x, int64_t K, uint32_t* out, float* scales) {
  constexpr float MOST = 32767, ROUND = 12582912.0f;  // 1.5 * 2^23: rounds to an integer
  int16_t* to = (int16_t*)out;
  for (int64_t first = 0; first < K; first += PackedInt8::SUMMED, scales++) {
    int64_t last = std::min(first + PackedInt8::SUMMED, K), k = first;
    vf most = vf{}, odd = vf{};
    for (; k + W <= last; k += W) {
      vf v = load(x + k);
      odd += v * 0;
      most = max(most, max(v, -v));
    }
    float highest = largest(most), none = sum(odd);
    for (; k < last; k++) {
      none += x[k] * 0;
      highest = std::max(highest, std::fabs(x[k]));
    }
    *scales = highest / MOST + none;
    // smaller values are rounded to zero: their factor could overflow
    float factor = highest > 1e-30f ? MOST / highest : 0;
    for (k = first; k + W <= last; k += W) {
      vi rounded = (vi)(load(x + k) * factor + ROUND) - 0x4b400000;
      *(vs_half_u*)(to + k) = __builtin_convertvector(rounded, vs_half_u);
    }
    for (; k < last; k++) to[k] = (int16_t)std::lrintf(none == 0 ? x[k] * factor : 0);
  }
  if (K % 2) to[K] = 0;
}

}  // namespace
