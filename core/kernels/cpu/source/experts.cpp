// What surrounds the products of a mixture's experts. See core/kernels/cpu/experts.py.
#include "vec.h"

#include <omp.h>

#include <algorithm>

namespace {

constexpr int64_t MIN_PARALLEL = 1 << 15;  // values; below, waking threads costs more than it saves

}  // namespace

// Sort the choices of tokens by expert, in the order of tokens for each expert. chosen is
// [tokens, per_token]. The rows of expert e end before ends[e]; row r is that of token sources[r], and choice
// c has row places[c]. A choice that is no expert has the place -1; sources has zeros at its end for these.
ROSE_EXPORT void rose_experts_sort(const int64_t* chosen, int64_t tokens, int64_t per_token, int64_t num_experts,
                                   int64_t* ends, int64_t* sources, int64_t* places) {
  auto is_expert = [&](int64_t e) { return e >= 0 && e < num_experts; };
  std::fill(ends, ends + num_experts, 0);
  for (int64_t c = 0; c < tokens * per_token; c++)
    if (is_expert(chosen[c])) ends[chosen[c]]++;
  int64_t start = 0;
  for (int64_t e = 0; e < num_experts; e++) {
    int64_t count = ends[e];
    ends[e] = start;
    start += count;
  }
  for (int64_t c = 0; c < tokens * per_token; c++) {
    places[c] = is_expert(chosen[c]) ? ends[chosen[c]]++ : -1;
    if (places[c] >= 0) sources[places[c]] = c / per_token;
  }
  std::fill(sources + start, sources + tokens * per_token, 0);
}

// y[t] = sum over k of weights[t, k] * rows[places[t, k]], in the order of k. A place of -1 adds nothing.
// Rows have n values; places and weights are [tokens, per_token].
ROSE_EXPORT void rose_experts_sum(const float* rows, const int64_t* places, const float* weights, int64_t tokens,
                                  int64_t per_token, int64_t n, float* y) {
#pragma omp parallel for schedule(static) if (tokens * per_token * n >= MIN_PARALLEL)
  for (int64_t t = 0; t < tokens; t++) {
    float* out = y + t * n;
    std::fill(out, out + n, 0.0f);
    for (int64_t k = t * per_token; k < (t + 1) * per_token; k++) {
      if (places[k] < 0) continue;
      const float* row = rows + places[k] * n;
      int64_t i = 0;
      for (; i + W <= n; i += W) store(out + i, load(out + i) + load(row + i) * weights[k]);
      for (; i < n; i++) out[i] += row[i] * weights[k];
    }
  }
}
