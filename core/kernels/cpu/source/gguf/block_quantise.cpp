// Quantise float32 weights to blocks, for --quantization int4.
//
// A group of Q4_K and Q5_K gets the scale and minimum that leave the smallest squared error among
// NUM_STEPS roundings with slightly different steps; each rounding gets its best scale and minimum
// by least squares. An error counts rms + |value|: large values matter more. Groups of the
// symmetric types are fitted in the same way, with the squared value as weight. A lane holds a
// group.
#include "block_formats.h"

#include <omp.h>

#include <array>

namespace {

constexpr int GROUPS_AT_A_TIME = 16, NUM_STEPS = 21;
constexpr float ROUND = 12582912.0f;  // 1.5 * 2^23: rounds to an integer

ROSE_INLINE vf rounded(vf v) { return (v + ROUND) - ROUND; }
ROSE_INLINE vf min(vf a, vf b) { return a < b ? a : b; }
ROSE_INLINE vf clamped(vf v, float low, float high) { return min(max(v, splat(low)), splat(high)); }
ROSE_INLINE vf over(vf a, vf b) { return b != 0 ? a / (b != 0 ? b : splat(1)) : vf{}; }

// Value j of W groups that follow each other.
template <int VALUES>
ROSE_INLINE void turn(const float* x, vf out[VALUES]) {
  for (int j = 0; j < VALUES; j++)
    for (int lane = 0; lane < W; lane++) out[j][lane] = x[lane * VALUES + j];
}

struct Sums {
  vf q = {}, qq = {}, qx = {};
};

// x = scale * q - minimum for q from 0 to MOST, in W groups of 32.
template <int MOST>
void fit_with_minimum(const float* values, float* scales, float* minimums) {
  vf x[32], weight[32], low = vf{}, high = splat(-3e38f), squares = vf{};
  turn<32>(values, x);
  for (auto& v : x) {
    low = min(low, v);
    high = max(high, v);
    squares += v * v;
  }
  vf rms = vf{}, all = vf{}, all_x = vf{};
  for (int lane = 0; lane < W; lane++) rms[lane] = std::sqrt(squares[lane] / 32);
  for (int j = 0; j < 32; j++) {
    weight[j] = rms + max(x[j], -x[j]);
    all += weight[j];
    all_x += weight[j] * x[j];
  }
  vf range = high - low, best_error = splat(3e38f), best_scale = vf{}, best_minimum = -low;
  for (int step = 0; step < NUM_STEPS; step++) {
    vf factor = over(splat((float)MOST - 1 + 0.1f * (float)step), range), q[32];
    Sums sums;
    for (int j = 0; j < 32; j++) {
      q[j] = clamped(rounded((x[j] - low) * factor), 0, MOST);
      vf wq = weight[j] * q[j];
      sums.q += wq;
      sums.qq += wq * q[j];
      sums.qx += wq * x[j];
    }
    vf determinant = all * sums.qq - sums.q * sums.q;
    vf scale = over(all * sums.qx - all_x * sums.q, determinant);
    vf offset = over(sums.qq * all_x - sums.q * sums.qx, determinant);
    vf only = over(sums.qx, sums.qq);  // minimums are not negative
    scale = offset > 0 ? only : scale;
    offset = min(offset, vf{});
    vf error = vf{};
    for (int j = 0; j < 32; j++) {
      vf difference = scale * q[j] + offset - x[j];
      error += weight[j] * difference * difference;
    }
    auto is_better = (error < best_error) & (determinant > 0);
    best_error = is_better ? error : best_error;
    best_scale = is_better ? scale : best_scale;
    best_minimum = is_better ? -offset : best_minimum;
  }
  store(scales, max(best_scale, vf{}));
  store(minimums, max(best_minimum, vf{}));
}

// x = scale * q for q from -MOST to MOST - 1, in W groups. A scale may be negative: the largest
// magnitude is at -MOST or near it.
template <int VALUES, int MOST>
void fit_symmetric(const float* values, float* scales) {
  vf x[VALUES], extreme = vf{};
  turn<VALUES>(values, x);
  for (auto& v : x) extreme = max(v, -v) > max(extreme, -extreme) ? v : extreme;
  vf best = vf{}, best_scale = over(extreme, splat(-MOST));
  for (int step = 0; step < NUM_STEPS; step++) {
    vf factor = over(splat(-((float)MOST - 1 + 0.1f * (float)step)), extreme);
    vf qq = vf{}, qx = vf{};
    for (int j = 0; j < VALUES; j++) {
      vf q = clamped(rounded(x[j] * factor), -MOST, MOST - 1), w = x[j] * x[j];
      qq += w * q * q;
      qx += w * q * x[j];
    }
    vf scale = over(qx, qq), gain = scale * qx;  // the squared error is that of zeros less this
    auto is_better = gain > best;
    best = is_better ? gain : best;
    best_scale = is_better ? scale : best_scale;
  }
  store(scales, best_scale);
}

int code_of(float x, float scale, int low, int high) {
  return scale == 0 ? 0
                    : (int)std::min(
                          std::max((float)std::lrintf(std::min(std::max(x / scale, -1e6f), 1e6f)),
                                   (float)low),
                          (float)high);
}

void put_half_at(uint8_t* p, uint16_t bits) { memcpy(p, &bits, 2); }

// Q4_K and Q5_K.
template <int BITS>
void put_with_minimums(const float* x, const float* scales, const float* minimums, uint8_t* out) {
  float d = *std::max_element(scales, scales + 8) / 63,
        m = *std::max_element(minimums, minimums + 8) / 63;
  put_half_at(out, narrow_half(d));
  put_half_at(out + 2, narrow_half(m));
  d = widen_half(half_at(out));
  m = widen_half(half_at(out + 2));
  int s[8], n[8];
  for (int g = 0; g < 8; g++) {
    s[g] = code_of(scales[g], d, 0, 63);
    n[g] = code_of(minimums[g], m, 0, 63);
  }
  for (int g = 0; g < 4; g++) {
    out[4 + g] = (uint8_t)(s[g] | s[g + 4] >> 4 << 6);
    out[8 + g] = (uint8_t)(n[g] | n[g + 4] >> 4 << 6);
    out[12 + g] = (uint8_t)((s[g + 4] & 15) | (n[g + 4] & 15) << 4);
  }
  uint8_t* nibbles = out + (BITS == 5 ? 48 : 16);
  if (BITS == 5) std::fill_n(out + 16, 32, (uint8_t)0);
  for (int g = 0; g < 8; g++)
    for (int j = 0; j < 32; j++) {
      int code = code_of(x[g * 32 + j] + m * (float)n[g], d * (float)s[g], 0, (1 << BITS) - 1);
      uint8_t& to = nibbles[g / 2 * 32 + j];
      to = g % 2 ? (uint8_t)(to | code << 4) : (uint8_t)(code & 15);
      if (BITS == 5) out[16 + j] |= (uint8_t)(code >> 4 << g);
    }
}

void put_q6_k(const float* x, const float* scales, uint8_t* out) {
  float extreme = 0;
  for (int g = 0; g < 16; g++)
    if (std::fabs(scales[g]) > std::fabs(extreme)) extreme = scales[g];
  put_half_at(out + 208, narrow_half(extreme / -128));
  float d = widen_half(half_at(out + 208));
  std::fill_n(out, 192, (uint8_t)0);
  for (int g = 0; g < 16; g++) {
    int s = code_of(scales[g], d, -128, 127);
    out[192 + g] = (uint8_t)(int8_t)s;
    for (int j = g * 16; j < g * 16 + 16; j++) {
      int code = code_of(x[j], d * (float)s, -32, 31) + 32, half = j / 128, part = j % 128 / 32,
          at = j % 32;
      out[half * 64 + part % 2 * 32 + at] |= (uint8_t)((code & 15) << part / 2 * 4);
      out[128 + half * 32 + at] |= (uint8_t)(code >> 4 << part * 2);
    }
  }
}

void put_q5_0(const float* x, float scale, uint8_t* out) {
  put_half_at(out, narrow_half(scale));
  float d = widen_half(half_at(out));
  uint32_t high = 0;
  std::fill_n(out + 6, 16, (uint8_t)0);
  for (int j = 0; j < 32; j++) {
    int code = code_of(x[j], d, -16, 15) + 16;
    out[6 + j % 16] |= (uint8_t)((code & 15) << j / 16 * 4);
    high |= (uint32_t)(code >> 4) << j;
  }
  memcpy(out + 2, &high, 4);
}

void put_q8_0(const float* x, uint8_t* out) {
  float most = 0;
  for (int j = 0; j < 32; j++) most = std::max(most, std::fabs(x[j]));
  put_half_at(out, narrow_half(most / 127));
  float d = widen_half(half_at(out));
  for (int j = 0; j < 32; j++) out[2 + j] = (uint8_t)(int8_t)code_of(x[j], d, -127, 127);
}

// Quantise 16 groups that follow each other.
void put_groups(int format, const float* x, uint8_t* out) {
  float scales[GROUPS_AT_A_TIME], minimums[GROUPS_AT_A_TIME];
  for (int g = 0; g < GROUPS_AT_A_TIME; g += W) {
    if (format == Q4_K) fit_with_minimum<15>(x + g * 32, scales + g, minimums + g);
    if (format == Q5_K) fit_with_minimum<31>(x + g * 32, scales + g, minimums + g);
    if (format == Q5_0) fit_symmetric<32, 16>(x + g * 32, scales + g);
    if (format == Q6_K) fit_symmetric<16, 32>(x + g * 16, scales + g);
  }
  for (int b = 0; b < 2; b++) {
    if (format == Q4_K)
      put_with_minimums<4>(x + b * 256, scales + b * 8, minimums + b * 8, out + b * 144);
    if (format == Q5_K)
      put_with_minimums<5>(x + b * 256, scales + b * 8, minimums + b * 8, out + b * 176);
  }
  if (format == Q6_K) put_q6_k(x, scales, out);
  if (format == Q5_0)
    for (int b = 0; b < 16; b++) put_q5_0(x + b * 32, scales[b], out + b * 22);
  if (format == Q8_0)
    for (int b = 0; b < 16; b++) put_q8_0(x + b * 32, out + b * 34);
}

}  // namespace

// Quantise `count` values, whole blocks of Q4_K, Q5_K, Q6_K, Q5_0 or Q8_0, to blocks as in a file.
// Values are finite.
ROSE_EXPORT void rose_quantise_blocks(int format, const float* x, int64_t count, uint8_t* out) {
  with_block_type(format, [&](auto type) {
    using T = decltype(type);
    constexpr int64_t VALUES = std::is_same_v<T, WideSymmetric> ? 256 : 512,
                      BYTES = VALUES / T::BLOCK * T::FILE_BYTES;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < (count + VALUES - 1) / VALUES; i++) {
      int64_t left = count - i * VALUES;
      if (left >= VALUES) {
        put_groups(format, x + i * VALUES, out + i * BYTES);
      } else {
        std::array<float, VALUES> some{};
        std::array<uint8_t, BYTES> bytes{};
        std::copy_n(x + i * VALUES, left, some.data());
        put_groups(format, some.data(), bytes.data());
        std::copy_n(bytes.data(), left / T::BLOCK * T::FILE_BYTES, out + i * BYTES);
      }
    }
  });
}
