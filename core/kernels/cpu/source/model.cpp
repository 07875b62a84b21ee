// A language model around its decoder layers: embeddings before them; the last norm, the output layer and the best
// tokens after them.
#include "model.h"

#include "elementwise.h"
#include "half.h"
#include "largest.h"

#include <algorithm>

ROSE_EXPORT void rose_unpack_rows(int format, const char* weight, const float* scale, const int64_t* ids,
                                  int64_t count, int64_t K, float* y);  // pack.cpp

namespace {

constexpr int64_t PIECE = 1 << 13;  // logits whose best one a thread finds at a time

ROSE_INLINE float value_at(const Table& table, int64_t i) {
  if (table.format == FLOAT32) return ((const float*)table.data)[i];
  uint16_t bits = ((const uint16_t*)table.data)[i];
  return table.format == BFLOAT16 ? widen(bits) : widen_half(bits);
}

// y = row `id`.
void read_row(const Table& table, int64_t id, int64_t n, float* y) {
  if (table.is_packed) {
    rose_unpack_rows((int)table.format, table.data, table.scale, &id, 1, n, y);
  } else {
    for (int64_t i = 0; i < n; i++) y[i] = value_at(table, id * n + i);
  }
  if (table.factor != 1)
    for (int64_t i = 0; i < n; i++) y[i] *= (float)table.factor;
}

void embed(const ModelCall& c, int64_t t) {
  float* x = c.x + t * c.hidden;
  read_row(c.tokens, c.ids[t], c.hidden, x);
  if (c.positions.data)
    for (int64_t i = 0; i < c.hidden; i++) x[i] += value_at(c.positions, c.places[t] * c.hidden + i);
  int64_t run = c.places[t] / ANGLES, row = c.places[t] % ANGLES * c.rotated;
  if (!c.rotated) return;
  std::copy_n(c.cosines[run] + row, c.rotated, c.cos + t * c.rotated);
  std::copy_n(c.sines[run] + row, c.rotated, c.sin + t * c.rotated);
}

// f(job, where its rows are prepared) for each format of the output layer.
template <class F>
void parts_of_head(const ModelCall& c, char* prepared, F f) {
  int64_t column = 0;
  for (const Matrix* m = &c.head; m; column += m->num_rows, m = m->more) {
    Job job = job_of(*m, c.normed, c.num_logits, c.logits + column, c.logits_stride);
    f(job, prepared);
    prepared += (prepared_bytes(job) + 63) / 64 * 64;
  }
}

int64_t product_bytes(const ModelCall& c) {
  int64_t bytes = 0;
  parts_of_head(c, nullptr, [&](const Job& job, char*) { bytes += (prepared_bytes(job) + 63) / 64 * 64; });
  return bytes;
}

void best_stages(team::Member& member, const ModelCall& c, Best* parts) {
  int64_t n = width_of(c.head), count = (n + PIECE - 1) / PIECE;
  member.stage(c.num_logits * count, [&](int64_t i, int64_t) {
    int64_t start = i % count * PIECE;
    parts[i] = best_of(c.logits + i / count * c.logits_stride + start, std::min(PIECE, n - start), start);
  });
  member.stage(c.num_logits, [&](int64_t row, int64_t) {
    Best best = parts[row * count];
    for (int64_t i = 1; i < count; i++) best = better(best, parts[row * count + i]);
    c.best[row] = token_of(best);
  });
}

}  // namespace

int64_t prepared_bytes(const ModelCall& c) {
  int64_t pieces = (width_of(c.head) + PIECE - 1) / PIECE;
  return product_bytes(c) + (c.best ? c.num_logits * pieces * (int64_t)sizeof(Best) : 0);
}

int64_t num_multiplications(const ModelCall& c) {
  int64_t sum = 0;
  for (const Matrix* m = &c.head; m; m = m->more) sum += m->num_rows * m->num_columns;
  return sum * c.num_logits;
}

void before_layers(team::Member& member, const ModelCall& c) {
  member.laps.begin(stage::EMBEDDING);
  member.stage(c.num_tokens, [&](int64_t t, int64_t) { embed(c, t); });
}

void after_layers(team::Member& member, const ModelCall& c, char* prepared) {
  if (!c.num_logits) return;
  member.laps.begin(stage::LAST_NORM);
  member.stage(c.num_logits, [&](int64_t i, int64_t) {
    int64_t row = has_chosen_rows(c) ? i : c.chosen[i];
    norm_row(c.x + row * c.hidden, c.hidden, c.norm.center, (float)c.norm.eps, c.norm.weight, c.norm.bias,
             c.normed + i * c.hidden);
    parts_of_head(c, prepared, [&](const Job& job, char* rows) { prepare_row(job, i, rows); });
  });
  member.laps.begin(stage::HEAD);
  parts_of_head(c, prepared, [&](const Job& job, char* rows) { product_stage(member, job, rows); });
  member.laps.begin(stage::BEST);
  if (c.best) best_stages(member, c, (Best*)(prepared + product_bytes(c)));
}
