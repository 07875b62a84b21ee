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

inline void finish(const Job& job, int64_t row, int64_t panel, vf a, vf b) {
  int64_t column = panel * PANEL;
  if (job.scale) {
    a *= load(job.scale + column);
    b *= load(job.scale + column + W);
  }
  if (job.bias) {
    a += load(job.bias + column);
    b += load(job.bias + column + W);
  }
  a = activate(job.epilogue, a);
  if (is_gated(job.epilogue)) {
    put(job.y + row * job.ldy + panel * W, a * b, job.N / 2 - panel * W);
    return;
  }
  int64_t at = row * job.ldy + column, left = job.N - column;
  b = activate(job.epilogue, b);
  if (job.residual) {
    a += get(job.residual + at, left);
    b += get(job.residual + at + W, left - W);
  }
  put(job.y + at, a, left);
  put(job.y + at + W, b, left - W);
}

}  // namespace
