// A language model around its decoder layers: embeddings before them; the last norm, the output
// layer and the best tokens after them.
#include "model.h"

#include "best.h"
#include "elementwise.h"
#include "epilogue.h"
#include "half.h"
#include "products.h"
#include "scratch.h"

#include <algorithm>

ROSE_EXPORT void rose_unpack_rows(int format, const char* weight, const float* scale,
                                  const int64_t* ids, int64_t count, int64_t K,
                                  float* y);  // pack.cpp

namespace {

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
  const Norm& norm = c.embedding_norm;
  if (norm.weight) norm_row(x, c.hidden, norm.center, (float)norm.eps, norm.weight, norm.bias, x);
  if (c.positions.data)
    for (int64_t i = 0; i < c.hidden; i++)
      x[i] += value_at(c.positions, c.places[t] * c.hidden + i);
  for (const Angles *a = c.angles, *end = a + c.num_angles; a < end; a++) {
    int64_t run = c.places[t] / ANGLES, row = c.places[t] % ANGLES * a->rotated;
    std::copy_n(a->cosines[run] + row, a->rotated, a->cos + t * a->rotated);
    std::copy_n(a->sines[run] + row, a->rotated, a->sin + t * a->rotated);
  }
}

Products input_products(const ModelCall& c) {
  return Products(c.input_projection, c.x, c.num_tokens, c.inputs);
}

// Inputs of a token's layers, from the products of x.
void finish_inputs(const ModelCall& c, int64_t t) {
  static thread_local Scratch scratch;
  int64_t width = width_of(c.input_projection);
  float *row = c.inputs + t * width, *own = scratch.take<float>(width);
  read_row(c.input_table, c.ids[t], width, own);
  const Norm& norm = c.input_norm;
  for (int64_t i = 0; i < width; i += c.input_size)
    norm_row(row + i, c.input_size, norm.center, (float)norm.eps, norm.weight, norm.bias, row + i);
  add_row(own, row, width, 1, row);
}

constexpr int64_t CAPPED_TOGETHER = 8192;  // logits of a tile

void cap_logits(team::Member& member, const ModelCall& c) {
  int64_t width = width_of(c.head), tiles = (width + CAPPED_TOGETHER - 1) / CAPPED_TOGETHER;
  float cap = (float)c.logit_cap;
  member.stage(c.num_logits * tiles, [&](int64_t i, int64_t) {
    float* row = c.logits + i / tiles * c.logits_stride;
    int64_t k = i % tiles * CAPPED_TOGETHER, end = std::min(k + CAPPED_TOGETHER, width);
    for (; k < end; k += W) put(row + k, cap * exact_tanh(get(row + k, end - k) / cap), end - k);
  });
}

// f(job, where its rows are prepared) for each format of the output layer. `best` is where this
// thread keeps the best columns, or null if the result is logits.
template <class F>
void parts_of_head(const ModelCall& c, char* prepared, Best* best, F f) {
  int64_t column = 0;
  for (const Matrix* m = &c.head; m; column += m->num_rows, m = m->more) {
    Job job = job_of(*m, c.normed, c.num_logits, best ? nullptr : c.logits + column,
                     best ? 0 : c.logits_stride);
    job.best = best;
    job.first_column = column;
    f(job, prepared);
    prepared += (prepared_bytes(job) + 63) / 64 * 64;
  }
}

int64_t product_bytes(const ModelCall& c) {
  int64_t bytes = 0;
  parts_of_head(c, nullptr, nullptr,
                [&](const Job& job, char*) { bytes += (prepared_bytes(job) + 63) / 64 * 64; });
  return bytes;
}

// The best tokens of all rows that each thread has found, behind the rows of the products. Those of
// a thread are in cache lines of their own.
struct Found {
  char* at;
  int64_t bytes;  // of a thread

  Found(const ModelCall& c, char* prepared)
      : at(prepared + product_bytes(c)),
        bytes((c.num_logits * (int64_t)sizeof(Best) + 63) / 64 * 64) {}
  Best* of(int thread) const { return (Best*)(at + thread * bytes); }
};

}  // namespace

int64_t prepared_bytes(const ModelCall& c) {
  int64_t head = product_bytes(c) + (c.best ? Found(c, nullptr).bytes * omp_get_max_threads() : 0);
  return std::max(head, input_products(c).bytes);
}

int64_t num_multiplications(const ModelCall& c) {
  auto size_of = [](const Matrix& all) {
    int64_t sum = 0;
    for (const Matrix* m = &all; m; m = m->more) sum += m->num_rows * m->num_columns;
    return sum;
  };
  return size_of(c.head) * c.num_logits + size_of(c.input_projection) * c.num_tokens;
}

void before_layers(team::Member& member, const ModelCall& c, char* prepared) {
  Products products = input_products(c);
  member.laps.begin(stage::EMBEDDING);
  member.stage(c.num_tokens, [&](int64_t t, int64_t) {
    embed(c, t);
    if (c.input_projection.data) products.prepare(t, prepared);
  });
  if (!c.input_projection.data) return;
  products.stages(member, prepared, nullptr);
  member.stage(c.num_tokens, [&](int64_t t, int64_t) { finish_inputs(c, t); });
}

void after_layers(team::Member& member, const ModelCall& c, char* prepared) {
  if (!c.num_logits) return;
  Found found(c, prepared);
  member.laps.begin(stage::LAST_NORM);
  member.stage(c.num_logits, [&](int64_t i, int64_t) {
    int64_t row = has_chosen_rows(c) ? i : c.chosen[i];
    norm_row(c.x + row * c.hidden, c.hidden, c.norm.center, (float)c.norm.eps, c.norm.weight,
             c.norm.bias, c.normed + i * c.hidden);
    parts_of_head(c, prepared, nullptr,
                  [&](const Job& job, char* rows) { prepare_row(job, i, rows); });
    for (int thread = 0; c.best && thread < member.size; thread++) found.of(thread)[i] = Best();
  });
  member.laps.begin(stage::HEAD);
  parts_of_head(c, prepared, c.best ? found.of(member.index) : nullptr,
                [&](const Job& job, char* rows) { product_stage(member, job, rows); });
  if (!c.best) return c.logit_cap ? cap_logits(member, c) : void();
  member.laps.begin(stage::BEST);
  member.stage(c.num_logits, [&](int64_t i, int64_t) {
    Best best;
    for (int thread = 0; thread < member.size; thread++) best = better(best, found.of(thread)[i]);
    c.best[i] = token_of(best);
  });
}
