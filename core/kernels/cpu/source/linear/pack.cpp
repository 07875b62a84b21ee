// Pack weights, and read rows of packed weights. packed.h defines the layouts.
#include "block_pack.h"
#include "packed.h"

#include <omp.h>

#include <algorithm>
#include <utility>

namespace {

// The type of a checkpoint's weights.
enum Source { FROM_FLOAT32 = 0, FROM_BFLOAT16 = 1, FROM_FLOAT16 = 2 };
struct Half {
  uint16_t bits;
};

template <class F>
void with_source(int source, F f) {
  if (source == FROM_BFLOAT16)
    f((const uint16_t*)nullptr);
  else if (source == FROM_FLOAT16)
    f((const Half*)nullptr);
  else
    f((const float*)nullptr);
}

ROSE_INLINE float value(float x) { return x; }
ROSE_INLINE float value(uint16_t x) { return widen(x); }
ROSE_INLINE float value(Half x) { return widen_half(x.bits); }
using ::load;
ROSE_INLINE vf load(const Half* p) { return load_half((const char*)p); }

// The scale of a row: its largest magnitude / 127.
template <class T>
float scale_of(const T* row, int64_t K) {
  vf most = {};
  int64_t k = 0;
  for (; k + W <= K; k += W) most = max(max(load(row + k), -load(row + k)), most);
  float result = largest(most);
  for (; k < K; k++) result = std::max(result, std::fabs(value(row[k])));
  return result / 127;
}

// Exchange the lanes of a with D set and those of b with D not set.
template <int D, int... LANE>
ROSE_INLINE void exchange(vf& a, vf& b, std::integer_sequence<int, LANE...>) {
  vf low = ROSE_SHUFFLE(a, b, (LANE & D ? W + LANE - D : LANE)...);
  b = ROSE_SHUFFLE(a, b, (LANE & D ? W + LANE : LANE + D)...);
  a = low;
}
template <int D>
ROSE_INLINE void exchange_all(vf (&v)[W]) {
#pragma GCC unroll 16
  for (int i = 0; i < W; i++)
    if (!(i & D)) exchange<D>(v[i], v[i | D], std::make_integer_sequence<int, W>());
}

// Turn rows into columns (Eklundh).
ROSE_INLINE void transpose(vf (&v)[W]) {
  exchange_all<1>(v);
  exchange_all<2>(v);
#if ROSE_WIDTH >= 8
  exchange_all<4>(v);
#endif
#if ROSE_WIDTH == 16
  exchange_all<8>(v);
#endif
}

constexpr int64_t TILE =
    16;  // values of k that are turned at a time; a whole number of steps and vectors

// turned[k][c] = rows[c][start + k] for `count` values of k; zero beyond them and beyond the
// columns.
template <class T>
void turn(const T* const* rows, int columns, int64_t start, int64_t count, float (*turned)[PANEL]) {
  if (count == TILE && columns == PANEL) {
    for (int c = 0; c < PANEL; c += W)
      for (int64_t k = 0; k < TILE; k += W) {
        vf v[W];
        for (int i = 0; i < W; i++) v[i] = load(rows[c + i] + start + k);
        transpose(v);
        for (int i = 0; i < W; i++) store(turned[k + i] + c, v[i]);
      }
    return;
  }
  std::fill_n(turned[0], TILE * PANEL, 0.0f);
  for (int c = 0; c < columns; c++)
    for (int64_t k = 0; k < count; k++) turned[k][c] = value(rows[c][start + k]);
}

// Write values of k from `first` to before `end` to a panel whose columns are rows of weights.
// `rows` have `count` of them, the others are padding. A tile is turned in the cache, so that the
// panel is written once and in order. With scales, values are divided by that of their column.
template <class P, class T>
void pack_columns(const T* const* rows, int64_t first, int64_t count, int64_t end, int columns,
                  const float* scale, char* panel) {
  alignas(64) float turned[TILE][PANEL];
  float divisor[PANEL];
  for (int c = 0; c < PANEL; c++) divisor[c] = scale && c < columns && scale[c] > 0 ? scale[c] : 1;
  for (int64_t start = 0; first + start < end; start += TILE) {
    turn(rows, columns, start, std::max<int64_t>(0, std::min(TILE, count - start)), turned);
    if (scale)
      for (int64_t k = 0; k < TILE; k++)
        for (int c = 0; c < PANEL; c += W)
          store(turned[k] + c, load(turned[k] + c) / load(divisor + c));
    for (int64_t k = 0; k < TILE && first + start + k < end; k += P::K_PER_STEP)
      P::put(panel + P::at(first + start + k, 0), turned + k);
  }
}

// f(rows, first, count) for each block of columns, with rows of `count` values of k from `first` on
// as a layout packs them that rotates them. They are made anew each time, so that a panel takes no
// memory beside the cache.
template <class T, class F>
void rotated_blocks(const T* const* rows, int columns, int64_t K, F f) {
  alignas(64) float block[PANEL][ROTATED];
  const float* pointers[PANEL];
  for (int64_t first = 0; first < K; first += ROTATED) {
    int64_t count = std::min(ROTATED, K - first);
    for (int c = 0; c < columns; c++) {
      for (int64_t k = 0; k < count; k++) block[c][k] = value(rows[c][first + k]);
      rotate(block[c], count, block[c]);
      pointers[c] = block[c];
    }
    f((const float* const*)pointers, first, count);
  }
}

// Write a panel. `scale`, of int8 only, gets the scales of its columns.
template <class P, class T>
void pack_panel(const T* const* rows, int64_t K, int columns, float* scale, char* panel) {
  int64_t padded = steps_of<P>(K) * P::K_PER_STEP;
  if constexpr (IS_ROTATED<P>) {
    std::fill_n(scale, columns, 0.0f);
    rotated_blocks(rows, columns, K, [&](auto block, int64_t, int64_t count) {
      for (int c = 0; c < columns; c++) scale[c] = std::max(scale[c], scale_of(block[c], count));
    });
    rotated_blocks(rows, columns, K, [&](auto block, int64_t first, int64_t count) {
      pack_columns<P>(block, first, count, first + count < K ? first + count : padded, columns,
                      scale, panel);
    });
  } else {
    for (int c = 0; scale && c < columns; c++) scale[c] = scale_of(rows[c], K);
    pack_columns<P>(rows, 0, K, padded, columns, scale, panel);
  }
}

}  // namespace

// Columns of a panel, and its size in bytes.
ROSE_EXPORT int64_t rose_panel() { return PANEL; }
ROSE_EXPORT int64_t rose_panel_bytes(int format, int64_t K) {
  if (is_in_blocks(format)) return rose_block_panel_bytes(format, K);
  return with_layout(format, [&](auto layout) { return panel_bytes_of<decltype(layout)>(K); });
}

// Pack N rows of K values, which may be anywhere. out has room for whole panels. scale is written
// for int8 only; it has a value for each row. The thread that computes with a panel writes it
// first, so that its memory is near.
ROSE_EXPORT void rose_pack_rows(int format, int source, const void* const* rows, int64_t N,
                                int64_t K, char* out, float* scale) {
  with_source(source, [&](auto type) {
    with_layout(format, [&](auto layout) {
      using P = decltype(layout);
      auto from = (decltype(type) const*)rows;
#pragma omp parallel for schedule(static)
      for (int64_t p = 0; p < (N + PANEL - 1) / PANEL; p++) {
        int64_t first = p * PANEL;
        int columns = (int)std::min<int64_t>(PANEL, N - first);
        pack_panel<P>(from + first, K, columns, format == INT8 ? scale + first : nullptr,
                      out + p * panel_bytes_of<P>(K));
      }
    });
  });
}

// y[i] = row ids[i] of w in float32, for an embedding that shares its weight with the output layer.
ROSE_EXPORT void rose_unpack_rows(int format, const char* weight, const float* scale,
                                  const int64_t* ids, int64_t count, int64_t K, float* y) {
  if (is_in_blocks(format)) return rose_unpack_blocks(format, weight, ids, count, K, y);
  with_layout(format, [&](auto layout) {
    using P = decltype(layout);
#pragma omp parallel for schedule(static) if (count * K >= MIN_PARALLEL)
    for (int64_t i = 0; i < count; i++) {
      const char* panel = weight + ids[i] / PANEL * panel_bytes_of<P>(K);
      float factor = scale ? scale[ids[i]] : 1;
      for (int64_t k = 0; k < K; k++)
        y[i * K + k] = P::get(panel + P::at(k, ids[i] % PANEL)) * factor;
      if constexpr (IS_ROTATED<P>) rotate<true>(y + i * K, K, y + i * K);
    }
  });
}
