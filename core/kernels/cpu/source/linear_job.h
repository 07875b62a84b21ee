// What is done with the sums of a product.
#pragma once
#include "epilogue.h"
#include "linear.h"

namespace {

ROSE_INLINE void put(float* y, vf v, int64_t count) {
  if (count >= W) {
    store(y, v);
  } else {
    for (int i = 0; i < count; i++) y[i] = v[i];
  }
}

ROSE_INLINE vf get(const float* x, int64_t count) {
  if (count >= W) return load(x);
  vf v = vf{};
  for (int i = 0; i < count; i++) v[i] = x[i];
  return v;
}

// The columns of a panel: what is done with the sums of a row, and where the result goes.
class PanelEnd {
 public:
  PanelEnd(const Job& job, int64_t panel) : job(job), panel(panel), column(panel * PANEL), left(job.N - column) {
    if (job.scale) scale[0] = load(job.scale + column), scale[1] = load(job.scale + column + W);
    if (job.bias) bias[0] = load(job.bias + column), bias[1] = load(job.bias + column + W);
    is_plain = left >= PANEL && job.epilogue == NONE;
  }

  inline __attribute__((always_inline)) void finish(int64_t row, vf a, vf b) const {
    if (job.scale) a *= scale[0], b *= scale[1];
    if (job.bias) a += bias[0], b += bias[1];
    if (!is_plain) return finish_any(row, a, b);
    int64_t at = row * job.ldy + column;
    if (job.residual) a += load(job.residual + at), b += load(job.residual + at + W);
    store(job.y + at, a);
    store(job.y + at + W, b);
  }

 private:
  const Job& job;
  int64_t panel, column, left;
  vf scale[2], bias[2];
  bool is_plain;

  void finish_any(int64_t row, vf a, vf b) const {
    if (is_gated(job.epilogue)) {
      put(job.y + row * job.ldy + panel * W, gate(job.epilogue, a, b), job.N / 2 - panel * W);
      return;
    }
    int64_t at = row * job.ldy + column;
    a = activate(job.epilogue, a);
    b = activate(job.epilogue, b);
    if (job.residual) {
      a += get(job.residual + at, left);
      b += get(job.residual + at + W, left - W);
    }
    put(job.y + at, a, left);
    put(job.y + at + W, b, left - W);
  }
};

}  // namespace
