// Products of a tile of blocks with rows of bytes.
//
// Sums of bytes are integers, and floats are added tile by tile (narrow types: block by block) in
// one order, so the result of a row depends neither on the other rows nor on where the codes are
// read from.
#pragma once
#include "block_words.h"
#include "linear_rows.h"

namespace {

// Ask for cache lines in ascending order. CPUs fetch memory ahead of such requests, and hardly of
// others: one core of Zen 4 reads Q4_K at 12 GB/s if the products ask for a group's scales between
// its codes, and at 27 GB/s in order (benchmarks/cpu_blocks.py).
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
    if constexpr (T::BITS != 4)
      fetch_in_order(tile + T::codes_at(chunk) - OWN_HEAD, OWN_HEAD + Codes<T::BITS>::BYTES);
  }
  template <int I>
  ROSE_INLINE void quad(const Packed& from, int64_t chunk, vu w[2]) {
    read_quad<T, I>(from.tile + T::codes_at(chunk), w);
  }
};

// The same for many rows, which read a tile from the L1 cache. They prefetch the next one
// meanwhile.
template <class T>
struct Near {
  const char* tile;
  Ahead* ahead;
  static constexpr bool IS_NEAR = true;
  ROSE_INLINE_MEMBER void fetch_head() const {}
  ROSE_INLINE_MEMBER void fetch_chunk(int64_t) const { ahead->fetch(); }
  template <int I>
  ROSE_INLINE void quad(const Near& from, int64_t chunk, vu w[2]) {
    read_quad<T, I>(from.tile + T::codes_at(chunk), w);
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
  ROSE_INLINE void quad(const Bytes& from, int64_t chunk, vu w[2]) {
    Codes<8>::template quad<I>(from.codes + chunk * EXPANDED, w);
  }
};

template <class T>
void expand(const char* tile, int64_t chunks, char* out) {
  for (int64_t chunk = 0; chunk < chunks; chunk++, out += EXPANDED) {
    auto one = [&](auto index) __attribute__((always_inline)) {
      constexpr int I = decltype(index)::value;
      vu low[2], high[2];
      read_quad<T, I>(tile + T::codes_at(chunk), low);
      read_quad<T, I + 4>(tile + T::codes_at(chunk), high);
      for (int h = 0; h < 2; h++) {
        *(vu_u*)(out + (2 * I + h) * VECTOR) = low[h];
        *(vu_u*)(out + (2 * (I + 4) + h) * VECTOR) = high[h];
      }
    };
    one(std::integral_constant<int, 0>());
    one(std::integral_constant<int, 1>());
    one(std::integral_constant<int, 2>());
    one(std::integral_constant<int, 3>());
  }
}

// The loops over rows are unrolled by request: GCC unrolls them too late otherwise, and keeps sums
// in memory.

// sums[r] += quad I of a chunk, whose quads start at quad `quad` of x.
template <class T, int I, int ROWS, class From>
ROSE_INLINE void add_quad(const From& from, int64_t chunk, const ByteRows& x, int64_t quad,
                          vi (*sums)[2]) {
  vu w[2];
  From::template quad<I>(from, chunk, w);
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; r++) {
    uint32_t values = ByteRows::quad(x, r, quad + quad_of<T, I>());
    for (int h = 0; h < 2; h++) sums[r][h] = dot_bytes<T::PRODUCT_BITS>(sums[r][h], w[h], values);
  }
}

// The same with the quads of half a chunk: the low ones, or the high ones.
template <class T, int HALF, int ROWS, class From>
ROSE_INLINE void add_half(const From& from, int64_t chunk, const ByteRows& x, int64_t quad,
                          vi (*sums)[2]) {
  add_quad<T, 4 * HALF, ROWS>(from, chunk, x, quad, sums);
  add_quad<T, 4 * HALF + 1, ROWS>(from, chunk, x, quad, sums);
  add_quad<T, 4 * HALF + 2, ROWS>(from, chunk, x, quad, sums);
  add_quad<T, 4 * HALF + 3, ROWS>(from, chunk, x, quad, sums);
}

// The same with all quads. Quads I and I + 4 have the same nibbles.
template <class T, int ROWS, class From>
ROSE_INLINE void add_chunk(const From& from, int64_t chunk, const ByteRows& x, int64_t quad,
                           vi (*sums)[2]) {
  add_quad<T, 0, ROWS>(from, chunk, x, quad, sums);
  add_quad<T, 4, ROWS>(from, chunk, x, quad, sums);
  add_quad<T, 1, ROWS>(from, chunk, x, quad, sums);
  add_quad<T, 5, ROWS>(from, chunk, x, quad, sums);
  add_quad<T, 2, ROWS>(from, chunk, x, quad, sums);
  add_quad<T, 6, ROWS>(from, chunk, x, quad, sums);
  add_quad<T, 3, ROWS>(from, chunk, x, quad, sums);
  add_quad<T, 7, ROWS>(from, chunk, x, quad, sums);
}

ROSE_INLINE vf to_float(vi v) { return __builtin_convertvector(v, vf); }

// Add to the sums of a row what a block of a narrow type adds: `dots` are the products of (code -
// OFFSET) and x.
template <class T>
ROSE_INLINE void add_narrow(const vf d[2], const vf m[2], const float* factors, const vi dots[2],
                            vf sums[2]) {
  for (int h = 0; h < 2; h++) {
    sums[h] += (to_float(dots[h]) * d[h]) * factors[0];
    if constexpr (T::HAS_MIN) sums[h] += m[h] * factors[1];
  }
}

// The same for a tile of a wide type: `dots` and `minimums` are products with the integer scales
// and minimums.
template <class T>
ROSE_INLINE void fold_wide(const vf d[2], const vf m[2], float factor, const vf dots[2],
                           const vf minimums[2], float* sums) {
  for (int h = 0; h < 2; h++) {
    vf own = dots[h] * d[h];
    if constexpr (T::HAS_MIN) own = multiply_add(minimums[h], -m[h], own);
    store(sums + h * W, multiply_add(own, splat(factor), load(sums + h * W)));
  }
}

template <class T>
ROSE_INLINE void load_scales(const char* p, vf d[2], vf m[2]) {
  for (int h = 0; h < 2; h++) {
    d[h] = load_half(p + h * W * 2);
    if constexpr (T::HAS_MIN) m[h] = load_half(p + HALVES + h * W * 2);
  }
}

// Whether the products of a narrow type's codes start at their offset times the sum of x. Else they
// are those of codes less it.
template <class T>
constexpr bool has_start() {
#if defined(ROSE_WORDS)
  return T::PRODUCT_BITS < 8;
#else
  return true;
#endif
}

// dots[r] += a block of a narrow type.
template <class T, int ROWS, class From>
ROSE_INLINE void add_block(const From& from, int64_t chunk, const ByteRows& x, int64_t quad,
                           vi (*dots)[2]) {
#if defined(ROSE_WORDS)
  if constexpr (T::PRODUCT_BITS < 6) {  // 8 quads of 4 bits, and 4 of 5 bits, have sums of 16 bits
    auto add = [&](vw(*sums)[2]) __attribute__((always_inline)) {
#pragma GCC unroll 8
      for (int r = 0; r < ROWS; r++)
        for (int h = 0; h < 2; h++)
          dots[r][h] = dot_int16(dots[r][h], (vs)sums[r][h], (vs)(vu{} + 0x00010001u));
    };
    vw first[ROWS][2] = {}, second[ROWS][2] = {};
    if constexpr (T::PRODUCT_BITS == 4) {
      add_words<T, ROWS, 0, 4, 1, 5, 2, 6, 3, 7>(from, chunk, x, quad, first);
      add(first);
    } else {
      add_words<T, ROWS, 0, 4, 1, 5>(from, chunk, x, quad, first);
      add(first);
      add_words<T, ROWS, 2, 6, 3, 7>(from, chunk, x, quad, second);
      add(second);
    }
    return;
  } else if constexpr (T::PRODUCT_BITS == 8) {
    return add_signed<T, ROWS, 0, 1, 2, 3, 4, 5, 6, 7>(from, chunk, x, quad, dots);
  }
#endif
  add_chunk<T, ROWS>(from, chunk, x, quad, dots);
}

// sums[r] += x[r] . tile t of a narrow type. Where codes are near, the sums stay in registers: with
// stores, Zen 4 multiplies less. Where they come from memory, loads that the compiler moves across
// fewer stores are slower.
template <class T, int ROWS, class From>
ROSE_INLINE void multiply_narrow(const char* tile, const From& from, int64_t chunks, int64_t t,
                                 const ByteRows& x, float* sums) {
  vf kept[ROWS][2];
  if constexpr (From::IS_NEAR) {
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; r++)
      for (int h = 0; h < 2; h++) kept[r][h] = load(sums + r * PANEL + h * W);
  }
  for (int64_t chunk = 0; chunk < chunks; chunk++) {
    int64_t block = t * CHUNKS + chunk;
    from.fetch_chunk(chunk);
    vi dots[ROWS][2];
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; r++)
      dots[r][0] = dots[r][1] =
          has_start<T>() ? vi{} - T::OFFSET * x.sums[r * x.num_sums + block] : vi{};
    add_block<T, ROWS>(from, chunk, x, block * QUADS, dots);
    vf d[2], m[2];
    load_scales<T>(tile + chunk * T::BLOCK_BYTES, d, m);
#pragma GCC unroll 8
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
  if constexpr (From::IS_NEAR) {
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; r++)
      for (int h = 0; h < 2; h++) store(sums + r * PANEL + h * W, kept[r][h]);
  }
}

// Products of the minimums of a tile and the sums of x of each row.
template <class T, int ROWS>
ROSE_INLINE void multiply_minimums(const char* tile, const int16_t* x_sums, int64_t num_sums,
                                   vi (*totals)[2]) {
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; r++) totals[r][0] = totals[r][1] = vi{};
#pragma GCC unroll 8
  for (int pair = 0; pair < T::GROUPS / 2; pair++) {
    const char* minimums = tile + T::MINIMUMS + pair * 2 * PANEL;
    vs values[2] = {widen_bytes(minimums), widen_bytes(minimums + 2 * W)};
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; r++) {
      uint32_t both;
      memcpy(&both, x_sums + r * num_sums + pair * 2, 4);
      for (int h = 0; h < 2; h++)
        totals[r][h] = dot_int16(totals[r][h], (vs)(vu{} + both), values[h]);
    }
  }
}

// What the sums of the groups of a tile start at, if codes have an offset: in memory, from which a
// vector is filled at no cost.
template <class T, int ROWS>
ROSE_INLINE void write_starts(const int16_t* x_sums, int64_t num_sums,
                              int32_t (*starts)[T::GROUPS]) {
  for (int r = 0; r < ROWS; r++)
    for (int group = 0; group < T::GROUPS; group++)
      starts[r][group] = -T::OFFSET * x_sums[r * num_sums + group];
}

// Add the products of a group of a wide tile t. Group 2 * i + SECOND is half of a chunk, or a
// chunk.
template <class T, int SECOND, int ROWS, class From>
ROSE_INLINE void add_group(const From& from, int64_t i, const ByteRows& x, int64_t t,
                           vi (*sums)[2]) {
  constexpr bool IS_HALF = T::GROUP < CHUNK;
  int64_t chunk = IS_HALF ? i : 2 * i + SECOND, quad = first_quad<T>(t * CHUNKS + chunk);
  if (!IS_HALF || !SECOND) from.fetch_chunk(chunk);
  if constexpr (IS_HALF)
    add_half<T, SECOND, ROWS>(from, chunk, x, quad, sums);
  else
    add_chunk<T, ROWS>(from, chunk, x, quad, sums);
}

#if defined(ROSE_WORDS)
// The same in sums of 16 bits.
template <class T, int SECOND, int ROWS, class From>
ROSE_INLINE void add_group_words(const From& from, int64_t i, const ByteRows& x, int64_t t,
                                 vw (*sums)[2]) {
  constexpr bool IS_HALF = T::GROUP < CHUNK;
  int64_t chunk = IS_HALF ? i : 2 * i + SECOND, quad = first_quad<T>(t * CHUNKS + chunk);
  if (!IS_HALF || !SECOND) from.fetch_chunk(chunk);
  if constexpr (!IS_HALF)
    add_words<T, ROWS, 0, 4, 1, 5, 2, 6, 3, 7>(from, chunk, x, quad, sums);
  else
    add_words<T, ROWS, 4 * SECOND, 4 * SECOND + 1, 4 * SECOND + 2, 4 * SECOND + 3>(from, chunk, x,
                                                                                   quad, sums);
}
#endif

// Add to `sums` what a tile of a wide type adds, given the products with the integer scales.
template <class T, int ROWS>
ROSE_INLINE void fold_rows(const char* tile, int64_t t, const ByteRows& x, const vi (*dots)[2],
                           float* sums) {
  vf d[2], m[2];
  vi minimums[ROWS][2];
  load_scales<T>(tile, d, m);
  if constexpr (T::HAS_MIN)
    multiply_minimums<T, ROWS>(tile, x.sums + t * (TILE / T::SUM_RUN), x.num_sums, minimums);
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; r++) {
    vf all[2] = {to_float(dots[r][0]), to_float(dots[r][1])}, less[2];
    if constexpr (T::HAS_MIN)
      for (int h = 0; h < 2; h++) less[h] = to_float(minimums[r][h]);
    fold_wide<T>(d, m, x.factors[r * x.num_factors + t * 2], all, less, sums + r * PANEL);
  }
}

// sums[r] += x[r] . tile t of a wide type.
template <class T, int ROWS, class From>
ROSE_INLINE void multiply_any(const char* tile, const From& from, int64_t t, const ByteRows& x,
                              float* sums) {
  alignas(64) int32_t starts[ROWS][T::GROUPS];
  if constexpr (T::OFFSET != 0) write_starts<T, ROWS>(x.sums + t * T::GROUPS, x.num_sums, starts);
  vi dots[ROWS][2];
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; r++) dots[r][0] = dots[r][1] = vi{};
  from.fetch_head();
  auto add = [&](auto second, int64_t i) __attribute__((always_inline)) {
    constexpr int SECOND = decltype(second)::value;
    int64_t group = 2 * i + SECOND, chunk = group * T::GROUP / CHUNK;
    vi own[ROWS][2];
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; r++)
      own[r][0] = own[r][1] = T::OFFSET ? vi{} + starts[r][group] : vi{};
    add_group<T, SECOND, ROWS>(from, i, x, t, own);
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
      vi scale = load_bytes(tile + T::SCALES + group * PANEL + h * W);
#pragma GCC unroll 8
      for (int r = 0; r < ROWS; r++) {
        vi product = own[r][h] * scale;
        if constexpr (has_shares<T>()) product *= x.shares[r * x.num_shares + t * CHUNKS + chunk];
        dots[r][h] += product;
      }
    }
  };
  for (int64_t i = 0; i < T::GROUPS / 2; i++) {
    add(std::integral_constant<int, 0>(), i);
    add(std::integral_constant<int, 1>(), i);
  }
  fold_rows<T, ROWS>(tile, t, x, dots, sums);
}

// Without shares, all values have all of the scale.
template <int ROWS>
ROSE_INLINE void take_all_shares(vi (*dots)[2]) {
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; r++)
    for (int h = 0; h < 2; h++) dots[r][h] *= SHARES;
}

// Shares of two groups of tile t of a row, in the lower and upper halves of lanes. Times scales
// they have 16 bits.
template <class T>
ROSE_INLINE vs shares_of(const ByteRows& x, int64_t row, int64_t t, int64_t lower, int64_t upper) {
  const int32_t* own = x.shares + row * x.num_shares + t * CHUNKS;
  return (vs)(vi{} + (own[lower * T::GROUP / CHUNK] | own[upper * T::GROUP / CHUNK] << 16));
}

}  // namespace
