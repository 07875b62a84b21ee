// int8 keys and values for attention in tiles of AMX.
//
// A query is 16-bit integers times a factor. Their high bytes (signed) and low bytes (unsigned) are
// multiplied with the bytes of the keys, and the sums are exact. Values become bfloat16, which is
// exact too, and their scales are multiplied into the weights.
#pragma once
#include "attention_tile_ops.h"

#if defined(ROSE_TILES)
namespace tiles {

// Write the high and the low bytes of n values of a query times `scale`; return the factor of the
// integers.
ROSE_INLINE float write_query(const float* from, int64_t n, float scale, int8_t* high,
                              int8_t* low) {
  __m512 most = _mm512_setzero_ps(), finite = _mm512_setzero_ps();
  for (int64_t d = 0; d < n; d += 16) {
    __m512 v = _mm512_loadu_ps(from + d);
    most = _mm512_max_ps(most, _mm512_abs_ps(v));
    finite = _mm512_fmadd_ps(v, _mm512_setzero_ps(), finite);
  }
  float found = _mm512_reduce_max_ps(most), factor = found / 32767.0f;
  __m512 inverse = _mm512_set1_ps(factor > 1e-30f ? 1.0f / factor : 0.0f);
  for (int64_t d = 0; d < n; d += 16) {
    __m512i v = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(from + d), inverse));
    _mm_storeu_si128((__m128i*)(high + d), _mm512_cvtepi32_epi8(_mm512_srai_epi32(v, 8)));
    _mm_storeu_si128((__m128i*)(low + d), _mm512_cvtepi32_epi8(v));
  }
  return factor * scale + _mm512_reduce_add_ps(finite);  // NaN if a value is not finite
}

// Sums of R tiles of rows and one tile of keys, over `steps` steps of 64 values. The low bytes of a
// row follow its high ones.
template <int R, class F>
ROSE_INLINE void product_int8(const char* a, int64_t lda, const char* b, int64_t ldb,
                              int64_t step_b, int64_t steps, float* high, float* low,
                              int64_t ld_sums, F&& after) {
  __asm__ volatile("" : : : "memory");
  _tile_zero(0);
  _tile_zero(1);
  if (R == 2) _tile_zero(2);
  if (R == 2) _tile_zero(3);
  for (int64_t s = 0; s < steps; s++, a += 64, b += step_b) {
    _tile_loadd(6, b, ldb);
    _tile_loadd(4, a, lda);
    _tile_dpbssd(0, 4, 6);
    _tile_loadd(5, a + lda / 2, lda);
    _tile_dpbusd(1, 5, 6);
    if (R == 2) {
      _tile_loadd(4, a + 16 * lda, lda);
      _tile_dpbssd(2, 4, 6);
      _tile_loadd(5, a + 16 * lda + lda / 2, lda);
      _tile_dpbusd(3, 5, 6);
    }
    after(s);
  }
  _tile_stored(0, high, ld_sums * 4);
  _tile_stored(1, low, ld_sums * 4);
  if (R == 2) {
    _tile_stored(2, high + 16 * ld_sums, ld_sums * 4);
    _tile_stored(3, low + 16 * ld_sums, ld_sums * 4);
  }
}

// Replace the sums of the high bytes by scores in float32, for the pieces from `first` to `last`.
inline void join_sums(float* high, const float* low, const float* key_scales, float factor,
                      int first, int last) {
  for (int i = first * PIECE; i < last * PIECE; i += PIECE) {
    __m512i sum = _mm512_add_epi32(_mm512_slli_epi32(_mm512_load_si512(high + i), 8),
                                   _mm512_load_si512(low + i));
    __m512 scale = _mm512_mul_ps(_mm512_load_ps(key_scales + i), _mm512_set1_ps(factor));
    _mm512_store_ps(high + i, _mm512_mul_ps(_mm512_cvtepi32_ps(sum), scale));
  }
}

// int8 to bfloat16, by tables of the bytes of 0 to 127.
struct ToBFloat16 {
  __m512i low[2], high[2];
  ToBFloat16() {
    alignas(64) uint8_t bytes[2][128];
    for (int i = 0; i < 128; i++) {
      uint16_t value = narrow((float)i);
      bytes[0][i] = (uint8_t)value;
      bytes[1][i] = (uint8_t)(value >> 8);
    }
    for (int i = 0; i < 2; i++) {
      low[i] = _mm512_load_si512(bytes[0] + i * 64);
      high[i] = _mm512_load_si512(bytes[1] + i * 64);
    }
  }
  // 16 lanes of four tokens to two rows of 16 lanes of two tokens.
  __attribute__((always_inline)) void operator()(__m512i x, char* first, char* second) const {
    __m512i magnitude = _mm512_abs_epi8(x);
    __m512i l = _mm512_permutex2var_epi8(low[0], magnitude, low[1]);
    __m512i h = _mm512_permutex2var_epi8(high[0], magnitude, high[1]);
    h = _mm512_ternarylogic_epi32(h, x, _mm512_set1_epi8((char)0x80), 0xf8);  // h | (x & 0x80)
    __m512 even = (__m512)_mm512_unpacklo_epi8(l, h), odd = (__m512)_mm512_unpackhi_epi8(l, h);
    _mm512_store_ps(first, _mm512_shuffle_ps(even, odd, 0x88));
    _mm512_store_ps(second, _mm512_shuffle_ps(even, odd, 0xdd));
  }
};

}  // namespace tiles
#endif
