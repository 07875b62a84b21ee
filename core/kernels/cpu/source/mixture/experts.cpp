// What surrounds the products of a mixture's experts.
#include "experts.h"

#include <algorithm>

void sort_by_expert(const int64_t* chosen, int64_t tokens, int64_t per_token, int64_t num_experts,
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

void add_experts(const float* rows, const int64_t* places, const float* weights, int64_t per_token,
                 int64_t n, const float* base, float* y) {
  auto row = [&](int64_t k) { return places[k] < 0 ? nullptr : rows + places[k] * n; };
  int64_t i = 0;
  for (; i + W <= n; i += W) {
    vf total = vf{};
    for (int64_t k = 0; k < per_token; k++)
      if (const float* one = row(k)) total += load(one + i) * weights[k];
    store(y + i, base ? load(base + i) + total : total);
  }
  for (; i < n; i++) {
    float total = 0;
    for (int64_t k = 0; k < per_token; k++)
      if (const float* one = row(k)) total += one[i] * weights[k];
    y[i] = base ? base[i] + total : total;
  }
}
