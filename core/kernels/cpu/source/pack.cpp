// Pack weights, and read rows of packed weights. packed.h defines the layouts.
#include "packed.h"

#include <omp.h>

#include <algorithm>

namespace {

constexpr int64_t MIN_PARALLEL = 1 << 14;  // values; below, waking threads costs more than it saves

// The scale of a row: its largest magnitude / 127.
float scale_of(const float* row, int64_t K) {
  float most = 0;
  for (int64_t k = 0; k < K; k++) most = std::max(most, std::fabs(row[k]));
  return most / 127;
}

template <class P>
void pack_column(const float* row, int64_t K, const float* scale, char* panel, int c) {
  float divisor = scale && *scale > 0 ? *scale : 1;
  for (int64_t k = 0; k < K; k++) P::set(panel + P::at(k, c), scale ? row[k] / divisor : row[k]);
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
      for (int c = 0; c < std::min<int64_t>(PANEL, N - p * PANEL); c++) {
        int64_t n = p * PANEL + c;
        if (format == INT8) scale[n] = scale_of(w + n * K, K);
        pack_column<P>(w + n * K, K, format == INT8 ? scale + n : nullptr, out + p * panel_bytes_of<P>(K), c);
      }
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
