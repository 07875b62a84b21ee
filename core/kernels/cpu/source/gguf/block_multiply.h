// Products of a tile of blocks with rows, by what the CPU and the rows allow: sums of 16 or of 32
// bits, with shares or without.
#pragma once
#include "block_product.h"

namespace {

// sums[r] += x[r] . tile t, for rows whose sums of a group have 16 bits: two of them share a lane,
// and one instruction multiplies both by their scales. On Zen 4 it takes as long as a product of
// bytes, and so does a product of 32 bits.
template <class T, int ROWS, bool HAVE_SHARES, class From>
ROSE_INLINE void multiply_pairs(const char* tile, const From& from, int64_t t, const ByteRows& x,
                                float* sums) {
  // With few rows, there are registers for the sums of both. With more, those of the second group
  // are added to the low half of a lane, which has no sign meanwhile.
  constexpr bool ARE_APART = ROWS * 6 <= (W == 16 ? 24 : 12);
  constexpr int32_t MIDDLE = ARE_APART ? 0 : 0x8000;
  alignas(64) int32_t starts[ROWS][T::GROUPS];
  if constexpr (T::OFFSET != 0) write_starts<T, ROWS>(x.sums + t * T::GROUPS, x.num_sums, starts);
  vi dots[ROWS][2];
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; r++) dots[r][0] = dots[r][1] = vi{};
  from.fetch_head();
  for (int64_t i = 0; i < T::GROUPS / 2; i++) {
    vi first[ROWS][2], second[ROWS][2];
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; r++)
      first[r][0] = first[r][1] = T::OFFSET ? vi{} + starts[r][2 * i] : vi{};
    add_group<T, 0, ROWS>(from, i, x, t, first);
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; r++)
      for (int h = 0; h < 2; h++) {
        second[r][h] = vi{} + (T::OFFSET ? starts[r][2 * i + 1] + MIDDLE : MIDDLE);
        if (!ARE_APART) second[r][h] += first[r][h] << 16;
      }
    add_group<T, 1, ROWS>(from, i, x, t, second);
    const char* scales = tile + T::SCALES + 2 * i * PANEL;
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
      vs pair =
          (vs)(load_bytes(scales + h * W) << 16 | (load_bytes(scales + PANEL + h * W) & 0xffff));
#pragma GCC unroll 8
      for (int r = 0; r < ROWS; r++) {
        vi both = ARE_APART ? first[r][h] << 16 | (second[r][h] & 0xffff) : second[r][h] ^ MIDDLE;
        dots[r][h] = dot_int16(dots[r][h], (vs)both,
                               HAVE_SHARES ? pair * shares_of<T>(x, r, t, 2 * i + 1, 2 * i) : pair);
      }
    }
  }
  if constexpr (!HAVE_SHARES) take_all_shares<ROWS>(dots);
  fold_rows<T, ROWS>(tile, t, x, dots, sums);
}

#if defined(ROSE_WORDS)
// Store a scaled sum. With 16 registers and many rows, not all sums fit in registers. GCC would
// choose the sums of a group, to which every quad is added.
template <int ROWS>
ROSE_INLINE void store_sum(vi& v) {
  if constexpr (W == 8 && ROWS > 3) asm("" : "+m"(v));
}

// The same with sums of 16 bits from the start. A lane has two of them. If codes have no offset,
// both fit in 16 bits, because the products of any part of a group do. Else one may overflow, and
// only their sum fits: then both are joined first.
template <class T, int ROWS, bool HAVE_SHARES, class From>
ROSE_INLINE void multiply_words(const char* tile, const From& from, int64_t t, const ByteRows& x,
                                float* sums) {
  constexpr bool ARE_JOINED = T::OFFSET != 0;
  vi dots[ROWS][2];
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; r++) dots[r][0] = dots[r][1] = vi{};
  from.fetch_head();
  auto start = [&](int64_t group, vw(*own)[2]) __attribute__((always_inline)) {
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; r++) {
      vi first = vi{};
      if constexpr (T::OFFSET != 0)
        first += (-T::OFFSET * x.sums[r * x.num_sums + t * T::GROUPS + group]) & 0xffff;
      own[r][0] = own[r][1] = (vw)first;
    }
  };
  // Add sums of 16 bits times scales: those of group `lower` in the lower half of a lane, and of
  // `upper` in the upper one.
  auto add = [&](const auto& own, int64_t lower, int64_t upper) __attribute__((always_inline)) {
    const char* scales = tile + T::SCALES;
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
      vs pair = (vs)((load_bytes(scales + lower * PANEL + h * W) & 0xffff) |
                     load_bytes(scales + upper * PANEL + h * W) << 16);
#pragma GCC unroll 8
      for (int r = 0; r < ROWS; r++) {
        dots[r][h] = dot_int16(dots[r][h], (vs)own[r][h],
                               HAVE_SHARES ? pair * shares_of<T>(x, r, t, lower, upper) : pair);
        store_sum<ROWS>(dots[r][h]);
      }
    }
  };
  for (int64_t i = 0; i < T::GROUPS / 2; i++) {
    vw first[ROWS][2], second[ROWS][2];
    start(2 * i, first);
    add_group_words<T, 0, ROWS>(from, i, x, t, first);
    if constexpr (!ARE_JOINED) add(first, 2 * i, 2 * i);
    start(2 * i + 1, second);
    add_group_words<T, 1, ROWS>(from, i, x, t, second);
    if constexpr (!ARE_JOINED) {
      add(second, 2 * i + 1, 2 * i + 1);
    } else {
      vs both[ROWS][2];
#pragma GCC unroll 8
      for (int r = 0; r < ROWS; r++)
        for (int h = 0; h < 2; h++) both[r][h] = join_halves(first[r][h], second[r][h]);
      add(both, 2 * i, 2 * i + 1);
    }
  }
  if constexpr (!HAVE_SHARES) take_all_shares<ROWS>(dots);
  fold_rows<T, ROWS>(tile, t, x, dots, sums);
}
#endif

// Sums of 16 bits are faster, except for Q6_K with few rows, whose codes come from memory.
template <class T, int ROWS, bool HAVE_SHARES, class From>
ROSE_INLINE void multiply_short(const char* tile, const From& from, int64_t t, const ByteRows& x,
                                float* sums) {
#if defined(ROSE_WORDS)
  if constexpr (From::IS_NEAR || T::OFFSET == 0)
    return multiply_words<T, ROWS, HAVE_SHARES>(tile, from, t, x, sums);
#endif
  multiply_pairs<T, ROWS, HAVE_SHARES>(tile, from, t, x, sums);
}

// Functions of their own and with copies, so that registers of the common case are not kept for it.
template <class T, int ROWS, class From>
__attribute__((noinline)) void multiply_apart(const char* tile, From from, int64_t t, ByteRows x,
                                              float* sums) {
  multiply_any<T, ROWS>(tile, from, t, x, sums);
}

template <class T, int ROWS, class From>
__attribute__((noinline)) void multiply_shared(const char* tile, From from, int64_t t, ByteRows x,
                                               float* sums) {
  multiply_short<T, ROWS, true>(tile, from, t, x, sums);
}

// sums[r][c] += x[r] . column c, over tile t of a panel, which has `chunks` chunks.
template <class T, int ROWS, class From>
ROSE_INLINE void multiply_tile(const char* tile, const From& from, int64_t chunks, int64_t t,
                               const ByteRows& x, float* sums) {
  if constexpr (has_shares<T>()) {
    float needs = x.template needs<ROWS>(t);
    if (needs == Needs::NOTHING) return multiply_short<T, ROWS, false>(tile, from, t, x, sums);
    if (needs == Needs::SHARES) return multiply_shared<T, ROWS>(tile, from, t, x, sums);
    return multiply_apart<T, ROWS>(tile, from, t, x, sums);
  }
  if constexpr (T::IS_WIDE)
    multiply_any<T, ROWS>(tile, from, t, x, sums);
  else
    multiply_narrow<T, ROWS>(tile, from, chunks, t, x, sums);
}

}  // namespace
