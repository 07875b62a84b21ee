// The values of two results of attention, folded; see test_fold.py.
#include "attention.h"

ROSE_EXPORT void fold_values(float* acc, const float* part, int64_t count, float acc_share, float part_share) {
  for (int64_t d = 0; d < count; d += W) store(acc + d, folded(load(acc + d), load(part + d), {acc_share, part_share}));
}
