// A tile of blocks as the bytes that tiles of AMX multiply: once in the L1 cache, for many rows.
//
// Wide types: a group's integer scale is multiplied into its codes, so that a product sums a whole
// tile in integers. The products have up to 14 bits, so they become two planes of digits: value =
// BASE * high + low. With 3 bits of a scale, two products fit in the bytes of 16 bits; so the
// digits of codes of 4 and 5 bits are those of the scale. Narrow types: one plane of code - OFFSET.
#pragma once
#include "amx.h"
#include "block_product.h"

#if defined(ROSE_AMX)
namespace {

typedef uint16_t vus __attribute__((vector_size(W * 4), may_alias));
typedef uint8_t vub __attribute__((vector_size(W * 4), may_alias));

constexpr int64_t PLANE = CHUNKS * EXPANDED;

template <class T>
struct Digits {
  static constexpr bool HAS_SIGN = T::OFFSET != 0;  // of the high digits; the low ones have none
  static constexpr int BASE = HAS_SIGN ? 256 : 8;

  vu scales[2];  // of a group in both vectors of columns; for codes without offset: high and low
                 // digits
  vu low_scales[2];

  explicit Digits(const char* group_scales) {
    for (int h = 0; h < 2; h++) {
      vu s = (vu)load_bytes(group_scales + h * W) & 0xffff, both = s | s << 16;
      scales[h] = HAS_SIGN ? (vu)((vus)both << 8) : both >> 3 & 0x00070007u;
      low_scales[h] = HAS_SIGN ? both : both & 0x00070007u;
    }
  }

  // Write the digits of a quad of W columns.
  ROSE_INLINE_MEMBER void put(int h, vu codes, char* high, char* low) const {
    if constexpr (HAS_SIGN) {
      vu even_bytes = vu{} + 0x00ff00ffu, c = (vu)((vub)codes - (uint8_t)T::OFFSET);
      vu even = (vu)_mm512_mulhi_epi16((__m512i)((vus)c << 8), (__m512i)scales[h]);
      vu odd = (vu)_mm512_mulhi_epi16((__m512i)(c & ~even_bytes), (__m512i)scales[h]);
      *(vu*)high = blend(even_bytes, (vu)((vus)even >> 8), odd);
      *(vu*)low = blend(even_bytes, even, (vu)((vus)odd << 8));
    } else {
      *(vu*)high = (vu)((vus)codes * (vus)scales[h]);
      *(vu*)low = (vu)((vus)codes * (vus)low_scales[h]);
    }
  }

  // Bits of a where the mask has ones, else those of b.
  static ROSE_INLINE_MEMBER vu blend(vu mask, vu a, vu b) {
    return (vu)_mm512_ternarylogic_epi32((__m512i)mask, (__m512i)a, (__m512i)b, 0xca);
  }
};

template <class T, int I>
ROSE_INLINE void expand_wide_pair(const char* codes, const Digits<T>& first,
                                  const Digits<T>& second, char* out) {
  vu low[2], high[2];
  read_quad<T, I>(codes, low);
  read_quad<T, I + 4>(codes, high);
  for (int h = 0; h < 2; h++) {
    first.put(h, low[h], out + (2 * I + h) * VECTOR, out + PLANE + (2 * I + h) * VECTOR);
    second.put(h, high[h], out + (2 * (I + 4) + h) * VECTOR,
               out + PLANE + (2 * (I + 4) + h) * VECTOR);
  }
}

// Write both planes of a wide tile. `out` is aligned to a cache line.
template <class T>
void expand_wide(const char* tile, char* out) {
  for (int64_t chunk = 0; chunk < CHUNKS; chunk++, out += EXPANDED) {
    const char *scales = tile + T::SCALES + chunk * (CHUNK / T::GROUP) * PANEL,
               *codes = tile + T::codes_at(chunk);
    Digits<T> first(scales), second = T::GROUP == CHUNK ? first : Digits<T>(scales + PANEL);
    expand_wide_pair<T, 0>(codes, first, second, out);
    expand_wide_pair<T, 1>(codes, first, second, out);
    expand_wide_pair<T, 2>(codes, first, second, out);
    expand_wide_pair<T, 3>(codes, first, second, out);
  }
}

// Integers below 64 in 16 bits, as bfloat16.
ROSE_INLINE vu small_to_bfloat16(vs values) {
  alignas(64) static constexpr uint16_t TABLE[64] = {
      0x0000, 0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0, 0x40c0, 0x40e0, 0x4100, 0x4110, 0x4120,
      0x4130, 0x4140, 0x4150, 0x4160, 0x4170, 0x4180, 0x4188, 0x4190, 0x4198, 0x41a0, 0x41a8,
      0x41b0, 0x41b8, 0x41c0, 0x41c8, 0x41d0, 0x41d8, 0x41e0, 0x41e8, 0x41f0, 0x41f8, 0x4200,
      0x4204, 0x4208, 0x420c, 0x4210, 0x4214, 0x4218, 0x421c, 0x4220, 0x4224, 0x4228, 0x422c,
      0x4230, 0x4234, 0x4238, 0x423c, 0x4240, 0x4244, 0x4248, 0x424c, 0x4250, 0x4254, 0x4258,
      0x425c, 0x4260, 0x4264, 0x4268, 0x426c, 0x4270, 0x4274, 0x4278, 0x427c};
  return (vu)_mm512_permutex2var_epi16(_mm512_load_si512(TABLE), (__m512i)values,
                                       _mm512_load_si512(TABLE + 32));
}

constexpr int64_t MINIMUM_PAIRS =
    8;  // of each column: those of the low digits of x, and those of the high ones
constexpr int64_t MINIMUM_BYTES = MINIMUM_PAIRS * 2 * VECTOR;

// Write the minimums of a tile as bfloat16, and what they are for high digits: SUM_BASE times as
// large.
template <class T>
ROSE_INLINE void expand_minimums(const char* tile, char* out) {
  for (int64_t i = 0; i < MINIMUM_PAIRS;
       i++, out += VECTOR) {  // a pair of groups, in both vectors of columns
    vs values = widen_bytes(tile + T::MINIMUMS + i * 2 * W);
    __mmask32 is_some = _mm512_test_epi16_mask((__m512i)values, (__m512i)values);
    __m512i low = (__m512i)small_to_bfloat16(values), times_base = _mm512_set1_epi16(6 << 7);
    _mm512_store_si512(out, low);
    _mm512_store_si512(out + MINIMUM_BYTES / 2,
                       _mm512_mask_add_epi16(low, is_some, low, times_base));
  }
}

// Write the plane of a narrow tile.
template <class T>
void expand_narrow(const char* tile, int64_t chunks, char* out) {
  expand<T>(tile, chunks, out);
  if (T::OFFSET)
    for (int64_t i = 0; i < chunks * EXPANDED; i += VECTOR) *(vub*)(out + i) -= (uint8_t)T::OFFSET;
}

}  // namespace
#endif
