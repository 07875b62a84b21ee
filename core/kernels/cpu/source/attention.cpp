// Causal attention of packed queries over the paged KV cache. core/attention/cpu_backend.py makes the
// plan: work items, each of which has some query rows and one run of KV cache blocks.
#include "attention.h"
#include "attention_few.h"
#include "attention_many.h"

#include <omp.h>

namespace {

constexpr int FEW = 8;  // maximum rows of an item for few::attend, which is limited by memory bandwidth

// Tasks per thread; with several, all threads finish at about the same time. Tasks limited by memory are
// few, since memory is read fastest if the heads of a block are read together.
constexpr int READING_TASKS = 2, COMPUTING_TASKS = 8;

ROSE_INLINE void put_line(float* to, const float* from, int64_t n) { memcpy(to, from, n * sizeof(float)); }
ROSE_INLINE void put_line(uint16_t* to, const float* from, int64_t n) {
  int64_t d = 0;
  for (; d + W <= n; d += W) store(to + d, load(from + d));
  for (; d < n; d++) to[d] = narrow(from[d]);
}

template <class T>
void write_cache(const AttentionCall& c) {
#pragma omp for schedule(static)
  for (int64_t t = 0; t < c.step->num_tokens; t++) {
    int64_t block = c.step->slots[t] / c.block_size, offset = c.step->slots[t] % c.block_size;
    for (int64_t h = 0; h < c.num_kv_heads; h++) {
      int64_t line = (block * c.num_kv_heads + h) * c.block_size + offset;
      put_line((T*)c.keys + line * c.head_dim, c.key + t * c.key_token + h * c.key_head, c.head_dim);
      put_line((T*)c.values + line * c.value_dim, c.value + t * c.value_token + h * c.value_head, c.value_dim);
    }
  }
}

// Merge the partial softmax results of several runs of keys.
void merge(const AttentionCall& c, int64_t i, int64_t head) {
  int64_t DV = c.value_dim, begin = c.step->merge_starts[i], end = c.step->merge_starts[i + 1];
  float* y = c.output + ((int64_t)c.step->merge_tokens[i] * c.num_heads + head) * DV;
  auto part = [&](int64_t s) { return c.step->partial + (s * c.num_heads + head) * (DV + 2); };
  float best = MINUS_INFINITY, total = 0;
  for (int64_t s = begin; s < end; s++) best = std::max(best, part(s)[0]);
  for (int64_t d = 0; d < DV; d++) y[d] = 0;
  for (int64_t s = begin; s < end; s++) {
    const float* p = part(s);
    if (p[1] == 0) continue;
    float share = std::exp(p[0] - best);
    total += share * p[1];
    for (int64_t d = 0; d < DV; d++) y[d] += share * p[2 + d];
  }
  if (c.sinks) total += std::exp(c.sinks[head] - best);
  for (int64_t d = 0; d < DV; d++) y[d] /= total;
}

template <class T>
void attend(const AttentionCall& c, int64_t i, int64_t first_head, int64_t last_head) {
  static thread_local Scratch scratch;
  Item item(c, c.step->items + i * 5);
  if (item.num_rows <= FEW)
    return c.softcap > 0 ? few::attend<T, true>(item, first_head, last_head, scratch)
                         : few::attend<T, false>(item, first_head, last_head, scratch);
  for (int64_t h = first_head; h < last_head; h++) many::attend<T>(item, h, scratch);
}

int64_t most_rows(const AttentionCall& c) {
  int64_t most = 0;
  for (int64_t i = 0; i < c.step->num_items; i++) most = std::max<int64_t>(most, c.step->items[i * 5 + 1]);
  return most * (c.num_heads / c.num_kv_heads);
}

template <class T>
void run(const AttentionCall& c) {
  int64_t tasks = most_rows(c) <= FEW ? READING_TASKS : COMPUTING_TASKS;
#pragma omp parallel
  {
    write_cache<T>(c);  // ends with a barrier: all writes precede any read
    int64_t wanted = tasks * omp_get_num_threads();
    int64_t parts = std::min(c.num_kv_heads, (wanted + c.step->num_items - 1) / std::max<int64_t>(1, c.step->num_items));
#pragma omp for schedule(dynamic, 1)
    for (int64_t i = 0; i < c.step->num_items * parts; i++) {
      int64_t part = i % parts;
      attend<T>(c, i / parts, c.num_kv_heads * part / parts, c.num_kv_heads * (part + 1) / parts);
    }
#pragma omp for schedule(static)
    for (int64_t i = 0; i < c.step->num_merges * c.num_heads; i++)
      merge(c, i / c.num_heads, i % c.num_heads);
  }
}

}  // namespace

ROSE_EXPORT void rose_attention(const AttentionCall* c) {
  if (c->is_bfloat16) run<uint16_t>(*c);
  else run<float>(*c);
}
