// Rows of x as bytes, for products with blocks.
#pragma once
#include "block_formats.h"
#include "scratch.h"

namespace {

// For tiles of AMX, the 8 sums of 32 bytes of a run of 256 are digits too: sum = SUM_BASE * high +
// low, as bfloat16, 8 low ones and then the high ones.
constexpr int64_t SUM_DIGITS = 16;
constexpr int SUM_BASE = 64;

template <class T>
constexpr bool has_digits() {
#if defined(ROSE_AMX)
  return T::IS_WIDE && T::HAS_MIN;
#else
  return false;
#endif
}

// For wide types, a run of 256 values has one scale, and each 32 of them an integer share of it:
// SHARES are all of it. So the sums of a tile stay integers, and large values take no precision
// from those of other chunks. Tiles of AMX sum all of a run at once, so that there are no shares
// with AMX.
constexpr int SHARES = 8;

template <class T>
constexpr bool has_shares() {
#if defined(ROSE_AMX)
  return false;
#else
  return T::IS_WIDE;
#endif
}

// A chunk of a narrow type may have a value that is far above the others. It is an outlier if it is
// worth it: then its byte is 0, the others have a smaller scale, and the value itself is multiplied
// in float32 (block_outliers.h). Files have types of more than 4 bits where precision matters;
// others have no outliers. With AMX there are none: its tiles would wait for them.
struct Outlier {
  float value;
  int32_t column;  // of its chunk
};
constexpr float OUTLIER_WORTH = 2;  // of the mean square of the largest values of a tile's chunks

template <class T>
constexpr bool has_outliers() {
#if defined(ROSE_AMX)
  return false;
#else
  return !T::IS_WIDE && T::BITS > 4;
#endif
}

// What the products of a run with shares need: shares, if not all have all of the scale, or more
// than 16 bits for the sum of a group's products, and maybe shares.
namespace Needs {
constexpr float NOTHING = 0, SHARES = 1, BITS = 2;
}

// Rows of bytes with row stride `ldx`; with wide types, quads take turns (see group_quads). A run
// of T::X_RUN values has two factors: its scale, and the scale times the sum of its bytes. With
// shares, these are the scale of one share, and what products need. Each T::SUM_RUN bytes have a
// sum, which is times their share if it is for minimums. Bit i of a tile's flags says that its
// chunk i has an outlier.
struct ByteRows {
  const int8_t* codes;
  const float* factors;
  const int16_t* sums;
  const uint16_t* digits;
  const int32_t* shares;
  const Outlier* outliers;  // of each chunk
  const uint8_t* flags;
  int64_t ldx, num_factors, num_sums, num_digits, num_shares, num_outliers, num_flags;
  ByteRows from(int64_t row) const {
    ByteRows x = *this;
    x.codes += row * ldx;
    x.factors += row * num_factors;
    x.sums += row * num_sums;
    x.digits += row * num_digits;
    x.shares += row * num_shares;
    x.outliers += row * num_outliers;
    x.flags += row * num_flags;
    return x;
  }
  // What products of run t of the first rows need: the most that one of them does.
  template <int ROWS>
  float needs(int64_t t) const {
    float most = 0;
    for (int r = 0; r < ROWS; r++) most = std::max(most, factors[r * num_factors + t * 2 + 1]);
    return most;
  }
  ROSE_INLINE uint32_t quad(const ByteRows& x, int64_t row, int64_t quad) {
    uint32_t v;
    memcpy(&v, x.codes + row * x.ldx + quad * 4, 4);
    return v;
  }
};

struct Totals {
  int32_t sum, most;  // of all bytes, and the largest magnitude that products of a code with
                      // T::SUM_RUN of them can add up to
};

// Whether sums of products need more than 16 bits.
template <class T>
ROSE_INLINE bool is_large(int32_t most) {
  constexpr int MOST_CODE =
      T::OFFSET ? T::OFFSET
                : (1 << T::BITS) - 1;  // the largest magnitude of a code, less its offset
  return most * MOST_CODE > INT16_MAX;
}

// What products of a code can add up to, of bytes with this sum and sum of magnitudes. Codes
// without an offset have no sign, so that the bytes of one sign count.
template <class T>
ROSE_INLINE int32_t limit_of(int32_t sum, int32_t magnitudes) {
  return T::OFFSET ? magnitudes : (magnitudes + std::abs(sum)) / 2;
}

// Round `count` values, a multiple of T::SUM_RUN. Each sum is times `times`.
template <class T>
ROSE_INLINE Totals round_values(const float* x, int64_t count, float factor, int32_t times,
                                int8_t* codes, int16_t* sums) {
  Totals totals{0, 0};
  for (int64_t k = 0; k < count;) {
    vi own = vi{};  // sums, and above their 16 bits those of magnitudes
    for (int64_t end = k + T::SUM_RUN; k < end; k += W) {
      vi values = nearest(load(x + k) * factor) << 24 >> 24;  // NaN is no byte
      *(vb_w_u*)(codes + k) = __builtin_convertvector(values, vb_w_u);
      own += values + ((values < 0 ? -values : values) << 16);
    }
    int32_t both = sum(own), part = (int16_t)both;
    *sums++ = (int16_t)(part * times);
    totals.sum += part;
    totals.most = std::max(totals.most, limit_of<T>(part, (both - part) >> 16));
  }
  return totals;
}

// Round a run of `length` values, a multiple of T::SUM_RUN.
template <class T>
ROSE_INLINE void round_run(const float* x, int64_t length, int8_t* codes, float* factors,
                           int16_t* sums) {
  Range range(x, 0, length);
  Totals totals = round_values<T>(x, length, range.template factor<127>(), 1, codes, sums);
  factors[0] = range.template scale<127>();
  factors[1] = factors[0] * (float)totals.sum;
}

// Round a row: x[k] is close to codes[k] * factors[k / T::X_RUN * 2], with codes[k] from -127 to
// 127. K is a multiple of T::SUM_RUN. A run with NaN or infinity gets factors of NaN.
template <class T>
void round_to_bytes(const float* x, int64_t K, int8_t* codes, float* factors, int16_t* sums) {
  int64_t k = 0;
  for (; k + T::X_RUN <= K; k += T::X_RUN, factors += 2, sums += T::X_RUN / T::SUM_RUN)
    round_run<T>(x + k, T::X_RUN, codes + k, factors, sums);
  if (k < K) round_run<T>(x + k, K - k, codes + k, factors, sums);
}

// The column of the value of a chunk with the largest magnitude, and that of the others.
ROSE_INLINE std::pair<int, float> outlier_of(const float* x) {
  int column = 0;
  float highest = 0, next = 0;
  for (int k = 0; k < CHUNK; k++) {
    float own = std::fabs(x[k]);
    if (own > highest)
      next = highest, highest = own, column = k;
    else if (own > next)
      next = own;
  }
  return {column, next};
}

// The same with outliers; K is at most a tile. Returns flags of the chunks that have one.
template <class T>
uint8_t round_with_outliers(const float* x, int64_t K, int8_t* codes, float* factors, int16_t* sums,
                            Outlier* outliers) {
  float squares[CHUNKS], total = 0;
  int64_t chunks = K / CHUNK;
  for (int64_t i = 0; i < chunks; i++) {
    Range range(x, i * CHUNK, (i + 1) * CHUNK);
    total += squares[i] = range.highest * range.highest + range.odd;
  }
  uint8_t flags = 0;
  for (int64_t i = 0; i < chunks;
       i++, x += CHUNK, codes += CHUNK, factors += 2, sums += CHUNK / T::SUM_RUN) {
    float limit = OUTLIER_WORTH * total / (float)chunks, others[CHUNK];
    if (squares[i] > limit) {
      auto [column, next] = outlier_of(x);
      if (squares[i] - next * next > limit) {
        memcpy(others, x, sizeof(others));
        others[column] = 0;
        outliers[i] = {x[column], column};
        flags |= (uint8_t)(1 << i);
        round_run<T>(others, CHUNK, codes, factors, sums);
        continue;
      }
    }
    round_run<T>(x, CHUNK, codes, factors, sums);
  }
  return flags;
}

// Write the digits of `count` sums, a multiple of 8.
inline void split_sums(const int16_t* sums, int64_t count, uint16_t* digits) {
  auto bits_of = [](int value) {
    float f = (float)value;  // of 7 bits: bfloat16 is exact
    uint32_t bits;
    memcpy(&bits, &f, 4);
    return (uint16_t)(bits >> 16);
  };
  for (int64_t i = 0; i < count; i += 8, digits += SUM_DIGITS)
    for (int j = 0; j < 8; j++) {
      int high = (sums[i + j] + SUM_BASE / 2) >> 6, low = sums[i + j] - high * SUM_BASE;
      digits[j] = bits_of(low);
      digits[8 + j] = bits_of(high);
    }
}

}  // namespace
