// Layouts of packed weights.
//
// A panel has 2 * W columns, which are rows of the weight. A step is one value of k for all of
// them, or two if the CPU multiplies pairs. In gated products the first W columns are gate and the
// others up. The last panel is padded with zeros, and the steps of a panel to a multiple of STEPS.
#pragma once
#include "half.h"
#include "quantise_rows.h"
#include "rotate.h"

enum Format { FLOAT32 = 0, BFLOAT16 = 1, INT8 = 2, FLOAT16 = 3 };

// Whether a format is one of block_formats.h.
inline bool is_in_blocks(int format) { return format >= 100; }

constexpr int PANEL = 2 * W;

// In a step, `Activation` is read from a row of x, `Vector` from W columns, and the product is
// added to `Sum`. `at` is the byte offset of value k of column c in a panel. `put` writes a step of
// K_PER_STEP rows of v. A row of x has PARTS activations for each step. After every SUMMED values
// of k the sum is converted to float32 and multiplied by the scale of that run of x.
constexpr int64_t ALL = INT64_MAX;

struct PackedFloat32 {
  using Activation = float;
  using Vector = vf;
  using Sum = vf;
  static constexpr int64_t K_PER_STEP = 1, STEPS = 1, PARTS = 1, SUMMED = ALL, BYTES = 2 * W * 4;
  static int64_t at(int64_t k, int c) { return k * BYTES + c * 4; }
  static void put(char* p, const float (*v)[PANEL]) {
    store((float*)p, load(v[0]));
    store((float*)p + W, load(v[0] + W));
  }
  static float get(const char* p) { return *(const float*)p; }
  ROSE_INLINE void read(const char* p, vf& a, vf& b) {
    a = load((const float*)p);
    b = load((const float*)p + W);
  }
  ROSE_INLINE float activation(const float* x, int64_t s) { return x[s]; }
  ROSE_INLINE vf add(vf acc, float x, vf w) { return acc + x * w; }
  ROSE_INLINE vf value(vf sum) { return sum; }
};

// Widened to float32, exactly.
struct PackedFloat16 {
  using Activation = float;
  using Vector = vf;
  using Sum = vf;
  static constexpr int64_t K_PER_STEP = 1, STEPS = 1, PARTS = 1, SUMMED = ALL, BYTES = 2 * W * 2;
  static int64_t at(int64_t k, int c) { return k * BYTES + c * 2; }
  static void put(char* p, const float (*v)[PANEL]) {
    store_half(p, load(v[0]));
    store_half(p + W * 2, load(v[0] + W));
  }
  static float get(const char* p) {
    uint16_t bits;
    memcpy(&bits, p, 2);
    return widen_half(bits);
  }
  ROSE_INLINE void read(const char* p, vf& a, vf& b) {
    a = load_half(p);
    b = load_half(p + W * 2);
  }
  ROSE_INLINE float activation(const float* x, int64_t s) { return x[s]; }
  ROSE_INLINE vf add(vf acc, float x, vf w) { return acc + x * w; }
  ROSE_INLINE vf value(vf sum) { return sum; }
};

#if defined(ROSE_PAIRS)
struct PackedBFloat16 {
  using Activation = uint32_t;  // two bfloat16
  using Vector = vu;
  using Sum = vf;
#if defined(ROSE_AMX)
  static constexpr int64_t STEPS = 16;
#else
  static constexpr int64_t STEPS = 1;
#endif
  static constexpr int64_t K_PER_STEP = 2, PARTS = 1, SUMMED = ALL, BYTES = 2 * W * 4;
  static int64_t at(int64_t k, int c) { return k / 2 * BYTES + c * 4 + k % 2 * 2; }
  static void put(char* p, const float (*v)[PANEL]) {
    for (int c = 0; c < PANEL; c += W)
      *(vu_u*)(p + c * 4) = narrow(load(v[0] + c)) | narrow(load(v[1] + c)) << 16;
  }
  static float get(const char* p) { return widen(*(const uint16_t*)p); }
  ROSE_INLINE void read(const char* p, vu& a, vu& b) {
    a = *(const vu_u*)p;
    b = *((const vu_u*)p + 1);
  }
  ROSE_INLINE uint32_t activation(const uint32_t* x, int64_t s) { return x[s]; }
  ROSE_INLINE vf add(vf acc, uint32_t x, vu w) { return dot_pairs(acc, vu{} + x, w); }
  ROSE_INLINE vf value(vf sum) { return sum; }
};
#else
// Columns j and W + j are the two halves of lane j, so that one shift or one mask widens W columns.
struct PackedBFloat16 {
  using Activation = float;
  using Vector = vf;
  using Sum = vf;
  static constexpr int64_t K_PER_STEP = 1, STEPS = 1, PARTS = 1, SUMMED = ALL, BYTES = 2 * W * 2;
  static int64_t at(int64_t k, int c) { return k * BYTES + c % W * 4 + c / W * 2; }
  static void put(char* p, const float (*v)[PANEL]) {
    *(vu_u*)p = narrow(load(v[0])) | narrow(load(v[0] + W)) << 16;
  }
  static float get(const char* p) { return widen(*(const uint16_t*)p); }
  ROSE_INLINE void read(const char* p, vf& a, vf& b) {
    vu u = *(const vu_u*)p;
    a = (vf)(u << 16);
    b = (vf)(u & 0xffff0000u);
  }
  ROSE_INLINE float activation(const float* x, int64_t s) { return x[s]; }
  ROSE_INLINE vf add(vf acc, float x, vf w) { return acc + x * w; }
  ROSE_INLINE vf value(vf sum) { return sum; }
};
#endif

// Each column has a scale, which is applied to the product. x is rounded to integers with a scale
// for every run of SUMMED values. They have 16 bits, which is more exact than bfloat16, or 8 where
// vectors multiply bytes.
#if defined(ROSE_AMX)
// Tiles multiply bytes, so x is 256 * high + low, two signed bytes. A row of x has 64 high ones,
// then the 64 low ones of the same values. Vectors multiply only if tiles are not permitted. The
// sums of a run are exact in float32: they are below 2^7 * 2^7 * 2^10.
struct PackedInt8 {
  using Activation = uint32_t;  // four int8
  struct Pair {
    uint32_t high, low;
  };
  using Vector = vi;
  struct Sum {
    vi high, low;
  };
  static constexpr int MOST = 127 * 256 + 127;
  static constexpr int64_t K_PER_STEP = 4, STEPS = 16, PARTS = 2, SUMMED = 1024, BYTES = 2 * W * 4;
  static int64_t at(int64_t k, int c) { return k / 4 * BYTES + c * 4 + k % 4; }
  static void put(char* p, const float (*v)[PANEL]) {
    for (int c = 0; c < PANEL; c += W) {
      vu fours = vu{};
      for (int i = 0; i < 4; i++) fours |= ((vu)nearest(load(v[i] + c)) & 0xff) << (8 * i);
      *(vu_u*)(p + c * 4) = fours;
    }
  }
  static float get(const char* p) { return *(const int8_t*)p; }
  ROSE_INLINE Pair activation(const uint32_t* x, int64_t s) {
    x += s / STEPS * 2 * STEPS + s % STEPS;
    return {x[0], x[STEPS]};
  }
  ROSE_INLINE void read(const char* p, vi& a, vi& b) {
    a = (vi) * (const vu_u*)p;
    b = (vi) * ((const vu_u*)p + 1);
  }
  ROSE_INLINE Sum add(Sum acc, Pair x, vi w) {
    return {dot_bytes(acc.high, vi{} + (int32_t)x.high, w),
            dot_bytes(acc.low, vi{} + (int32_t)x.low, w)};
  }
  ROSE_INLINE vf value(vi high, vi low) {
    return __builtin_convertvector(high, vf) * 256 + __builtin_convertvector(low, vf);
  }
  ROSE_INLINE vf value(Sum sum) { return value(sum.high, sum.low); }
};
#elif defined(ROSE_BYTES)
// Vectors multiply unsigned bytes by signed ones, so weights are stored with 128 added, and the
// sums of a run of x start at -128 times the sum of its bytes. Rows of both are rotated before they
// are rounded.
struct PackedInt8 {
  using Activation = uint32_t;  // four int8
  using Vector = vu;
  using Sum = vi;
  static constexpr int MOST = 127;
  static constexpr int64_t K_PER_STEP = 4, STEPS = 1, PARTS = 1, SUMMED = ROTATED,
                           BYTES = 2 * W * 4;
  static int64_t at(int64_t k, int c) { return k / 4 * BYTES + c * 4 + k % 4; }
  static void put(char* p, const float (*v)[PANEL]) {
    for (int c = 0; c < PANEL; c += W) {
      vu fours = vu{};
      for (int i = 0; i < 4; i++) fours |= ((vu)(nearest(load(v[i] + c)) + 128) & 0xff) << (8 * i);
      *(vu_u*)(p + c * 4) = fours;
    }
  }
  static float get(const char* p) { return (float)(*(const uint8_t*)p - 128); }
  ROSE_INLINE void read(const char* p, vu& a, vu& b) {
    a = *(const vu_u*)p;
    b = *((const vu_u*)p + 1);
  }
  ROSE_INLINE uint32_t activation(const uint32_t* x, int64_t s) { return x[s]; }
  ROSE_INLINE vi add(vi acc, uint32_t x, vu w) { return dot_bytes<8>(acc, w, x); }
  ROSE_INLINE vf value(vi sum) { return __builtin_convertvector(sum, vf); }
};
#else
// The sum of a run fits: 2^15 * 2^7 * 2^8 < 2^31.
struct PackedInt8 {
  using Activation = uint32_t;  // two int16
  using Vector = vs;
  using Sum = vi;
  static constexpr int MOST = 32767;
  static constexpr int64_t K_PER_STEP = 2, STEPS = 1, PARTS = 1, SUMMED = 256, BYTES = 2 * W * 2;
  static int64_t at(int64_t k, int c) { return k / 2 * BYTES + c * 2 + k % 2; }
  static void put(char* p, const float (*v)[PANEL]) {
    for (int c = 0; c < PANEL; c += W) {
      vu pairs = ((vu)nearest(load(v[0] + c)) & 0xff) | ((vu)nearest(load(v[1] + c)) & 0xff) << 8;
      *(vh_u*)(p + c * 2) = __builtin_convertvector(pairs, vh_u);
    }
  }
  static float get(const char* p) { return *(const int8_t*)p; }
  ROSE_INLINE void read(const char* p, vs& a, vs& b) {
    a = widen_bytes(p);
    b = widen_bytes(p + 2 * W);
  }
  ROSE_INLINE uint32_t activation(const uint32_t* x, int64_t s) { return x[s]; }
  ROSE_INLINE vi add(vi acc, uint32_t x, vs w) { return dot_int16(acc, (vs)(vu{} + x), w); }
  ROSE_INLINE vf value(vi sum) { return __builtin_convertvector(sum, vf); }
};
#endif

// Whether weights are stored with 128 added, and rows of w and x are rotated.
template <class P>
constexpr bool IS_ROTATED = P::K_PER_STEP == 4 && P::PARTS == 1;

template <class P>
ROSE_INLINE int64_t steps_of(int64_t K) {
  constexpr int64_t N = P::K_PER_STEP * P::STEPS;
  return (K + N - 1) / N * P::STEPS;
}
template <class P>
ROSE_INLINE int64_t panel_bytes_of(int64_t K) {
  return steps_of<P>(K) * P::BYTES;
}

// Call f with the layout of a format.
template <class F>
auto with_layout(int format, F f) {
  switch (format) {
    case FLOAT32:
      return f(PackedFloat32());
    case FLOAT16:
      return f(PackedFloat16());
    case BFLOAT16:
      return f(PackedBFloat16());
    default:
      return f(PackedInt8());
  }
}
