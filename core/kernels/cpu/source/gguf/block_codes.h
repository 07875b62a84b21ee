// Codes of quantised weights in panels, and their products with bytes.
//
// A chunk is 32 values of k in all columns of a panel: 8 quads of 4 values. A lane holds the quad
// of one column. Quads i and i + 4 share the nibbles of a vector: low and high. Codes of more than
// 4 bits keep the others in vectors behind the nibbles: one bit per quad, or two.
#pragma once
#include "packed.h"
#include "quantise_rows.h"

namespace {

constexpr int QUADS = 8, CHUNK = 32;
constexpr int64_t VECTOR = W * 4;                 // bytes
constexpr int64_t EXPANDED = QUADS * 2 * VECTOR;  // bytes of a chunk with a byte for each code

ROSE_INLINE vu load_vector(const char* p) { return *(const vu_u*)p; }

// Move bits to the left by N, or to the right by -N.
template <int N>
ROSE_INLINE vu shifted(vu v) {
  if constexpr (N >= 0)
    return v << N;
  else
    return v >> -N;
}

template <int BITS>
struct Codes {
  static constexpr int64_t BYTES = PANEL * CHUNK * BITS / 8;
  static constexpr int64_t MORE = 4 * 2 * VECTOR;  // where the bits above the nibbles start

  // Codes of quad I in both vectors of columns.
  template <int I>
  ROSE_INLINE void quad(const char* p, vu w[2]) {
    for (int h = 0; h < 2; h++) {
      if constexpr (BITS == 8)
        w[h] = load_vector(p + (2 * I + h) * VECTOR);
      else
        w[h] = shifted<-(I / 4 * 4)>(load_vector(p + (2 * (I % 4) + h) * VECTOR)) & 0x0f0f0f0fu;
      if constexpr (BITS == 5)
        w[h] |= shifted<4 - I>(load_vector(p + MORE + h * VECTOR)) & 0x10101010u;
      if constexpr (BITS == 6)
        w[h] |= shifted<4 - 2 * (I % 4)>(load_vector(p + MORE + (2 * (I / 4) + h) * VECTOR)) &
                0x30303030u;
    }
  }

  // Write a chunk: quads[i][column].
  static void put(char* p, const uint32_t (*quads)[PANEL]) {
    for (int h = 0; h < 2; h++) {
      vu q[QUADS];
      for (int i = 0; i < QUADS; i++) q[i] = load_vector((const char*)(quads[i] + h * W));
      auto write = [&](int64_t vector, vu v) { *(vu_u*)(p + (2 * vector + h) * VECTOR) = v; };
      if constexpr (BITS == 8) {
        for (int i = 0; i < QUADS; i++) write(i, q[i]);
        continue;
      }
      for (int i = 0; i < 4; i++) write(i, (q[i] & 0x0f0f0f0fu) | (q[i + 4] & 0x0f0f0f0fu) << 4);
      vu more[2] = {};
      if constexpr (BITS == 5)
        for (int i = 0; i < QUADS; i++) more[0] |= (q[i] >> 4 & 0x01010101u) << i;
      if constexpr (BITS == 6)
        for (int i = 0; i < QUADS; i++) more[i / 4] |= (q[i] >> 4 & 0x03030303u) << 2 * (i % 4);
      for (int i = 4; i < BITS; i++) write(i, more[i - 4]);
    }
  }

  // Read the quads of a column.
  static void get(const char* p, int column, uint32_t quads[QUADS]) {
    const char* own = p + column / W * VECTOR + column % W * 4;
    auto read = [&](int64_t vector) {
      uint32_t v;
      memcpy(&v, own + vector * 2 * VECTOR, 4);
      return v;
    };
    for (int i = 0; i < QUADS; i++) {
      if constexpr (BITS == 8) {
        quads[i] = read(i);
        continue;
      }
      quads[i] = read(i % 4) >> i / 4 * 4 & 0x0f0f0f0fu;
      if constexpr (BITS == 5) quads[i] |= (read(4) >> i & 0x01010101u) << 4;
      if constexpr (BITS == 6) quads[i] |= (read(4 + i / 4) >> 2 * (i % 4) & 0x03030303u) << 4;
    }
  }
};

// The values of IQ4_NL's codes (ggml's kvalues_iq4nl).
constexpr int8_t NON_LINEAR[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                   1,    13,   25,  38,  53,  69,  89,  113};

// NON_LINEAR[code] + 128 for each byte.
ROSE_INLINE vu look_up(vu codes) {
  alignas(16) static constexpr uint8_t TABLE[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                                    129, 141, 153, 166, 181, 197, 217, 241};
#if defined(__AVX512BW__) && ROSE_WIDTH == 16
  return (vu)_mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_load_si128((const __m128i*)TABLE)),
                                 (__m512i)codes);
#elif defined(__AVX2__) && ROSE_WIDTH == 8
  return (vu)_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_load_si128((const __m128i*)TABLE)),
                                 (__m256i)codes);
#else
  uint8_t bytes[VECTOR];
  memcpy(bytes, &codes, VECTOR);
  for (int i = 0; i < VECTOR; i++) bytes[i] = TABLE[bytes[i]];
  memcpy(&codes, bytes, VECTOR);
  return codes;
#endif
}

#if defined(__AVX512BW__) && ROSE_WIDTH == 16
// Per lane: acc + the sum over i < 4 of byte i of w, unsigned, times byte i of x, signed.
// Two such products fit in 16 bits.
ROSE_INLINE vi dot_small_bytes(vi acc, vu w, vu x) {
#if defined(__AVX512VNNI__)
  return (vi)_mm512_dpbusd_epi32((__m512i)acc, (__m512i)w, (__m512i)x);
#else
  return acc +
         (vi)_mm512_madd_epi16(_mm512_maddubs_epi16((__m512i)w, (__m512i)x), _mm512_set1_epi16(1));
#endif
}
#endif

// W signed bytes as int32.
ROSE_INLINE vi load_bytes(const char* p) {
#if defined(__AVX512F__) && ROSE_WIDTH == 16
  return (vi)_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i*)p));
#elif defined(__AVX2__) && ROSE_WIDTH == 8
  return (vi)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i*)p));
#else
  return __builtin_convertvector(*(const vb_w_u*)p, vi);
#endif
}

}  // namespace
