// Rows of x in the form that a layout of packed weights multiplies, and what else the products
// share.
#pragma once
#include "packed.h"
#include "scratch.h"

#include <algorithm>
#include <type_traits>

namespace {

// Rows of x: row stride `ldx` in activations, `lds` scales per row.
template <class P>
struct Rows {
  const typename P::Activation* x;
  int64_t ldx;
  const float* scales;
  int64_t lds;
  Rows from(int64_t row) const { return {x + row * ldx, ldx, scales + row * lds, lds}; }
  // What the sums of a run start at, if IS_ROTATED: numbers behind the scales.
  ROSE_INLINE_MEMBER int32_t start(int64_t row, int64_t run) const {
    return ((const int32_t*)scales)[row * lds + lds / 2 + run];
  }
};

// Weights to prefetch while others are multiplied: some cache lines with every few steps. After
// those before `end` come those from `then` on.
struct Prefetch {
  const char* at = nullptr;
  int64_t lines = 0;
  const char *end = nullptr, *then = nullptr;
  void fetch() {
    if (lines && at == end) at = then;
    for (int64_t i = 0; i < lines; i++, at += 64) __builtin_prefetch(at, 0, 2);
  }
};

// Weights that a tile prefetches: `lines` cache lines with every `gap` steps, as evenly as
// possible: bursts would keep the loads of this tile from the L2 cache waiting. Not to the L2 cache
// alone: beside such prefetches, Zen 4 loses a tenth of the rate of products.
struct Ahead {
  const char *at = nullptr, *end = nullptr;
  int64_t gap = 1 << 30, lines = 0;
  ROSE_INLINE_MEMBER void fetch() {
    if (at >= end) return;
    for (int64_t i = 0; i < lines; i++, at += 64) __builtin_prefetch(at);
  }
};

// Convert a row of x to the form that a layout multiplies, and write its scales if the layout has
// any. The values are padded with zeros to whole steps. Whole vectors are written.
ROSE_INLINE void prepare(PackedFloat32, const float*, int64_t, float*, float*) {}

ROSE_INLINE void prepare(PackedBFloat16, const float* x, int64_t K,
                         typename PackedBFloat16::Activation* out, float*) {
  uint16_t* to = (uint16_t*)out;
  int64_t k = 0;
  for (; k + W <= K; k += W) store_rounded(to + k, load(x + k));
  for (; k < K; k++) to[k] = narrow(x[k]);
  for (; k < steps_of<PackedBFloat16>(K) * PackedBFloat16::K_PER_STEP; k++) to[k] = 0;
}

#if defined(ROSE_BYTES)
ROSE_INLINE void prepare(PackedInt8, const float* x, int64_t K, uint32_t* out, float* scales) {
  using P = PackedInt8;
  int8_t* codes = (int8_t*)out;
  int32_t* starts = (int32_t*)scales + (K + P::SUMMED - 1) / P::SUMMED;
  for (int64_t first = 0; first < K; first += P::SUMMED) {
    alignas(64) float run[P::SUMMED + W];
    int64_t count = std::min(P::SUMMED, K - first);
    rotate(x + first, count, run);
    store(run + count, vf{});
    Range range(run, 0, count);
    *scales++ = range.template scale<P::MOST>();
    float factor = range.template factor<P::MOST>();
    vi total = vi{};
    for (int64_t k = 0; k < count; k += W) {
      vi values = nearest(load(run + k) * factor);
      *(vb_w_u*)(codes + first + k) = __builtin_convertvector(values, vb_w_u);
      total += values;
    }
    int32_t sum = 0;
    for (int i = 0; i < W; i++) sum += total[i];
    *starts++ = -128 * sum;
  }
}
#else
#if defined(ROSE_AMX)
ROSE_INLINE void store_values(PackedInt8, int8_t* out, int64_t k, vi values) {
  int8_t* to = out + k / 64 * 128 + k % 64;
  vi low = values << 24 >> 24;
  *(vb_w_u*)to = __builtin_convertvector((values - low) >> 8, vb_w_u);
  *(vb_w_u*)(to + 64) = __builtin_convertvector(low, vb_w_u);
}
#else
ROSE_INLINE void store_values(PackedInt8, int16_t* out, int64_t k, vi values) {
  *(vs_half_u*)(out + k) = __builtin_convertvector(values, vs_half_u);
}
#endif

ROSE_INLINE void prepare(PackedInt8, const float* x, int64_t K, uint32_t* out, float* scales) {
  using P = PackedInt8;
  using Value = std::conditional_t<P::PARTS == 2, int8_t, int16_t>;
  for (int64_t first = 0; first < K; first += P::SUMMED) {
    int64_t last = std::min(first + P::SUMMED, K), k = first;
    Range range(x, first, last);
    *scales++ = range.template scale<P::MOST>();
    float factor = range.template factor<P::MOST>();
    for (; k + W <= last; k += W) store_values(P(), (Value*)out, k, nearest(load(x + k) * factor));
    if (k == last) continue;
    vi rest = vi{};
    for (int i = 0; k + i < last; i++)
      rest[i] = range.odd == 0 ? (int32_t)std::lrintf(x[k + i] * factor) : 0;
    store_values(P(), (Value*)out, k, rest);
  }
  for (int64_t k = (K + W - 1) / W * W; k < steps_of<P>(K) * P::K_PER_STEP; k += W)
    store_values(P(), (Value*)out, k, vi{});
}
#endif

}  // namespace
