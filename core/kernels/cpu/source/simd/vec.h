// The widest vectors of this CPU, in the vector extensions of GCC and clang: one source for AVX2,
// AVX-512 and NEON. Activations and results are float32 for all formats of weights.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#ifndef ROSE_WIDTH
#if defined(__AVX512F__)
#define ROSE_WIDTH 16
#elif defined(__AVX__)
#define ROSE_WIDTH 8
#else
#define ROSE_WIDTH 4
#endif
#endif

#define ROSE_EXPORT extern "C" __attribute__((visibility("default")))
#define ROSE_INLINE_MEMBER inline __attribute__((always_inline))
#define ROSE_INLINE static ROSE_INLINE_MEMBER

constexpr int W = ROSE_WIDTH;
typedef float vf __attribute__((vector_size(W * 4), may_alias));
typedef float vf_u __attribute__((vector_size(W * 4), aligned(4), may_alias));
typedef int32_t vi __attribute__((vector_size(W * 4), may_alias));
typedef uint32_t vu __attribute__((vector_size(W * 4), may_alias));
typedef uint32_t vu_u __attribute__((vector_size(W * 4), aligned(2), may_alias));
typedef uint16_t vh_u __attribute__((vector_size(W * 2), aligned(2), may_alias));
typedef int16_t vs __attribute__((vector_size(W * 4), may_alias));
typedef int16_t vs_half_u __attribute__((vector_size(W * 2), aligned(2), may_alias));
typedef int8_t vb_u __attribute__((vector_size(W * 2), aligned(1), may_alias));

ROSE_INLINE vf load(const float* p) { return *(const vf_u*)p; }
ROSE_INLINE void store(float* p, vf v) { *(vf_u*)p = v; }
ROSE_INLINE vf splat(float x) { return vf{} + x; }

// The first `count` values of a vector, or all of it.
ROSE_INLINE void put(float* y, vf v, int64_t count) {
  if (count >= W) {
    store(y, v);
  } else {
    for (int i = 0; i < count; i++) y[i] = v[i];
  }
}

ROSE_INLINE vf get(const float* x, int64_t count) {
  if (count >= W) return load(x);
  vf v = vf{};
  for (int i = 0; i < count; i++) v[i] = x[i];
  return v;
}

// bfloat16 is the upper half of a float32.
ROSE_INLINE vf load(const uint16_t* p) {
#if ROSE_WIDTH == 16 && defined(__AVX512F__)
  return (vf)((vu)_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)p))
              << 16);  // GCC converts two halves
#else
  return (vf)(__builtin_convertvector(*(const vh_u*)p, vu) << 16);
#endif
}

// How the CPU multiplies pairs of bfloat16. If it does, weights are stored in pairs and activations
// are rounded to bfloat16.
// - ROSE_DOT: AVX512-BF16. Intel's instruction takes two cycles, 2.6 times the time of the two FMAs
// that it
//   replaces, so it is used on AMD only. ROSE_EMULATE_DOT does the same on any CPU, for tests.
// - ROSE_AMX: tiles of 16 rows, for matrices. Vectors are widened and multiplied by FMA.
#if defined(ROSE_EMULATE_DOT)
#define ROSE_PAIRS
#define ROSE_DOT
#elif ROSE_WIDTH == 16 && defined(__AMX_BF16__) && defined(__linux__)
#define ROSE_PAIRS
#define ROSE_AMX
#elif ROSE_WIDTH == 16 && defined(__AVX512BF16__) && !defined(__cooperlake__) && \
    !defined(__sapphirerapids__) && !defined(__emeraldrapids__) && !defined(__graniterapids__)
#define ROSE_PAIRS
#define ROSE_DOT
#endif

// Prefetch a cache line of weights that a step reads once. CPUs whose AVX512-BF16 is used (AMD's)
// can be told so: then the line goes past the second-level cache, whose old lines are not moved to
// the next one, and which keeps what the step before left there.
#if defined(ROSE_DOT) && !defined(ROSE_EMULATE_DOT)
constexpr bool READS_PAST_L2 = true;
#else
constexpr bool READS_PAST_L2 = false;
#endif
ROSE_INLINE void fetch_once(const char* line) {
  __builtin_prefetch(line, 0, READS_PAST_L2 ? 0 : 3);
}

#if defined(ROSE_PAIRS)
// Per lane: acc + a.low * b.low + a.high * b.high, with two bfloat16 in a lane.
ROSE_INLINE vf dot_pairs(vf acc, vu a, vu b) {
#if defined(ROSE_EMULATE_DOT) || defined(ROSE_AMX)
  acc += (vf)(a & 0xffff0000u) * (vf)(b & 0xffff0000u);
  return acc + (vf)(a << 16) * (vf)(b << 16);
#else
  return (vf)_mm512_dpbf16_ps((__m512)acc, (__m512bh)a, (__m512bh)b);
#endif
}
#endif

// Load 2 * W signed bytes as int16.
ROSE_INLINE vs widen_bytes(const char* p) {
#if defined(__AVX512BW__) && ROSE_WIDTH == 16
  return (vs)_mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i*)p));
#elif defined(__AVX2__) && ROSE_WIDTH == 8
  return (vs)_mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i*)p));
#else
  return __builtin_convertvector(*(const vb_u*)p, vs);
#endif
}
// Per lane: acc + a.low * b.low + a.high * b.high, with two int16 in a lane.
ROSE_INLINE vi dot_int16(vi acc, vs a, vs b) {
#if defined(__AVX512VNNI__) && ROSE_WIDTH == 16
  return (vi)_mm512_dpwssd_epi32((__m512i)acc, (__m512i)a, (__m512i)b);
#elif defined(__AVX512BW__) && ROSE_WIDTH == 16
  return acc + (vi)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#elif defined(__AVX2__) && ROSE_WIDTH == 8
  return acc + (vi)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#elif defined(__SSE2__) && ROSE_WIDTH == 4
  return acc + (vi)_mm_madd_epi16((__m128i)a, (__m128i)b);
#else
  vi a_low = (vi)((vu)a << 16) >> 16, b_low = (vi)((vu)b << 16) >> 16;
  return acc + a_low * b_low + ((vi)a >> 16) * ((vi)b >> 16);
#endif
}

// Per lane: acc + sum over i < 4 of byte i of w, unsigned and of BITS bits, times byte i of x,
// signed and not -128.
template <int BITS>
ROSE_INLINE vi dot_bytes(vi acc, vu w, uint32_t x) {
#if defined(__AVX512VNNI__) && ROSE_WIDTH == 16
  return (vi)_mm512_dpbusd_epi32((__m512i)acc, (__m512i)w, _mm512_set1_epi32((int)x));
#elif defined(__AVXVNNI__) && ROSE_WIDTH == 8
  return (vi)_mm256_dpbusd_avx_epi32((__m256i)acc, (__m256i)w, _mm256_set1_epi32((int)x));
#else
#if defined(__AVX512BW__) && ROSE_WIDTH == 16
  if constexpr (BITS < 8)  // pairs of larger products do not fit in 16 bits
    return acc + (vi)_mm512_madd_epi16(_mm512_maddubs_epi16((__m512i)w, _mm512_set1_epi32((int)x)),
                                       _mm512_set1_epi16(1));
#elif defined(__AVX2__) && ROSE_WIDTH == 8
  if constexpr (BITS < 8)
    return acc + (vi)_mm256_madd_epi16(_mm256_maddubs_epi16((__m256i)w, _mm256_set1_epi32((int)x)),
                                       _mm256_set1_epi16(1));
#endif
  vs even =
      (vs)(vu{} + (((uint32_t)(int16_t)(int8_t)x & 0xffff) | (uint32_t)(int8_t)(x >> 16) << 16));
  vs odd = (vs)(vu{} + (((uint32_t)(int16_t)(int8_t)(x >> 8) & 0xffff) | (uint32_t)(int8_t)(x >> 24)
                                                                             << 16));
  acc = dot_int16(acc, even, (vs)(w & 0x00ff00ffu));
  return dot_int16(acc, odd, (vs)(w >> 8 & 0x00ff00ffu));
#endif
}

// ROSE_BYTES: int8 weights are multiplied by bytes, because this CPU has an instruction for that
// (AVX512-VNNI, AVX-VNNI) and no tiles. ROSE_EMULATE_BYTES does the same on any CPU, for tests.
#if !defined(ROSE_AMX) &&                                                            \
    (defined(ROSE_EMULATE_BYTES) || (defined(__AVX512VNNI__) && ROSE_WIDTH == 16) || \
     (defined(__AVXVNNI__) && ROSE_WIDTH == 8))
#define ROSE_BYTES
#endif

#if defined(ROSE_AMX)
// Per lane: acc + the sum of the products of four int8.
ROSE_INLINE vi dot_bytes(vi acc, vi a, vi b) {
  for (int i = 0; i < 4; i++) acc += (a << (24 - 8 * i) >> 24) * (b << (24 - 8 * i) >> 24);
  return acc;
}
#endif
ROSE_INLINE float widen(uint16_t h) {
  uint32_t u = (uint32_t)h << 16;
  float f;
  memcpy(&f, &u, 4);
  return f;
}

// Round to nearest, ties to even. NaN stays NaN.
ROSE_INLINE uint16_t narrow(float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  if ((u & 0x7fffffff) > 0x7f800000) return 0x7fc0;
  return (uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}
ROSE_INLINE vu narrow(vf v) {
  vu u = (vu)v;
  vu rounded = (u + 0x7fff + ((u >> 16) & 1)) >> 16;
  vi is_nan = (vi)((u & 0x7fffffff) > 0x7f800000);
  return (vu)((vi)rounded & ~is_nan) | ((vu)is_nan & 0x7fc0);
}
ROSE_INLINE void store(uint16_t* p, vf v) { *(vh_u*)p = __builtin_convertvector(narrow(v), vh_u); }

// Round to bfloat16. Products take subnormal numbers for zero, and so does AVX512-BF16's
// instruction.
ROSE_INLINE void store_rounded(uint16_t* to, vf v) {
#if ROSE_WIDTH == 16 && defined(__AVX512BF16__)
  *(vh_u*)to = (vh_u)_mm512_cvtneps_pbh((__m512)v);
#else
  store(to, v);
#endif
}

#if defined(__clang__)
#define ROSE_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define ROSE_SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (vi){__VA_ARGS__})
#endif

ROSE_INLINE vf max(vf a, vf b) { return a > b ? a : b; }

// a * b + c, rounded once on any CPU with an instruction for that. What a compiler makes of the
// operators may differ from place to place: of a * b + c * d it rounds one of the products, or
// both.
ROSE_INLINE vf multiply_add(vf a, vf b, vf c) {
#if defined(__AVX512F__) && ROSE_WIDTH == 16
  return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__FMA__) && ROSE_WIDTH == 8
  return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__FMA__) && ROSE_WIDTH == 4
  return (vf)_mm_fmadd_ps((__m128)a, (__m128)b, (__m128)c);
#elif defined(__FMA__) || defined(__aarch64__) || defined(__FP_FAST_FMAF)
  for (int lane = 0; lane < W; lane++) c[lane] = __builtin_fmaf(a[lane], b[lane], c[lane]);
  return c;
#else
  return a * b + c;
#endif
}

// Whether a lane of a comparison is true.
ROSE_INLINE bool any(vi is_true) {
#if defined(__AVX512F__) && ROSE_WIDTH == 16
  return _mm512_test_epi32_mask((__m512i)is_true, (__m512i)is_true) != 0;
#elif defined(__AVX__) && ROSE_WIDTH == 8
  return _mm256_movemask_ps((__m256)is_true) != 0;
#else
  int32_t found = 0;
  for (int lane = 0; lane < W; lane++) found |= is_true[lane];
  return found != 0;
#endif
}

// Lane i of the result is lane (i + N) % W of v.
template <int N>
ROSE_INLINE vf rotate(vf v) {
#if ROSE_WIDTH == 16
  return ROSE_SHUFFLE(v, v, N, N + 1, N + 2, N + 3, N + 4, N + 5, N + 6, N + 7, N + 8, N + 9,
                      N + 10, N + 11, N + 12, N + 13, N + 14, N + 15);
#elif ROSE_WIDTH == 8
  return ROSE_SHUFFLE(v, v, N, N + 1, N + 2, N + 3, N + 4, N + 5, N + 6, N + 7);
#else
  return ROSE_SHUFFLE(v, v, N, N + 1, N + 2, N + 3);
#endif
}
ROSE_INLINE float sum(vf v) {
#if ROSE_WIDTH == 16
  v += rotate<8>(v);
#endif
#if ROSE_WIDTH >= 8
  v += rotate<4>(v);
#endif
  v += rotate<2>(v);
  v += rotate<1>(v);
  return v[0];
}
ROSE_INLINE int32_t sum(vi v) {
#if ROSE_WIDTH == 16
  v += (vi)rotate<8>((vf)v);
#endif
#if ROSE_WIDTH >= 8
  v += (vi)rotate<4>((vf)v);
#endif
  v += (vi)rotate<2>((vf)v);
  v += (vi)rotate<1>((vf)v);
  return v[0];
}
ROSE_INLINE float largest(vf v) {
#if ROSE_WIDTH == 16
  v = max(v, rotate<8>(v));
#endif
#if ROSE_WIDTH >= 8
  v = max(v, rotate<4>(v));
#endif
  v = max(v, rotate<2>(v));
  v = max(v, rotate<1>(v));
  return v[0];
}

// exp(x), with x clamped to [-87, 88]; relative error below 2e-7. Cody and Waite's reduction to
// [-ln 2 / 2, ln 2 / 2] and the polynomial of Cephes' expf.
ROSE_INLINE vf exp(vf x) {
  vf lo = splat(-87.0f), hi = splat(88.0f);
  x = x < lo ? lo : x;
  x = x > hi ? hi : x;
  vf n = x * 1.44269504f + 12582912.0f;  // 1.5 * 2^23: rounds to an integer
  vf power = (vf)(((vi)n << 23) + 0x3f800000);
  n -= 12582912.0f;
  vf r = x - n * 0.693359375f;
  r = r + n * 2.12194440e-4f;
  vf p = splat(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  return p * power;
}
