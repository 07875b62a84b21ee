// Scores of experts, their choice, and their weights.
#include "router.h"

#include <algorithm>
#include <vector>

namespace {

// The sum of exp(x[i] - highest), and NaN if a value is not a number. x becomes the exponentials.
float exponentials(float* x, int64_t n, float highest) {
  vf total = vf{};
  int64_t i = 0;
  for (; i + W <= n; i += W) {
    vf e = exp(load(x + i) - highest);
    store(x + i, e);
    total += e;
  }
  vf rest = vf{};
  for (int64_t j = i; j < n; j++) rest[j - i] = x[j] - highest;
  rest = exp(rest);
  float sum_of_all = sum(total);
  for (int64_t j = i; j < n; j++) sum_of_all += x[j] = rest[j - i];
  return sum_of_all;
}

// The `count` largest of n values in falling order, the first of equal ones first. If one is not a
// number, they are any.
void choose_largest(const float* values, int64_t n, int64_t count, int64_t* chosen) {
  int64_t found = 0;
  for (int64_t e = 0; e < n; e++) {
    float own = values[e];
    if (found == count && !(own > values[chosen[count - 1]])) continue;
    int64_t at = found < count ? found++ : count - 1;
    for (; at > 0 && own > values[chosen[at - 1]]; at--) chosen[at] = chosen[at - 1];
    chosen[at] = e;
  }
}

// Experts outside of the chosen groups get a choice of minus infinity. A group is as good as the
// sum of its two best experts.
void keep_groups(const Mixture& m, float* choice) {
  static thread_local std::vector<float> sums;
  static thread_local std::vector<int64_t> chosen;
  int64_t size = m.router.num_rows / m.num_groups;
  sums.assign(m.num_groups, 0);
  chosen.assign(m.groups_chosen, 0);
  for (int64_t g = 0; g < m.num_groups; g++) {
    int64_t best[2];
    const float* own = choice + g * size;
    choose_largest(own, size, std::min<int64_t>(size, 2), best);
    sums[g] = size > 1 ? own[best[0]] + own[best[1]] : own[best[0]];
  }
  choose_largest(sums.data(), m.num_groups, m.groups_chosen, chosen.data());
  for (int64_t g = 0; g < m.num_groups; g++)
    if (std::find(chosen.begin(), chosen.end(), g) == chosen.end())
      std::fill_n(choice + g * size, size, -std::numeric_limits<float>::infinity());
}

// Choose by scores and a bias, or by groups. `scores` are those of all experts.
void choose_by_scores(const Mixture& m, const float* scores, int64_t* chosen) {
  static thread_local std::vector<float> choice;
  int64_t n = m.router.num_rows;
  choice.assign(scores, scores + n);
  for (int64_t e = 0; m.choice_bias && e < n; e++) choice[e] += m.choice_bias[e];
  if (m.num_groups > 1) keep_groups(m, choice.data());
  choose_largest(choice.data(), n, m.per_token, chosen);
}

}  // namespace

void choose_experts(const Mixture& m, float* logits, int64_t* chosen, float* weights) {
  int64_t n = m.router.num_rows, count = m.per_token;
  bool by_logits = !m.choice_bias && m.num_groups <= 1;  // which are in the order of the scores
  if (by_logits) choose_largest(logits, n, count, chosen);
  float total = 1, kept = 0;
  if (m.is_sigmoid) {
    for (int64_t e = 0; e < n; e++) logits[e] = 1 / (1 + std::exp(-logits[e]));
  } else {
    total = exponentials(logits, n,
                         by_logits ? logits[chosen[0]] : *std::max_element(logits, logits + n));
  }
  if (!by_logits) {
    for (int64_t e = 0; e < n; e++) logits[e] /= total;
    total = 1;
    choose_by_scores(m, logits, chosen);
  }
  for (int64_t k = 0; k < count; k++) kept += weights[k] = logits[chosen[k]] / total;
  for (int64_t k = 0; k < count && m.normalises; k++) weights[k] /= kept;
  for (int64_t k = 0; k < count && m.scale; k++) weights[k] *= (float)m.scale;
}
