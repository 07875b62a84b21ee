// Edits of single logits, in place: bias and penalties.
#include "vec.h"

// Token ids of a row of logits, and a number for each. Mirrors the columns of
// core/kernels/cpu/sampling.py.
struct Entries {
  int64_t row, count;
  const double *ids, *values;  // [count]
};

namespace {

// logit = edit(logit, value) for each entry. Ids outside the vocabulary of n tokens are left out.
template <class F>
void edit_row(float* x, int64_t stride, int64_t n, const Entries& entries, F edit) {
  float* logits = x + entries.row * stride;
  for (int64_t i = 0; i < entries.count; i++) {
    double id = entries.ids[i];
    if (id >= 0 && id < (double)n)
      logits[(int64_t)id] = edit(logits[(int64_t)id], entries.values[i]);
  }
}

}  // namespace

// Add the values to the logits; x has row stride `stride`.
ROSE_EXPORT void rose_bias(float* x, int64_t stride, int64_t n, const Entries* entries,
                           int64_t num_rows) {
  for (int64_t i = 0; i < num_rows; i++)
    edit_row(x, stride, n, entries[i],
             [](float logit, double value) { return logit + (float)value; });
}

// Penalise tokens; the values are how often each occurs in the output. penalties is [num_rows, 3]:
// repetition, frequency, presence. core/sampling/processors/penalties.py has the formula.
ROSE_EXPORT void rose_penalise(float* x, int64_t stride, int64_t n, const Entries* entries,
                               const double* penalties, int64_t num_rows) {
  for (int64_t i = 0; i < num_rows; i++, penalties += 3) {
    float repetition = (float)penalties[0];
    double frequency = penalties[1], presence = penalties[2];
    // two passes: one would be contracted to a fused multiply-add, which rounds otherwise than
    // torch
    if (repetition != 1)
      edit_row(x, stride, n, entries[i], [=](float logit, double) {
        return logit > 0 ? logit / repetition : logit * repetition;
      });
    if (frequency != 0 || presence != 0)
      edit_row(x, stride, n, entries[i], [=](float logit, double times) {
        return logit - (float)(frequency * times + (times > 0 ? presence : 0));
      });
  }
}
