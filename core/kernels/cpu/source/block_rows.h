// Rows of x as bytes, for products with blocks.
#pragma once
#include "block_formats.h"
#include "scratch.h"

namespace {

// For tiles of AMX, the 8 sums of 32 bytes of a run of 256 are digits too: sum = SUM_BASE * high + low, as bfloat16, 8 low
// ones and then the high ones.
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

// Rows of bytes with row stride `ldx`. A run of T::X_RUN values has two factors: its scale, and the scale times
// the sum of its bytes. Each T::SUM_RUN bytes have a sum.
struct ByteRows {
  const int8_t* codes;
  const float* factors;
  const int16_t* sums;
  const uint16_t* digits;
  int64_t ldx, num_factors, num_sums, num_digits;
  ByteRows from(int64_t row) const {
    return {codes + row * ldx, factors + row * num_factors, sums + row * num_sums, digits + row * num_digits,
            ldx, num_factors, num_sums, num_digits};
  }
  ROSE_INLINE uint32_t quad(const ByteRows& x, int64_t row, int64_t quad) {
    uint32_t v;
    memcpy(&v, x.codes + row * x.ldx + quad * 4, 4);
    return v;
  }
};

// Round a run of `length` values, a multiple of T::SUM_RUN.
template <class T>
ROSE_INLINE void round_run(const float* x, int64_t length, int8_t* codes, float* factors, int16_t* sums) {
  Range range(x, 0, length);
  float factor = range.template factor<127>();
  int32_t total = 0;
  for (int64_t k = 0; k < length;) {
    vi own = vi{};
    for (int64_t end = k + T::SUM_RUN; k < end; k += W) {
      vi values = nearest(load(x + k) * factor) << 24 >> 24;  // NaN is no byte
      *(vb_w_u*)(codes + k) = __builtin_convertvector(values, vb_w_u);
      own += values;
    }
    *sums = (int16_t)sum(__builtin_convertvector(own, vf));  // exact: the numbers are small
    total += *sums++;
  }
  factors[0] = range.template scale<127>();
  factors[1] = factors[0] * (float)total;
}

// Round a row: x[k] is close to codes[k] * factors[k / T::X_RUN * 2], with codes[k] from -127 to 127. K is a multiple of
// T::SUM_RUN. A run with NaN or infinity gets factors of NaN.
template <class T>
void round_to_bytes(const float* x, int64_t K, int8_t* codes, float* factors, int16_t* sums) {
  int64_t k = 0;
  for (; k + T::X_RUN <= K; k += T::X_RUN, factors += 2, sums += T::X_RUN / T::SUM_RUN)
    round_run<T>(x + k, T::X_RUN, codes + k, factors, sums);
  if (k < K) round_run<T>(x + k, K - k, codes + k, factors, sums);
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
