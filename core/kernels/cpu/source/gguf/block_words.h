// Products of codes and bytes for CPUs that multiply bytes in pairs (AVX2, AVX512BW) but have no
// instruction that adds four products to a sum of 32 bits (VNNI).
//
// There, a quad added to 32 bits takes two multiplications and an addition, and to 16 bits one of
// each: with codes of up to 6 bits 64 rows take 0.6 times as long. Products of codes of 8 bits need
// 32 bits. The integers are the same.
#pragma once
#include "block_rows.h"

#if !defined(ROSE_AMX) &&                                                       \
    ((defined(__AVX512BW__) && !defined(__AVX512VNNI__) && ROSE_WIDTH == 16) || \
     (defined(__AVX2__) && !defined(__AVXVNNI__) && ROSE_WIDTH == 8))
#define ROSE_WORDS
#endif

#if defined(ROSE_WORDS)
namespace {

typedef uint16_t vw __attribute__((
    vector_size(W * 4), may_alias));  // unsigned, since sums may overflow before they are complete

// Have a value computed here. GCC would multiply all quads of a chunk before it adds any, and keep
// the products in memory.
ROSE_INLINE void compute_now(vw& v) {
#if ROSE_WIDTH == 16
  asm("" : "+v"(v));
#else
  asm("" : "+x"(v));
#endif
}

// Two sums in a lane: bytes 0 and 1 of w, unsigned and of up to 7 bits, times those of x, signed;
// and bytes 2 and 3.
ROSE_INLINE vw multiply_halves(vw w, uint32_t x) {
#if ROSE_WIDTH == 16
  return (vw)_mm512_maddubs_epi16((__m512i)w, _mm512_set1_epi32((int)x));
#else
  return (vw)_mm256_maddubs_epi16((__m256i)w, _mm256_set1_epi32((int)x));
#endif
}

// sums[r] += quads I of a chunk, whose quads start at quad `quad` of x.
template <class T, int ROWS, int... I, class From>
ROSE_INLINE void add_words(const From& from, int64_t chunk, const ByteRows& x, int64_t quad,
                           vw (*sums)[2]) {
  auto add = [&](auto index) __attribute__((always_inline)) {
    vu codes[2];
    From::template quad<decltype(index)::value>(from, chunk, codes);
    vw w[2] = {(vw)codes[0], (vw)codes[1]};
    compute_now(w[0]);
    compute_now(w[1]);
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; r++) {
      uint32_t values = ByteRows::quad(x, r, quad + quad_of<T, decltype(index)::value>());
#pragma GCC unroll 2
      for (int h = 0; h < 2; h++) {
        sums[r][h] += multiply_halves(w[h], values);
        compute_now(sums[r][h]);
      }
    }
  };
  (add(std::integral_constant<int, I>()), ...);
}

// Codes of 8 bits, less 128, for sums of 32 bits: acc + their products with x, which is not -128.
// Magnitudes are multiplied by bytes of x with the sign of the code; two products fit in 16 bits.
struct SignedCodes {
  vw codes, magnitudes;
  explicit ROSE_INLINE_MEMBER SignedCodes(vu w) {
    codes = (vw)(w ^ 0x80808080u);
#if ROSE_WIDTH == 16
    magnitudes = (vw)_mm512_abs_epi8((__m512i)codes);
#else
    magnitudes = (vw)_mm256_abs_epi8((__m256i)codes);
#endif
    compute_now(codes);
    compute_now(magnitudes);
  }
  ROSE_INLINE_MEMBER vi add(vi acc, uint32_t x) const {
#if ROSE_WIDTH == 16
    __m512i all = _mm512_set1_epi32((int)x);
    __m512i own =
        _mm512_mask_sub_epi8(all, _mm512_movepi8_mask((__m512i)codes), _mm512_setzero_si512(), all);
    vs pairs = (vs)_mm512_maddubs_epi16((__m512i)magnitudes, own);
#else
    vs pairs = (vs)_mm256_maddubs_epi16(
        (__m256i)magnitudes, _mm256_sign_epi8(_mm256_set1_epi32((int)x), (__m256i)codes));
#endif
    return dot_int16(acc, pairs, (vs)(vu{} + 0x00010001u));
  }
};

// dots[r] += quads I of a chunk of such codes.
template <class T, int ROWS, int... I, class From>
ROSE_INLINE void add_signed(const From& from, int64_t chunk, const ByteRows& x, int64_t quad,
                            vi (*dots)[2]) {
  auto add = [&](auto index) __attribute__((always_inline)) {
    vu codes[2];
    From::template quad<decltype(index)::value>(from, chunk, codes);
    const SignedCodes w[2] = {SignedCodes(codes[0]), SignedCodes(codes[1])};
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; r++) {
      uint32_t values = ByteRows::quad(x, r, quad + quad_of<T, decltype(index)::value>());
#pragma GCC unroll 2
      for (int h = 0; h < 2; h++) {
        vi sum = w[h].add(dots[r][h], values);
        compute_now((vw&)sum);
        dots[r][h] = sum;
      }
    }
  };
  (add(std::integral_constant<int, I>()), ...);
}

// The sum of both halves of each lane: of `low` in the lower half, and of `high` in the upper one.
// Halves may have overflowed.
ROSE_INLINE vs join_halves(vw low, vw high) {
  low += (vw)((vu)low >> 16);
  high += (vw)((vu)high << 16);
#if ROSE_WIDTH == 16
  return (vs)_mm512_mask_blend_epi16(0xaaaaaaaa, (__m512i)low, (__m512i)high);
#else
  return (vs)_mm256_blend_epi16((__m256i)low, (__m256i)high, 0xaa);
#endif
}

}  // namespace
#endif
