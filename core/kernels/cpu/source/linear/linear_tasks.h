// The tasks of a product as a stage. If only the best columns are wanted, each thread looks for
// them in the results of a task, which its caches still hold, and keeps no others.
#pragma once
#include "best.h"
#include "linear.h"
#include "scratch.h"

namespace {

// A product computes task g as `compute(g, next)`: the rows `rows_of(g)` and up to `group` panels.
template <class T>
void compute_tasks(team::Member& member, T& product) {
  Job& job = product.job;
  if (!job.best)
    return member.stage(product.num_groups,
                        [&](int64_t g, int64_t next) { product.compute(g, next); });
  static thread_local Scratch scratch;
  int64_t width = product.group * PANEL;
  float* results = scratch.take<float>(job.M * width);
  job.ldy = width;
  member.stage(product.num_groups, [&](int64_t g, int64_t next) {
    int64_t first = g % product.groups_of_block * width;
    job.y = results - first;
    product.compute(g, next);
    auto [row, end] = product.rows_of(g);
    for (; row < end; row++)
      improve(job.best[row], results + row * width, std::min(width, job.N - first),
              job.first_column + first);
  });
}

}  // namespace
