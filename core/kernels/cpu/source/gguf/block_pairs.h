// Products of many rows with tiles of wide types whose codes have more than 4 bits: two groups of a
// tile at a time.
//
// A tile is expanded once for all rows, in the L1 cache. A vector holds quads of both groups for
// half as many columns: columns 4 * i to 4 * i + 3 in 128 bits of two vectors, as instructions
// interleave them. So one instruction packs the sums of both groups to 16 bits, and the next one
// multiplies both by their scales. On Zen 4 64 rows of Q6_K take 5 % less time than with the loop
// of block_multiply.h (multiply_pairs), where sums are shifted together. 4 bits are as fast there,
// without the expansion.
//
// What the products leave are the same integers, and floats are added by the same function.
#pragma once
#include "block_multiply.h"

#if defined(__AVX512BW__) && ROSE_WIDTH == 16 && !defined(ROSE_AMX) && !defined(ROSE_WORDS)
#define ROSE_PACKED_PAIRS
#endif

#if defined(ROSE_PACKED_PAIRS)
namespace {

constexpr int PAIR_ROWS = 4;  // that are multiplied together

// An expanded tile: 4 vectors of quads for each of STEPS of a pair of groups, and behind all of
// them 2 vectors of scales a pair.
template <class T>
struct Pairs {
  const char* bytes;
  const char* tile;
  Ahead* ahead;
  static constexpr int PAIRS = T::GROUPS / 2, STEPS = T::GROUP / 4, FETCHES = CHUNKS / PAIRS;
  static constexpr int64_t STEP = 4 * VECTOR, SCALES = PAIRS * STEPS * STEP,
                           BYTES = SCALES + PAIRS * 2 * VECTOR;
};

// Fill a vector with two numbers in turn.
ROSE_INLINE vi repeat(const void* two) {
  int64_t both;
  memcpy(&both, two, 8);
  return (vi)_mm512_set1_epi64(both);
}

// Write step K of a pair of groups.
template <class T, int K>
ROSE_INLINE void expand_step(const char* tile, int64_t pair, char* out) {
  constexpr bool ARE_CHUNKS = T::GROUP == CHUNK;
  vu first[2], second[2];
  read_quad<T, K>(tile + T::codes_at(ARE_CHUNKS ? 2 * pair : pair), first);
  read_quad<T, ARE_CHUNKS ? K : K + T::GROUP / 4>(
      tile + T::codes_at(ARE_CHUNKS ? 2 * pair + 1 : pair), second);
  out += K * Pairs<T>::STEP;
  for (int h = 0; h < 2; h++, out += 2 * VECTOR) {
    _mm512_store_si512(out, _mm512_unpacklo_epi32((__m512i)first[h], (__m512i)second[h]));
    _mm512_store_si512(out + VECTOR, _mm512_unpackhi_epi32((__m512i)first[h], (__m512i)second[h]));
  }
}

// `bytes` has Pairs<T>::BYTES bytes and is aligned to a vector.
template <class T>
void expand_pairs(const char* tile, char* bytes) {
  using P = Pairs<T>;
  char *out = bytes, *scales = bytes + P::SCALES;
  for (int64_t pair = 0; pair < P::PAIRS; pair++, out += P::STEPS * P::STEP) {
    expand_step<T, 0>(tile, pair, out);
    expand_step<T, 1>(tile, pair, out);
    expand_step<T, 2>(tile, pair, out);
    expand_step<T, 3>(tile, pair, out);
    if constexpr (P::STEPS == 8) {
      expand_step<T, 4>(tile, pair, out);
      expand_step<T, 5>(tile, pair, out);
      expand_step<T, 6>(tile, pair, out);
      expand_step<T, 7>(tile, pair, out);
    }
    const char* own = tile + T::SCALES + 2 * pair * PANEL;
    for (int h = 0; h < 2; h++, scales += VECTOR)
      *(vi*)scales = (load_bytes(own + h * W) & 0xffff) | load_bytes(own + PANEL + h * W) << 16;
  }
}

// sums[r] += x[r] . tile t, for rows whose sums of a group have 16 bits.
template <class T, int ROWS, bool HAVE_SHARES>
__attribute__((noinline)) void multiply_packed(Pairs<T> from, int64_t t, ByteRows x, float* sums) {
  using P = Pairs<T>;
  alignas(64) int32_t starts[ROWS][T::GROUPS];
  if constexpr (T::OFFSET != 0) write_starts<T, ROWS>(x.sums + t * T::GROUPS, x.num_sums, starts);
  vi dots[ROWS][2];
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; r++) dots[r][0] = dots[r][1] = vi{};
  const char* codes = from.bytes;
  const int8_t* bytes = x.codes + t * TILE;
  for (int64_t pair = 0; pair < P::PAIRS; pair++) {
    for (int i = 0; i < P::FETCHES; i++) from.ahead->fetch();
    vi own[ROWS][4];
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; r++)
      own[r][0] = own[r][1] = own[r][2] = own[r][3] =
          T::OFFSET ? repeat(&starts[r][2 * pair]) : vi{};
#pragma GCC unroll 2
    for (int64_t step = 0; step < P::STEPS; step++, codes += P::STEP, bytes += 8) {
      vu values[ROWS];
#pragma GCC unroll 8
      for (int r = 0; r < ROWS; r++) values[r] = (vu)repeat(bytes + r * x.ldx);
#pragma GCC unroll 4
      for (int i = 0; i < 4; i++) {
        vu w = load_vector(codes + i * VECTOR);
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; r++) own[r][i] = dot_small_bytes(own[r][i], w, values[r]);
      }
    }
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
      vs scales = *(const vs*)(from.bytes + P::SCALES + (2 * pair + h) * VECTOR);
#pragma GCC unroll 8
      for (int r = 0; r < ROWS; r++) {
        vs both = (vs)_mm512_packs_epi32((__m512i)own[r][2 * h], (__m512i)own[r][2 * h + 1]);
        vs factors = HAVE_SHARES ? scales * shares_of<T>(x, r, t, 2 * pair, 2 * pair + 1) : scales;
        dots[r][h] = dot_int16(dots[r][h], both, factors);
      }
    }
  }
  if constexpr (!HAVE_SHARES) take_all_shares<ROWS>(dots);
  fold_rows<T, ROWS>(from.tile, t, x, dots, sums);
}

template <class T, int ROWS>
ROSE_INLINE void multiply_expanded(const Pairs<T>& from, int64_t t, const ByteRows& x,
                                   float* sums) {
  float needs = x.template needs<ROWS>(t);
  if (needs == Needs::NOTHING) return multiply_packed<T, ROWS, false>(from, t, x, sums);
  if (needs == Needs::SHARES) return multiply_packed<T, ROWS, true>(from, t, x, sums);
  multiply_apart<T, ROWS>(from.tile, Near<T>{from.tile, from.ahead}, t, x, sums);
}

}  // namespace
#endif
