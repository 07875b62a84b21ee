// float16 (IEEE 754).
#pragma once
#include "vec.h"

#include <algorithm>

namespace {

// float16 to float32, exactly.
ROSE_INLINE vf load_half(const char* p) {
#if defined(__AVX512F__) && ROSE_WIDTH == 16
  return (vf)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p));
#elif defined(__F16C__) && ROSE_WIDTH == 8
  return (vf)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p));
#else
  vu bits = __builtin_convertvector(*(const vh_u*)p, vu), size = bits & 0x7fff;
  vu special = (vu)(size >= 0x7c00) & 0x7f800000;  // infinity and NaN
  vu value = (vu)((vf)(size << 13) * 0x1p112f) | special;
  return (vf)(value | (bits & 0x8000) << 16);
#endif
}
ROSE_INLINE float widen_half(uint16_t bits) {
#if defined(__F16C__)
  return _cvtsh_ss(bits);
#else
  uint32_t size = bits & 0x7fff, value = size << 13;
  float f;
  memcpy(&f, &value, 4);
  f *= 0x1p112f;
  memcpy(&value, &f, 4);
  if (size >= 0x7c00) value |= 0x7f800000;
  value |= (uint32_t)(bits & 0x8000) << 16;
  memcpy(&f, &value, 4);
  return f;
#endif
}

// float32 to float16, to nearest, ties to even. Values are finite; those that are too large become
// the largest.
ROSE_INLINE uint16_t narrow_half(float f) {
  uint32_t bits, sign;
  memcpy(&bits, &f, 4);
  sign = bits >> 16 & 0x8000;
  float size = std::min(std::fabs(f), 65504.0f);
  if (size < 0x1p-14f) return (uint16_t)(sign | (uint32_t)std::lrintf(size * 0x1p24f));
  memcpy(&bits, &size, 4);
  bits += 0xfff + (bits >> 13 & 1);
  return (uint16_t)(sign | ((bits >> 13) - (112 << 10)));
}
// The same for W values.
ROSE_INLINE void store_half(char* p, vf v) {
#if defined(__AVX512F__) && ROSE_WIDTH == 16
  _mm256_storeu_si256((__m256i*)p,
                      _mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#elif defined(__F16C__) && ROSE_WIDTH == 8
  _mm_storeu_si128((__m128i*)p, _mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT));
#else
  for (int lane = 0; lane < W; lane++) {
    uint16_t bits = narrow_half(v[lane]);
    memcpy(p + lane * 2, &bits, 2);
  }
#endif
}

}  // namespace
