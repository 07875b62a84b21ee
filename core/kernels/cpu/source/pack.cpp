// Pack weights, and read rows of packed weights. packed.h defines the layouts.
#include "packed.h"

#include <omp.h>

#include <algorithm>

namespace {

constexpr int64_t MIN_PARALLEL = 1 << 14;  // values; below, waking threads costs more than it saves

// The scale of a row: its largest magnitude / 127.
float scale_of(const float* row, int64_t K) {
  vf most = {};
  int64_t k = 0;
  for (; k + W <= K; k += W) most = max(max(load(row + k), -load(row + k)), most);
  float result = largest(most);
  for (; k < K; k++) result = std::max(result, std::fabs(row[k]));
  return result / 127;
}

constexpr int64_t TILE = 16;  // values of k that are turned at a time; a whole number of steps

// Write a panel whose columns are `columns` rows of w. A tile is turned in the cache, so that the panel is
// written once and in order. With scales, values are divided by that of their column.
template <class P>
void pack_panel(const float* w, int64_t K, int columns, const float* scale, char* panel) {
  float turned[TILE][PANEL] = {};
  float divisor[PANEL];
  for (int c = 0; c < PANEL; c++) divisor[c] = scale && c < columns && scale[c] > 0 ? scale[c] : 1;
  for (int64_t start = 0; start < K; start += TILE) {
    int64_t count = std::min(TILE, K - start);
    for (int c = 0; c < columns; c++)
      for (int64_t k = 0; k < count; k++) turned[k][c] = w[c * K + start + k];
    for (int64_t k = count; k % P::K_PER_STEP; k++) std::fill_n(turned[k], PANEL, 0.0f);
    if (scale)
      for (int64_t k = 0; k < count; k++)
        for (int c = 0; c < PANEL; c += W) store(turned[k] + c, load(turned[k] + c) / load(divisor + c));
    for (int64_t k = 0; k < count; k += P::K_PER_STEP) P::put(panel + P::at(start + k, 0), turned + k);
  }
}

}  // namespace

// Columns of a panel, and its size in bytes.
ROSE_EXPORT int64_t rose_panel() { return PANEL; }
ROSE_EXPORT int64_t rose_panel_bytes(int format, int64_t K) {
  return with_layout(format, [&](auto layout) { return panel_bytes_of<decltype(layout)>(K); });
}

// w is [N, K]. out has room for whole panels and is filled with zeros. scale is written for int8 only.
ROSE_EXPORT void rose_pack_linear(int format, const float* w, int64_t N, int64_t K, char* out, float* scale) {
  with_layout(format, [&](auto layout) {
    using P = decltype(layout);
#pragma omp parallel for schedule(static)
    for (int64_t p = 0; p < (N + PANEL - 1) / PANEL; p++) {
      int64_t first = p * PANEL;
      int columns = (int)std::min<int64_t>(PANEL, N - first);
      float* own = format == INT8 ? scale + first : nullptr;
      for (int c = 0; own && c < columns; c++) own[c] = scale_of(w + (first + c) * K, K);
      pack_panel<P>(w + first * K, K, columns, own, out + p * panel_bytes_of<P>(K));
    }
  });
}

// y[i] = row ids[i] of w in float32, for an embedding that shares its weight with the output layer.
ROSE_EXPORT void rose_unpack_rows(int format, const char* weight, const float* scale, const int64_t* ids,
                                  int64_t count, int64_t K, float* y) {
  with_layout(format, [&](auto layout) {
    using P = decltype(layout);
#pragma omp parallel for schedule(static) if (count * K >= MIN_PARALLEL)
    for (int64_t i = 0; i < count; i++) {
      const char* panel = weight + ids[i] / PANEL * panel_bytes_of<P>(K);
      float factor = scale ? scale[ids[i]] : 1;
      for (int64_t k = 0; k < K; k++) y[i * K + k] = P::get(panel + P::at(k, ids[i] % PANEL)) * factor;
    }
  });
}
