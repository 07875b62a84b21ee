// Weights in blocks: the types of GGUF files, and how a panel stores them.
//
// Narrow types have blocks of 32 values with a float16 scale d and maybe a float16 minimum m:
//   value = d * (code - OFFSET) + m
// Wide types have blocks of 256 values. Groups of 16 or 32 have integer scales s and maybe minimums
// n:
//   value = (d * s) * (code - OFFSET) - m * n
// Products of these numbers are exact in float32, so a value is rounded at most once, by its last
// sum.
//
// A panel is a row of tiles: 256 values of k in all columns. A narrow tile consists of blocks: d,
// m, codes. A wide tile has d, m, the scales of each group, pairs of minimums, and 8 chunks of
// codes. Files: ggml's ggml-common.h.
#pragma once
#include "block_codes.h"

#include <algorithm>

namespace {

enum BlockFormat {
  Q4_0 = 102,
  Q4_1,
  Q5_0 = 106,
  Q5_1,
  Q8_0,
  Q4_K = 112,
  Q5_K,
  Q6_K,
  IQ4_NL = 120
};  // 100 + ggml's

constexpr int64_t TILE = 256, CHUNKS = TILE / CHUNK;
constexpr int64_t HALVES = PANEL * 2;  // bytes of a float16 for each column

ROSE_INLINE uint16_t half_at(const uint8_t* p) {
  uint16_t bits;
  memcpy(&bits, p, 2);
  return bits;
}

// Codes of 4 bits, value j in byte j % 16, and bit j of `more` above them.
ROSE_INLINE void read_nibbles(const uint8_t* nibbles, uint32_t more, uint8_t codes[CHUNK]) {
  for (int j = 0; j < 16; j++) codes[j] = nibbles[j] & 15;
  for (int j = 0; j < 16; j++) codes[j + 16] = nibbles[j] >> 4;
  if (more)
    for (int j = 0; j < CHUNK; j++) codes[j] |= (uint8_t)((more >> j & 1) << 4);
}

// BITS bits of each byte, from bit `shift` on; four bytes at a time.
template <int BITS>
ROSE_INLINE void read_bits(const uint8_t* from, int shift, uint8_t codes[CHUNK]) {
  constexpr uint32_t MASK = 0x01010101u * ((1 << BITS) - 1);
  uint32_t quads[QUADS];
  memcpy(quads, from, CHUNK);
  for (int i = 0; i < QUADS; i++) quads[i] = quads[i] >> shift & MASK;
  memcpy(codes, quads, CHUNK);
}
// The same, as the bits above those of a nibble.
template <int BITS>
ROSE_INLINE void add_bits(const uint8_t* from, int shift, uint8_t codes[CHUNK]) {
  uint8_t more[CHUNK];
  read_bits<BITS>(from, shift, more);
  for (int j = 0; j < CHUNK; j++) codes[j] |= more[j] << 4;
}

template <int BITS_, int OFFSET_, bool HAS_MIN_, bool IS_LOOKED_UP_ = false>
struct Narrow {
  static constexpr bool IS_WIDE = false, HAS_MIN = HAS_MIN_, IS_LOOKED_UP = IS_LOOKED_UP_;
  // The codes in a panel have BITS bits, and PRODUCT_BITS when they are multiplied.
  static constexpr int BITS = BITS_, PRODUCT_BITS = IS_LOOKED_UP ? 8 : BITS, OFFSET = OFFSET_;
  static constexpr int64_t X_RUN = 32, SUM_RUN = 32;
  static constexpr int64_t BLOCK = 32, FILE_BYTES = 2 + 2 * HAS_MIN + 4 * BITS;
  static constexpr int64_t HEAD = HALVES * (1 + HAS_MIN), BLOCK_BYTES = HEAD + Codes<BITS>::BYTES;
  static constexpr int64_t TILE_BYTES = CHUNKS * BLOCK_BYTES;
  static constexpr int64_t codes_at(int64_t chunk) { return chunk * BLOCK_BYTES + HEAD; }

  static uint16_t scale(const uint8_t* block) { return half_at(block); }
  static uint16_t minimum(const uint8_t* block) { return HAS_MIN ? half_at(block + 2) : 0; }

  static void read(const uint8_t* block, int64_t, uint8_t codes[CHUNK]) {
    const uint8_t* p = block + 2 + 2 * HAS_MIN;
    if constexpr (BITS == 8) {
      for (int j = 0; j < CHUNK; j++) codes[j] = p[j] ^ 0x80;  // signed to unsigned
    } else {
      uint32_t more = 0;
      if (BITS == 5) memcpy(&more, p, 4);
      read_nibbles(p + (BITS == 5 ? 4 : 0), more, codes);
    }
  }
};

// FILE_BYTES of Q4_K and Q5_K: d, m, 12 bytes of scales and minimums, high bits, nibbles.
template <int BITS_>
struct WideWithMin {
  static constexpr bool IS_WIDE = true, HAS_MIN = true, IS_LOOKED_UP = false;
  static constexpr int BITS = BITS_, PRODUCT_BITS = BITS, OFFSET = 0;
  static constexpr int64_t X_RUN = 256, SUM_RUN = 32, GROUP = 32, GROUPS = TILE / GROUP;
  static constexpr int64_t BLOCK = 256, FILE_BYTES = 16 + 32 * BITS;
  static constexpr int64_t SCALES = 2 * HALVES, MINIMUMS = SCALES + GROUPS * PANEL;
  static constexpr int64_t HEAD = MINIMUMS + GROUPS * PANEL;
  static constexpr int64_t TILE_BYTES = HEAD + CHUNKS * Codes<BITS>::BYTES;
  static constexpr int64_t codes_at(int64_t chunk) { return HEAD + chunk * Codes<BITS>::BYTES; }

  static uint16_t scale(const uint8_t* block) { return half_at(block); }
  static uint16_t minimum(const uint8_t* block) { return half_at(block + 2); }

  static void read_groups(const uint8_t* block, int8_t scales[GROUPS], int8_t minimums[GROUPS]) {
    const uint8_t* p = block + 4;
    for (int i = 0; i < 4; i++) {
      scales[i] = p[i] & 63;
      minimums[i] = p[4 + i] & 63;
      scales[4 + i] = (int8_t)((p[8 + i] & 15) | p[i] >> 6 << 4);
      minimums[4 + i] = (int8_t)(p[8 + i] >> 4 | p[4 + i] >> 6 << 4);
    }
  }

  static void read(const uint8_t* block, int64_t chunk, uint8_t codes[CHUNK]) {
    const uint8_t *high = block + 16, *nibbles = high + (BITS == 5 ? 32 : 0) + chunk / 2 * 32;
    read_bits<4>(nibbles, (int)(chunk % 2) * 4, codes);
    if (BITS == 5) add_bits<1>(high, (int)chunk, codes);
  }
};

struct WideSymmetric {
  static constexpr bool IS_WIDE = true, HAS_MIN = false, IS_LOOKED_UP = false;
  static constexpr int BITS = 6, PRODUCT_BITS = 6, OFFSET = 32;
  static constexpr int64_t X_RUN = 256, SUM_RUN = 16, GROUP = 16, GROUPS = TILE / GROUP;
  static constexpr int64_t BLOCK = 256, FILE_BYTES = 210;
  static constexpr int64_t SCALES = HALVES, HEAD = SCALES + GROUPS * PANEL;
  static constexpr int64_t TILE_BYTES = HEAD + CHUNKS * Codes<BITS>::BYTES;
  static constexpr int64_t codes_at(int64_t chunk) { return HEAD + chunk * Codes<BITS>::BYTES; }

  static uint16_t scale(const uint8_t* block) { return half_at(block + 208); }
  static uint16_t minimum(const uint8_t*) { return 0; }

  static void read_groups(const uint8_t* block, int8_t scales[GROUPS], int8_t*) {
    memcpy(scales, block + 192, GROUPS);
  }

  // Half a block has 64 bytes of nibbles and 32 bytes of 2 high bits for its 4 chunks.
  static void read(const uint8_t* block, int64_t chunk, uint8_t codes[CHUNK]) {
    int64_t half = chunk / 4, part = chunk % 4;
    const uint8_t *nibbles = block + half * 64 + part % 2 * 32, *high = block + 128 + half * 32;
    read_bits<4>(nibbles, (int)part / 2 * 4, codes);
    add_bits<2>(high, (int)part * 2, codes);
  }
};

// Where the rows of x have their quads. With wide types, those of two groups take turns, so that a
// load reads both (block_pairs.h); tiles of AMX multiply them in order.
#if defined(ROSE_AMX)
constexpr bool TAKES_TURNS = false;
#else
constexpr bool TAKES_TURNS = true;
#endif

// Quads of a group whose quads take turns with those of the next one; 1 where none do.
template <class T>
constexpr int64_t group_quads() {
  if constexpr (T::IS_WIDE && TAKES_TURNS)
    return T::GROUP / 4;
  else
    return 1;
}
// Quad I of a chunk is at first_quad(chunk) + quad_of<I>().
template <class T>
ROSE_INLINE int64_t first_quad(int64_t chunk) {
  return group_quads<T>() == QUADS ? chunk / 2 * 2 * QUADS + chunk % 2 : chunk * QUADS;
}
template <class T, int I>
constexpr int64_t quad_of() {
  constexpr int64_t G = group_quads<T>();
  return G == QUADS ? 2 * I : G == 1 ? I : I % G * 2 + I / G;
}

// Codes of quad I as they are multiplied.
template <class T, int I>
ROSE_INLINE void read_quad(const char* codes, vu w[2]) {
  Codes<T::BITS>::template quad<I>(codes, w);
  if constexpr (T::IS_LOOKED_UP)
    for (int h = 0; h < 2; h++) w[h] = look_up(w[h]);
}

// Bytes of a panel with so many chunks of k.
template <class T>
ROSE_INLINE int64_t block_panel_bytes(int64_t chunks) {
  if constexpr (T::IS_WIDE)
    return chunks / CHUNKS * T::TILE_BYTES;
  else
    return chunks * T::BLOCK_BYTES;
}

inline bool is_wide(int format) { return format >= Q4_K && format <= Q6_K; }

// Call f with the type of a format.
template <class F>
auto with_narrow_type(int format, F f) {
  switch (format) {
    case Q4_0:
      return f(Narrow<4, 8, false>());
    case Q4_1:
      return f(Narrow<4, 0, true>());
    case Q5_0:
      return f(Narrow<5, 16, false>());
    case Q5_1:
      return f(Narrow<5, 0, true>());
    case IQ4_NL:
      return f(Narrow<4, 128, false, true>());
    default:
      return f(Narrow<8, 128, false>());  // Q8_0
  }
}
template <class F>
auto with_wide_type(int format, F f) {
  switch (format) {
    case Q4_K:
      return f(WideWithMin<4>());
    case Q5_K:
      return f(WideWithMin<5>());
    default:
      return f(WideSymmetric());  // Q6_K
  }
}
template <class F>
auto with_block_type(int format, F f) {
  return is_wide(format) ? with_wide_type(format, f) : with_narrow_type(format, f);
}

}  // namespace
