// What attention in tiles of AMX computes: products, and the softmax of a row's scores in a run.
#pragma once
#include "attention_rows.h"
#include "linear_amx.h"

#if defined(ROSE_AMX) && defined(__AMX_INT8__) && defined(__AVX512BF16__) && \
    defined(__AVX512DQ__) && defined(__AVX512VBMI__)
#define ROSE_TILES
#endif
#if defined(ROSE_TILES)
namespace tiles {

constexpr int RUN = 128;              // most keys of a run
constexpr int PIECE = 16, UNIT = 32;  // keys of a tile of keys, and of a tile of values
constexpr int PIECES = RUN / PIECE;

constexpr float LOWEST = -200;  // 2^-200 is 0 in float32

// 2^x for x <= 0 with a relative error below 1e-4, a twentieth of bfloat16's rounding. NaN stays
// NaN. Minimax polynomial of 2^r - 1 over r in [0, 1].
ROSE_INLINE __m512 power(__m512 x) {
  constexpr int FRACTION = 9;  // x - floor(x)
  x = _mm512_max_ps(_mm512_set1_ps(LOWEST), x);
  __m512 r = _mm512_reduce_ps(x, FRACTION), p = _mm512_set1_ps(7.706704e-2f);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(2.2764499e-1f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(6.9511679e-1f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
  return _mm512_scalef_ps(p, x);  // p * 2^floor(x)
}

// acc = the result of the keys of both; see attention.h. Always called in the order of the runs.
__attribute__((noinline)) inline void fold(float* acc, const float* part, int64_t value_dim) {
  if (part[1] == 0) return;
  float base = std::max(acc[0], part[0]);
  // 2^x with a relative error below 1e-7, of both factors
  __m128 x = _mm_max_ps(_mm_set1_ps(LOWEST), _mm_set_ps(0, 0, part[0] - base, acc[0] - base));
  __m128 r = _mm_reduce_ps(x, 9), p = _mm_set1_ps(1.86713e-3f);
  p = _mm_fmadd_ps(p, r, _mm_set1_ps(9.01703e-3f));
  p = _mm_fmadd_ps(p, r, _mm_set1_ps(5.579991e-2f));
  p = _mm_fmadd_ps(p, r, _mm_set1_ps(2.4016445e-1f));
  p = _mm_fmadd_ps(p, r, _mm_set1_ps(6.9315131e-1f));
  p = _mm_fmadd_ps(p, r, _mm_set1_ps(1.0f));
  p = _mm_scalef_ps(p, x);
  float a = p[0], b = p[1];
  __m512 va = _mm512_set1_ps(a), vb = _mm512_set1_ps(b);
  acc[0] = base;
  acc[1] = acc[1] * a + part[1] * b;
  for (int64_t d = 2; d < value_dim + 2; d += 16)
    _mm512_storeu_ps(acc + d, _mm512_fmadd_ps(_mm512_loadu_ps(acc + d), va,
                                              _mm512_mul_ps(_mm512_loadu_ps(part + d), vb)));
}

ROSE_INLINE uint32_t below(int n) { return n >= 16 ? 0xffff : n <= 0 ? 0 : (1u << n) - 1; }

// Turn the scores of keys into weights: those of the visible keys `start` to `end`, and 0 for the
// others of the units from `first` to `last`. The weights, but not their sum, are multiplied by
// `factors`, if there are any.
template <bool IS_ALL, bool HAS_FACTORS>
ROSE_INLINE void weigh_some(const float* scores, const float* factors, int start, int end,
                            int first, int last, float* result, uint16_t* weights) {
  first = IS_ALL ? 0 : first * 2;
  last = IS_ALL ? PIECES : last * 2;
  __m512 s[PIECES], high = _mm512_set1_ps(MINUS_INFINITY), sum = _mm512_setzero_ps();
#pragma GCC unroll 8
  for (int i = first; i < last; i++) {
    s[i] = _mm512_load_ps(scores + i * PIECE);
    if (!IS_ALL) {
      __mmask16 seen = (__mmask16)(below(end - i * PIECE) & ~below(start - i * PIECE));
      s[i] = _mm512_mask_mov_ps(_mm512_set1_ps(MINUS_INFINITY), seen, s[i]);
    }
    high = _mm512_max_ps(high, s[i]);
  }
  float base = _mm512_reduce_max_ps(high) * LOG2_E;
  __m512 shift = _mm512_set1_ps(-base);
#pragma GCC unroll 8
  for (int i = first; i < last; i += 2) {
    __m512 a = power(_mm512_fmadd_ps(s[i], _mm512_set1_ps(LOG2_E), shift));
    __m512 b = power(_mm512_fmadd_ps(s[i + 1], _mm512_set1_ps(LOG2_E), shift));
    sum = _mm512_add_ps(_mm512_add_ps(sum, a), b);
    if (HAS_FACTORS) {
      a = _mm512_mul_ps(a, _mm512_load_ps(factors + i * PIECE));
      b = _mm512_mul_ps(b, _mm512_load_ps(factors + i * PIECE + PIECE));
    }
    _mm512_store_si512(weights + i * PIECE, (__m512i)_mm512_cvtne2ps_pbh(b, a));
  }
  result[0] = base;
  result[1] = _mm512_reduce_add_ps(sum);
}

template <bool HAS_FACTORS>
__attribute__((noinline)) inline void weigh(const float* scores, const float* factors, int start,
                                            int end, int first, int last, float* result,
                                            uint16_t* weights) {
  if (start <= 0 && end >= RUN) {
    weigh_some<true, HAS_FACTORS>(scores, factors, start, end, first, last, result, weights);
  } else if (start < end) {
    weigh_some<false, HAS_FACTORS>(scores, factors, start, end, first, last, result, weights);
  } else {
    std::fill(weights + first * UNIT, weights + last * UNIT, 0);
    result[0] = MINUS_INFINITY;
    result[1] = 0;
  }
}

// Work on rows in equal parts, one after each step of a product: vectors and tiles compute at once.
template <class F>
struct Beside {
  F work;
  int count, each, next = 0;
  Beside(F work, int count, int64_t steps)
      : work(work), count(count), each((int)((count + steps - 1) / steps)) {}
  __attribute__((always_inline)) void step() {
    for (int end = std::min(count, next + each); next < end; next++) work(next);
  }
  void rest() {
    for (; next < count; next++) work(next);
  }
};

// sums[r][c] = a[r] . b[c] for R tiles of rows and two tiles of columns, over `steps` steps of 32
// values; or, with `is_more`, these are added. Strides are in bytes, that of the sums in floats.
template <int R, class F>
ROSE_INLINE void product(const char* a, int64_t lda, const char* left, const char* right,
                         int64_t ldb, int64_t step_b, int64_t steps, float* sums, int64_t ld_sums,
                         bool is_more, F&& after) {
  __asm__ volatile("" : : : "memory");  // GCC 12 does not know that loads of tiles read memory
  if (is_more) {
    _tile_loadd(0, sums, ld_sums * 4);
    _tile_loadd(1, sums + 16, ld_sums * 4);
    if (R == 2) _tile_loadd(2, sums + 16 * ld_sums, ld_sums * 4);
    if (R == 2) _tile_loadd(3, sums + 16 * ld_sums + 16, ld_sums * 4);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    if (R == 2) _tile_zero(2);
    if (R == 2) _tile_zero(3);
  }
  for (int64_t s = 0; s < steps; s++, a += 64, left += step_b, right += step_b) {
    _tile_loadd(4, a, lda);
    _tile_loadd(6, left, ldb);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, right, ldb);
    _tile_dpbf16ps(1, 4, 7);
    if (R == 2) {
      _tile_loadd(5, a + 16 * lda, lda);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
    after(s);
  }
  _tile_stored(0, sums, ld_sums * 4);
  _tile_stored(1, sums + 16, ld_sums * 4);
  if (R == 2) {
    _tile_stored(2, sums + 16 * ld_sums, ld_sums * 4);
    _tile_stored(3, sums + 16 * ld_sums + 16, ld_sums * 4);
  }
}

}  // namespace tiles
#endif
