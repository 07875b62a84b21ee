// Products of a tile of blocks with rows of bytes.
//
// Sums of bytes are integers, and floats are added tile by tile (narrow types: block by block) in one order, so
// the result of a row depends neither on the other rows nor on where the codes are read from.
#pragma once
#include "block_rows.h"
#include "linear_rows.h"

namespace {

// Ask for cache lines in ascending order. CPUs fetch memory ahead of such requests, and hardly of others: one core of Zen 4
// reads Q4_K at 12 GB/s if the products ask for a group's scales between its codes, and at 27 GB/s in order
// (benchmarks/cpu_blocks.py).
ROSE_INLINE void fetch_in_order(const char* p, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) fetch_once(p + i);
}

// Codes as they lie in a tile: for few rows.
template <class T>
struct Packed {
  const char* tile;
  static constexpr bool IS_NEAR = false;
  ROSE_INLINE_MEMBER void fetch_head() const {
    if constexpr (T::IS_WIDE) fetch_in_order(tile, T::HEAD);
  }
  // The products ask for codes of 4 bits in order, and for no others.
  ROSE_INLINE_MEMBER void fetch_chunk(int64_t chunk) const {
    constexpr int64_t OWN_HEAD = T::IS_WIDE ? 0 : T::HEAD;
    if constexpr (T::BITS != 4) fetch_in_order(tile + T::codes_at(chunk) - OWN_HEAD, OWN_HEAD + Codes<T::BITS>::BYTES);
  }
  template <int I>
  ROSE_INLINE void pair(const Packed& from, int64_t chunk, vu w[4]) {
    read_pair<T, I>(from.tile + T::codes_at(chunk), w);
  }
};

// The same for many rows, which read a tile from the L1 cache. They prefetch the next one meanwhile.
template <class T>
struct Near {
  const char* tile;
  Ahead* ahead;
  static constexpr bool IS_NEAR = true;
  ROSE_INLINE_MEMBER void fetch_head() const {}
  ROSE_INLINE_MEMBER void fetch_chunk(int64_t) const { ahead->fetch(); }
  template <int I>
  ROSE_INLINE void pair(const Near& from, int64_t chunk, vu w[4]) {
    read_pair<T, I>(from.tile + T::codes_at(chunk), w);
  }
};

// Codes with a byte each, for many rows: they are expanded in the L1 cache.
struct Bytes {
  const char* codes;
  Ahead* ahead;
  static constexpr bool IS_NEAR = true;
  ROSE_INLINE_MEMBER void fetch_head() const {}
  ROSE_INLINE_MEMBER void fetch_chunk(int64_t) const { ahead->fetch(); }
  template <int I>
  ROSE_INLINE void pair(const Bytes& from, int64_t chunk, vu w[4]) {
    Codes<8>::template pair<I>(from.codes + chunk * EXPANDED, w);
  }
};

template <class T>
void expand(const char* tile, int64_t chunks, char* out) {
  for (int64_t chunk = 0; chunk < chunks; chunk++, out += EXPANDED) {
    auto one = [&](auto index) __attribute__((always_inline)) {
      constexpr int I = decltype(index)::value;
      vu w[4];
      read_pair<T, I>(tile + T::codes_at(chunk), w);
      for (int h = 0; h < 2; h++) {
        *(vu_u*)(out + (2 * I + h) * VECTOR) = w[h];
        *(vu_u*)(out + (2 * (I + 4) + h) * VECTOR) = w[2 + h];
      }
    };
    one(std::integral_constant<int, 0>());
    one(std::integral_constant<int, 1>());
    one(std::integral_constant<int, 2>());
    one(std::integral_constant<int, 3>());
  }
}

// low[r] += quads I of a chunk, high[r] += quads I + 4.
template <class T, int I, int ROWS, class From>
ROSE_INLINE void add_pair(const From& from, int64_t chunk, const ByteRows& x, int64_t quad, vi (*low)[2], vi (*high)[2]) {
  vu w[4];
  From::template pair<I>(from, chunk, w);
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; r++) {
    uint32_t first = ByteRows::quad(x, r, quad + I), second = ByteRows::quad(x, r, quad + I + 4);
    low[r][0] = dot_bytes<T::PRODUCT_BITS>(low[r][0], w[0], first);
    low[r][1] = dot_bytes<T::PRODUCT_BITS>(low[r][1], w[1], first);
    high[r][0] = dot_bytes<T::PRODUCT_BITS>(high[r][0], w[2], second);
    high[r][1] = dot_bytes<T::PRODUCT_BITS>(high[r][1], w[3], second);
  }
}

template <class T, int ROWS, class From>
ROSE_INLINE void add_chunk(const From& from, int64_t chunk, const ByteRows& x, int64_t quad, vi (*low)[2], vi (*high)[2]) {
  add_pair<T, 0, ROWS>(from, chunk, x, quad, low, high);
  add_pair<T, 1, ROWS>(from, chunk, x, quad, low, high);
  add_pair<T, 2, ROWS>(from, chunk, x, quad, low, high);
  add_pair<T, 3, ROWS>(from, chunk, x, quad, low, high);
}

ROSE_INLINE vf to_float(vi v) { return __builtin_convertvector(v, vf); }

// Add to the sums of a row what a block of a narrow type adds: `dots` are the products of (code - OFFSET) and x.
template <class T>
ROSE_INLINE void add_narrow(const vf d[2], const vf m[2], const float* factors, const vi dots[2], vf sums[2]) {
  for (int h = 0; h < 2; h++) {
    sums[h] += (to_float(dots[h]) * d[h]) * factors[0];
    if constexpr (T::HAS_MIN) sums[h] += m[h] * factors[1];
  }
}

// The same for a tile of a wide type: `dots` and `minimums` are products with the integer scales and minimums.
template <class T>
ROSE_INLINE void fold_wide(const vf d[2], const vf m[2], float factor, const vf dots[2], const vf minimums[2], float* sums) {
  for (int h = 0; h < 2; h++) {
    vf s = load(sums + h * W);
    s += (dots[h] * d[h]) * factor;
    if constexpr (T::HAS_MIN) s -= (minimums[h] * m[h]) * factor;
    store(sums + h * W, s);
  }
}

template <class T>
ROSE_INLINE void load_scales(const char* p, vf d[2], vf m[2]) {
  for (int h = 0; h < 2; h++) {
    d[h] = load_half(p + h * W * 2);
    if constexpr (T::HAS_MIN) m[h] = load_half(p + HALVES + h * W * 2);
  }
}

// sums[r] += x[r] . tile t of a narrow type. Where codes are near, the sums stay in registers: with stores, Zen 4 multiplies
// less. Where they come from memory, loads that the compiler moves across fewer stores are slower.
template <class T, int ROWS, class From>
ROSE_INLINE void multiply_narrow(const char* tile, const From& from, int64_t chunks, int64_t t, const ByteRows& x,
                                 float* sums) {
  vf kept[ROWS][2];
  if constexpr (From::IS_NEAR)
    for (int r = 0; r < ROWS; r++)
      for (int h = 0; h < 2; h++) kept[r][h] = load(sums + r * PANEL + h * W);
  for (int64_t chunk = 0; chunk < chunks; chunk++) {
    int64_t block = t * CHUNKS + chunk;
    from.fetch_chunk(chunk);
    vi dots[ROWS][2];
    for (int r = 0; r < ROWS; r++) dots[r][0] = dots[r][1] = vi{} - T::OFFSET * x.sums[r * x.num_sums + block];
    add_chunk<T, ROWS>(from, chunk, x, block * QUADS, dots, dots);
    vf d[2], m[2];
    load_scales<T>(tile + chunk * T::BLOCK_BYTES, d, m);
    for (int r = 0; r < ROWS; r++) {
      if constexpr (From::IS_NEAR) {
        add_narrow<T>(d, m, x.factors + r * x.num_factors + block * 2, dots[r], kept[r]);
        continue;
      }
      vf own[2] = {load(sums + r * PANEL), load(sums + r * PANEL + W)};
      add_narrow<T>(d, m, x.factors + r * x.num_factors + block * 2, dots[r], own);
      store(sums + r * PANEL, own[0]);
      store(sums + r * PANEL + W, own[1]);
    }
  }
  if constexpr (From::IS_NEAR)
    for (int r = 0; r < ROWS; r++)
      for (int h = 0; h < 2; h++) store(sums + r * PANEL + h * W, kept[r][h]);
}

// Products of the minimums of a tile and the sums of x.
template <class T>
ROSE_INLINE void multiply_minimums(const char* tile, const int16_t* x_sums, vf minimums[2]) {
  vi totals[2] = {};
  for (int pair = 0; pair < T::GROUPS / 2; pair++) {
    uint32_t both;
    memcpy(&both, x_sums + pair * 2, 4);
    for (int h = 0; h < 2; h++) {
      vs values = widen_bytes(tile + T::MINIMUMS + (pair * PANEL + h * W) * 2);
      totals[h] = dot_int16(totals[h], (vs)(vu{} + both), values);
    }
  }
  for (int h = 0; h < 2; h++) minimums[h] = to_float(totals[h]);
}

// sums[r] += x[r] . tile t of a wide type. Rows whose shares are all of the scale need no shares: the bits are the same.
template <class T, int ROWS, bool USES_SHARES, class From>
ROSE_INLINE void multiply_wide(const char* tile, const From& from, int64_t t, const ByteRows& x, float* sums) {
  constexpr bool IS_SPLIT = T::GROUP == 16;  // the low quads of a chunk are one group, the high ones the next
  const int16_t* x_sums = x.sums + t * (TILE / T::SUM_RUN);
  vi dots[ROWS][2] = {};
  from.fetch_head();
  for (int64_t chunk = 0; chunk < CHUNKS; chunk++) {
    from.fetch_chunk(chunk);
    vi low[ROWS][2], high[ROWS][2];
    for (int r = 0; r < ROWS; r++) {
      const int16_t* own = x_sums + r * x.num_sums + chunk * 2;
      low[r][0] = low[r][1] = IS_SPLIT ? vi{} - T::OFFSET * own[0] : vi{};
      high[r][0] = high[r][1] = IS_SPLIT ? vi{} - T::OFFSET * own[1] : vi{};
    }
    add_chunk<T, ROWS>(from, chunk, x, t * CHUNKS * QUADS + chunk * QUADS, low, IS_SPLIT ? high : low);
    const char* scales = tile + T::SCALES + chunk * (CHUNK / T::GROUP) * PANEL;
    for (int h = 0; h < 2; h++) {
      vi first = load_bytes(scales + h * W), second = IS_SPLIT ? load_bytes(scales + PANEL + h * W) : vi{};
      for (int r = 0; r < ROWS; r++) {
        if constexpr (USES_SHARES) {
          vi own = low[r][h] * first;
          if (IS_SPLIT) own += high[r][h] * second;
          dots[r][h] += own * x.shares[r * x.num_shares + t * CHUNKS + chunk];
          continue;
        }
        dots[r][h] += low[r][h] * first;
        if (IS_SPLIT) dots[r][h] += high[r][h] * second;
      }
    }
  }
  vf d[2], m[2];
  load_scales<T>(tile, d, m);
  for (int r = 0; r < ROWS; r++) {
    constexpr int TIMES = has_shares<T>() && !USES_SHARES ? SHARES : 1;
    vf all[2] = {to_float(dots[r][0] * TIMES), to_float(dots[r][1] * TIMES)}, minimums[2];
    if constexpr (T::HAS_MIN) multiply_minimums<T>(tile, x_sums + r * x.num_sums, minimums);
    fold_wide<T>(d, m, x.factors[r * x.num_factors + t * 2], all, minimums, sums + r * PANEL);
  }
}

// A function of its own and with copies, so that registers of the common case are not kept for it.
template <class T, int ROWS, class From>
__attribute__((noinline)) void multiply_shares(const char* tile, From from, int64_t t, ByteRows x, float* sums) {
  multiply_wide<T, ROWS, true>(tile, from, t, x, sums);
}

// sums[r][c] += x[r] . column c, over tile t of a panel, which has `chunks` chunks.
template <class T, int ROWS, class From>
ROSE_INLINE void multiply_tile(const char* tile, const From& from, int64_t chunks, int64_t t, const ByteRows& x,
                               float* sums) {
  if constexpr (has_shares<T>())
    if (x.template has_parts<ROWS>(t)) return multiply_shares<T, ROWS>(tile, from, t, x, sums);
  if constexpr (T::IS_WIDE) multiply_wide<T, ROWS, false>(tile, from, t, x, sums);
  else multiply_narrow<T, ROWS>(tile, from, chunks, t, x, sums);
}

}  // namespace
