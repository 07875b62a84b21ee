// Attention of a few query rows over bfloat16 keys and values in vectors, with the bits of the
// products in tiles.
//
// A tile would compute 16 rows. It sums the even and the odd values of a step of 32 each in order,
// by FMAs that round to nearest and take subnormal numbers for zero, and adds both sums to the
// result (Intel's manual, TDPBF16PS). Vectors do the same. So a row has the same bits as among
// many.
#pragma once
#include "attention_tile_ops.h"

#if defined(ROSE_TILES)
namespace tiles {

constexpr int FEW = 2;  // more rows are faster in tiles

// Takes subnormal numbers for zero (FTZ and DAZ) while it exists. The code that it is for must not
// be inlined: compilers move arithmetic across it.
class NoSubnormals {
 public:
  NoSubnormals() : before_(_mm_getcsr()) { _mm_setcsr(before_ | 0x8040); }
  ~NoSubnormals() { _mm_setcsr(before_); }
  NoSubnormals(const NoSubnormals&) = delete;

 private:
  unsigned before_;
};

ROSE_INLINE __m512 even_of(__m512i lanes) { return (__m512)_mm512_slli_epi32(lanes, 16); }
ROSE_INLINE __m512 odd_of(__m512i lanes) {
  return (__m512)_mm512_and_si512(lanes, _mm512_set1_epi32((int)0xffff0000));
}
ROSE_INLINE __m512i pair_at(const char* from) {
  int32_t pair;
  std::memcpy(&pair, from, 4);
  return _mm512_set1_epi32(pair);
}

// Cache lines of a piece, `stride` bytes apart.
struct Lines {
  const char* first;
  int64_t stride;
};

// What is prefetched while the pieces of a run are read: line by line, the piece that is read
// DISTANCE pieces later. With 128 dimensions that is 16 KiB ahead.
class Ahead {
 public:
  static constexpr int DISTANCE = 4;

  // The keys of pieces `first` to `last` of `run` are read, then their values, then the keys of
  // `next`, if there is one.
  template <class R>
  void plan(const R& run, const R* next, int first, int last, int64_t key_stride) {
    Lines all[2 * PIECES + DISTANCE];
    int n = 0;
    for (int i = first; i < last; i++) all[n++] = {run.keys[i], key_stride};
    for (int i = first; i < last; i++) all[n++] = {run.values[i] ? run.values[i] : run.keys[i], 64};
    for (int i = 0; i < DISTANCE; i++) {
      int piece = next ? std::min(next->from / UNIT * 2 + i, PIECES - 1) : first;
      all[n++] = {(next ? next : &run)->keys[piece], key_stride};
    }
    std::copy(all + DISTANCE, all + n, lines_);
    first_ = first;
    count_ = last - first;
  }

  // With a piece of the keys, and of the values.
  const Lines* keys(int piece) const { return lines_ + piece - first_; }
  const Lines* values(int piece) const { return lines_ + count_ + piece - first_; }

 private:
  Lines lines_[2 * PIECES];
  int first_ = 0, count_ = 0;
};

// sums[r][c] = q[r] . keys[c] for COUNT pieces of keys, over `steps` steps of 32 dimensions.
// Strides are in bytes, that of the sums in floats. Prefetches the lines `ahead`.
template <int ROWS, int COUNT>
__attribute__((noinline)) inline void few_scores(const char* q, int64_t ldq,
                                                 const char* const* keys, const Lines* ahead,
                                                 int64_t ldb, int64_t steps, float* sums,
                                                 int64_t ld_sums) {
  __m512 total[ROWS][COUNT];
  for (int r = 0; r < ROWS; r++)
    for (int c = 0; c < COUNT; c++) total[r][c] = _mm512_setzero_ps();
  for (int64_t s = 0; s < steps; s++) {
    __m512 even[ROWS][COUNT], odd[ROWS][COUNT];
    for (int r = 0; r < ROWS; r++)
      for (int c = 0; c < COUNT; c++) even[r][c] = odd[r][c] = _mm512_setzero_ps();
    for (int64_t i = s * 16; i < s * 16 + 16; i++) {
      __m512 q_even[ROWS], q_odd[ROWS];
      for (int r = 0; r < ROWS; r++) {
        __m512i pair = pair_at(q + r * ldq + i * 4);
        q_even[r] = even_of(pair);
        q_odd[r] = odd_of(pair);
      }
#pragma GCC unroll 4
      for (int c = 0; c < COUNT; c++) {
        __m512i lanes = _mm512_loadu_si512(keys[c] + i * ldb);
        __m512 k_even = even_of(lanes), k_odd = odd_of(lanes);
        __builtin_prefetch(ahead[c].first + i * ahead[c].stride, 0, 2);
#pragma GCC unroll 2
        for (int r = 0; r < ROWS; r++) {
          even[r][c] = _mm512_fmadd_ps(q_even[r], k_even, even[r][c]);
          odd[r][c] = _mm512_fmadd_ps(q_odd[r], k_odd, odd[r][c]);
        }
      }
    }
    for (int r = 0; r < ROWS; r++)
      for (int c = 0; c < COUNT; c++)
        total[r][c] = _mm512_add_ps(total[r][c], _mm512_add_ps(even[r][c], odd[r][c]));
  }
  for (int r = 0; r < ROWS; r++)
    for (int c = 0; c < COUNT; c++) _mm512_storeu_ps(sums + r * ld_sums + c * PIECE, total[r][c]);
}

// The values of a unit that an item has: tokens `from` to `to` of it. `from` is the first of a
// piece.
struct UnitValues {
  const char* values[2];  // of each piece; read only where the item has tokens
  const Lines* ahead;     // prefetched with each piece
  int from, to;
};

// sums[r][d] += weights[r] . values[d] over a unit, for COUNT vectors of 16 dimensions, or, without
// `is_more`, =. `row` is the stride in bytes of a pair of tokens; that of the weights and the sums
// is in values.
template <int ROWS, int COUNT>
__attribute__((noinline)) inline void few_values(const uint16_t* weights, int64_t ld_weights,
                                                 const UnitValues& unit, int64_t first_byte,
                                                 int64_t row, float* sums, int64_t ld_sums,
                                                 bool is_more) {
  __m512 even[ROWS][COUNT], odd[ROWS][COUNT], zero = _mm512_setzero_ps();
  for (int r = 0; r < ROWS; r++)
    for (int c = 0; c < COUNT; c++) even[r][c] = odd[r][c] = zero;
  int last = unit.to / 2;
  auto add = [&](int i, uint32_t seen) __attribute__((always_inline)) {
    int64_t offset = i % 8 * row + first_byte;
    const char* from = unit.values[i / 8] + offset;
    const Lines& ahead = unit.ahead[i / 8];
    const char* next = ahead.first + offset / 64 * ahead.stride;
    __m512 w_even[ROWS], w_odd[ROWS];
    for (int r = 0; r < ROWS; r++) {
      __m512i pair = pair_at((const char*)(weights + r * ld_weights + i * 2));
      w_even[r] = even_of(pair);
      w_odd[r] = odd_of(pair);
    }
#pragma GCC unroll 4
    for (int c = 0; c < COUNT; c++) {
      __m512i lanes = _mm512_loadu_si512(from + c * 64);
      if (seen != 0xffffffff) lanes = _mm512_and_si512(lanes, _mm512_set1_epi32((int)seen));
      __m512 v_even = even_of(lanes), v_odd = odd_of(lanes);
      __builtin_prefetch(next + c * ahead.stride, 0, 2);
#pragma GCC unroll 2
      for (int r = 0; r < ROWS; r++) {
        even[r][c] = _mm512_fmadd_ps(w_even[r], v_even, even[r][c]);
        odd[r][c] = _mm512_fmadd_ps(w_odd[r], v_odd, odd[r][c]);
      }
    }
  };
  for (int i = unit.from / 2; i < last; i++) add(i, 0xffffffff);
  if (unit.to % 2) add(last, 0xffff);  // the cache may have anything where there is no token
  for (int r = 0; r < ROWS; r++)
    for (int c = 0; c < COUNT; c++) {
      float* sum = sums + r * ld_sums + c * 16;
      if (unit.to < UNIT) {  // a tile adds the zeros of the other tokens, which make +0 of -0
        even[r][c] = _mm512_add_ps(even[r][c], zero);
        odd[r][c] = _mm512_add_ps(odd[r][c], zero);
      }
      __m512 before = is_more ? _mm512_loadu_ps(sum) : zero;
      _mm512_storeu_ps(sum, _mm512_add_ps(before, _mm512_add_ps(even[r][c], odd[r][c])));
    }
}

}  // namespace tiles
#endif
