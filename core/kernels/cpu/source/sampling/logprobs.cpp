// Log-probabilities of tokens and the most likely alternatives.
#include "largest.h"
#include "scratch.h"

#include <omp.h>

#include <vector>

namespace {

// log of the sum of exp(x - highest)
double log_of_sum(const float* x, int64_t n, float highest) {
  double total = 0;
  for (int64_t first = 0; first < n; first += BLOCK) {
    vf block = vf{};
    for (int64_t i = first; i < std::min(first + BLOCK, n); i += W) {
      vf distance = load_until(x + i, n - i) - highest;
      block += distance >= -87.0f ? exp(distance) : vf{};
    }
    total += sum(block);
  }
  return std::log(total);
}

// The ids of the `count` largest values of x, in descending order, the lower id first among equals.
void find_top(const float* x, int64_t n, const float* maxima, float bound, int64_t count,
              std::vector<int64_t>& ids) {
  ids.clear();
  for (int64_t b = 0; b < num_blocks(n); b++) {
    if (maxima[b] < bound) continue;
    for (int64_t i = b * BLOCK; i < std::min((b + 1) * BLOCK, n); i++)
      if (x[i] >= bound) ids.push_back(i);
  }
  std::partial_sort(ids.begin(), ids.begin() + count, ids.end(),
                    [x](int64_t a, int64_t b) { return x[a] > x[b] || (x[a] == x[b] && a < b); });
}

}  // namespace

// A line per row of n logits; x has row stride `stride`: the natural logarithm of the probability
// of tokens[row], then those of the num_top (<= n) most likely tokens, then their ids. The first
// one is NaN if the row has no distribution.
ROSE_EXPORT void rose_logprobs(const float* x, int64_t count, int64_t stride, int64_t n,
                               const int64_t* tokens, int64_t num_top, double* lines) {
#pragma omp parallel for schedule(static) if (count > 1)
  for (int64_t row = 0; row < count; row++) {
    static thread_local Scratch maxima_memory, sorted_memory;
    static thread_local std::vector<int64_t> ids;
    const float* values = x + row * stride;
    double* line = lines + row * (1 + 2 * num_top);
    float* maxima = maxima_memory.take<float>(num_blocks(n));
    Extent extent = block_maxima(values, n, maxima);
    if (extent.has_nan || !(std::abs(extent.highest) < std::numeric_limits<float>::infinity())) {
      std::fill_n(line, 1 + 2 * num_top, std::numeric_limits<double>::quiet_NaN());
      continue;
    }
    double log_sum = log_of_sum(values, n, extent.highest);
    auto logprob = [&](int64_t id) {
      return (float)((double)values[id] - extent.highest - log_sum);
    };
    line[0] = logprob(tokens[row]);
    if (num_top == 0) continue;
    float* sorted = sorted_memory.take<float>(num_blocks(n));
    std::copy_n(maxima, num_blocks(n), sorted);
    find_top(values, n, maxima, bound_of_top(num_top, sorted, num_blocks(n)), num_top, ids);
    for (int64_t i = 0; i < num_top; i++) {
      line[1 + i] = logprob(ids[i]);
      line[1 + num_top + i] = ids[i];
    }
  }
}
