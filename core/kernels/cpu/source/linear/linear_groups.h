// Products of matrices of one shape, each with its own rows of x, as one stage.
#pragma once
#include "linear.h"

#include <algorithm>
#include <vector>

namespace {

// The product of matrix i, if all rows of x were `all`.
Job job_of(const Job& all, const Groups& groups, int64_t i) {
  int64_t start = i ? groups.ends[i - 1] : 0;
  Job job = all;
  job.M = groups.ends[i] - start;
  job.weight += i * groups.bytes;
  if (job.scale) job.scale += i * groups.columns;
  if (job.bias) job.bias += i * groups.columns;
  job.y += start * job.ldy;
  return job;
}

// T is the type of a product, and `rows` are those of all groups in the form that it multiplies.
template <class T, class Rows>
void multiply_groups(team::Member& member, const Job& all, const Groups& groups, const Rows& rows) {
  int64_t num_used = 0;
  for (int64_t i = 0; i < groups.count; i++) num_used += job_of(all, groups, i).M > 0;
  int64_t share = (member.size + num_used - 1) / num_used, start = 0;
  std::vector<T> products;
  std::vector<int64_t> starts{0};
  products.reserve(num_used);
  for (int64_t i = 0; i < groups.count; start = groups.ends[i++]) {
    Job job = job_of(all, groups, i);
    if (job.M == 0) continue;
    products.emplace_back(job, rows.from(start), share);
    starts.push_back(starts.back() + products.back().num_groups);
  }
  typename T::Session session;
  (void)session;
  member.stage(starts.back(), [&](int64_t i, int64_t next) {
    int64_t m = std::upper_bound(starts.begin(), starts.end(), i) - starts.begin() - 1;
    products[m].compute(i - starts[m], next < 0 ? next : next - starts[m]);
  });
}

}  // namespace
