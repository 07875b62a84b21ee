// The products of a matrix whose rows have several formats.
#pragma once
#include "layer.h"

namespace {

// The products of a matrix and its further rows, one after the other, and where in prepared memory
// their rows are.
struct Products {
  static constexpr int MOST =
      4;  // see MAX_PARTS in core/kernels/cpu/structures.py, which refuses more
  Job jobs[MOST];
  int64_t starts[MOST], bytes = 0;
  int count = 0;

  // Rows of x are `ldx` values apart; 0: they follow each other.
  Products(const Matrix& all, const float* x, int64_t num_tokens, float* y,
           const float* residual = nullptr, int64_t ldx = 0) {
    int64_t width = width_of(all), column = 0;
    for (const Matrix* m = &all; m; column += m->num_rows, m = m->more) {
      Job job =
          job_of(*m, x, num_tokens, y + column, width, residual ? residual + column : nullptr);
      if (ldx) job.ldx = ldx;
      starts[count] = bytes;
      bytes += (prepared_bytes(job) + 63) / 64 * 64;
      jobs[count++] = job;
    }
  }

  // The part of a row that thread `part` of `parts` prepares.
  void prepare(int64_t t, char* prepared, int64_t part = 0, int64_t parts = 1) const {
    for (int i = 0; i < count; i++) prepare_row(jobs[i], t, prepared + starts[i], part, parts);
  }

  // Let the products write their result where `next` has its rows prepared. Returns whether that is
  // possible.
  bool write_for(const Products& next, char* prepared) {
    int64_t stride = 0;
    uint16_t* rows = next.count == 1 ? rounded_rows(next.jobs[0], prepared, stride) : nullptr;
    for (int i = 0; i < count; i++)
      if (jobs[i].N % PANEL) rows = nullptr;
    if (!rows) return false;
    for (int i = 0; i < count; i++) {
      jobs[i].rounded = rows + (jobs[i].y - jobs[0].y);
      jobs[i].ldy = stride;
    }
    return true;
  }

  // `next` is the matrix of the products that follow, or null.
  void stages(team::Member& member, const char* prepared, const Matrix* next) const {
    for (int i = 0; i < count; i++) {
      if (i + 1 < count)
        expect_product(member, jobs[i + 1], prepared);
      else if (next)
        expect_product(member, job_of(*next, nullptr, jobs[i].M, nullptr, 0), prepared);
      product_stage(member, jobs[i], prepared + starts[i]);
    }
  }
};

}  // namespace
