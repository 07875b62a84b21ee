// Products with packed weights, as stages of a team. linear.cpp has them.
#pragma once
#include "packed.h"
#include "team.h"

struct Best;  // best.h

// y = epilogue(x @ w.T * scale + bias) + residual; see rose_linear.
struct Job {
  int format, epilogue;
  const float* x;
  int64_t ldx, M, K, N;
  const char* weight;
  const float* scale;  // [columns], int8 only
  const float* bias;   // [columns] or null
  float* y;
  int64_t ldy;
  const float* residual;  // in the layout of y; or null
  // in place of y, or null: the result in bfloat16 as prepare_row would round it. Then N is a
  // multiple of the panel
  uint16_t* rounded = nullptr;
  // in place of y, or null: [M] the best columns that this thread finds; they are numbered from
  // `first_column` on
  Best* best = nullptr;
  int64_t first_column = 0;
  const float* slopes = nullptr;  // of XIELU
};

// Bytes for the rows of x in the form that the product multiplies; 0 if that is float32.
int64_t prepared_bytes(const Job& job);

// Products of up to so many rows take as long as reading the weights.
constexpr int64_t FEW_ROWS = 4;

// Convert a row of x, or the part of it that is `part` of `parts`. `prepared` is aligned to a cache
// line.
void prepare_row(const Job& job, int64_t row, char* prepared, int64_t part = 0, int64_t parts = 1);

// Where a row of x is prepared in bfloat16, and in `stride` the values from a row to the next. Who
// writes all rows there need not call prepare_row. Null if rows are prepared in another form.
uint16_t* rounded_rows(const Job& job, char* prepared, int64_t& stride);

// Compute the product. All rows must have been prepared in earlier stages.
void product_stage(team::Member& member, const Job& job, const char* prepared);

// Let a thread that waits, from now on, read the weights that it multiplies first in this product,
// if that has few rows: then it takes as long as reading them. `prepared` may have any content.
void expect_product(team::Member& member, const Job& job, const char* prepared);

// Matrices of one shape that follow each other in memory. Each is multiplied with its own rows of
// x, which are sorted by matrix: those of matrix i end before ends[i].
struct Groups {
  int64_t count;
  const int64_t* ends;
  int64_t bytes, columns;  // of a matrix; columns of whole panels
};

// Compute the products of groups as one stage. `all` has the rows of all groups and the weight of
// the first.
void grouped_stage(team::Member& member, const Job& all, const Groups& groups,
                   const char* prepared);

constexpr int64_t SMALL_PRODUCT =
    1 << 18;  // multiplications; below, waking threads costs more than it saves
