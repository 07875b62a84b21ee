// Causal attention of packed queries over the paged cache. See core/attention/paged_cpu.py, which
// makes the plan: items of work, each some query rows against one run of blocks.
#include "vec.h"

#include <omp.h>

#include <algorithm>
#include <vector>

namespace {

constexpr int CHUNK = 16;  // keys that are scored before the running softmax is brought up to date
constexpr int FEW = 8;     // rows up to which keys are read as they lie, without a transposed copy
constexpr float NEVER = -std::numeric_limits<float>::infinity();

}  // namespace

// Mirrors core/kernels/attention.py. Strides count elements.
struct AttentionCall {
  // the step
  const int64_t* slots;        // [num_tokens] block * block_size + offset
  const int32_t* positions;    // [num_tokens]
  const int32_t* block_tables; // [num_seqs, table_stride]
  const int32_t* items;        // [num_items, 5] first row, rows, sequence, first block, last block
  const int32_t* row_tokens;   // [num_rows] token of a row
  const int32_t* row_slots;    // [num_rows] partial result of a row, or -1: it is the whole one
  const int32_t* merge_tokens; // [num_merges] token whose partial results are merged
  const int32_t* merge_starts; // [num_merges + 1] where its partial results begin
  float* partial;              // [num_partials, num_heads, value_dim + 2]
  int64_t num_tokens, table_stride, num_items, num_merges, window;
  // the layer
  void* keys;    // [num_blocks, num_kv_heads, block_size, head_dim]
  void* values;  // [num_blocks, num_kv_heads, block_size, value_dim]
  int64_t is_bfloat16, block_size, num_heads, num_kv_heads, head_dim, value_dim;
  double scale;
  // the call
  const float* query;
  const float* key;
  const float* value;
  float* output;  // [num_tokens, num_heads, value_dim]
  int64_t query_token, query_head, key_token, key_head, value_token, value_head;
};

namespace {

struct Scratch {
  std::vector<float> memory;
  float* take(size_t n) {
    if (memory.size() < n + 16) memory.resize(n + 16);
    return (float*)(((uintptr_t)memory.data() + 63) & ~(uintptr_t)63);
  }
};

// Running softmax of some rows: largest score, sum of weights, weighted sum of values.
struct Rows {
  int count;
  float *q, *best, *total, *out, *scores;
  const int32_t* positions;  // of each row
};

template <class T>
void write_cache(const AttentionCall& c) {
#pragma omp for schedule(static)
  for (int64_t t = 0; t < c.num_tokens; t++) {
    int64_t block = c.slots[t] / c.block_size, offset = c.slots[t] % c.block_size;
    for (int64_t h = 0; h < c.num_kv_heads; h++) {
      int64_t line = (block * c.num_kv_heads + h) * c.block_size + offset;
      const float* k = c.key + t * c.key_token + h * c.key_head;
      const float* v = c.value + t * c.value_token + h * c.value_head;
      T* ko = (T*)c.keys + line * c.head_dim;
      T* vo = (T*)c.values + line * c.value_dim;
      int64_t d = 0;
      for (; d + W <= c.head_dim; d += W) store(ko + d, load(k + d));
      for (; d < c.head_dim; d++) ko[d] = sizeof(T) == 2 ? (T)narrow(k[d]) : (T)k[d];
      for (d = 0; d + W <= c.value_dim; d += W) store(vo + d, load(v + d));
      for (; d < c.value_dim; d++) vo[d] = sizeof(T) == 2 ? (T)narrow(v[d]) : (T)v[d];
    }
  }
}

// Ask for a line of keys or values well before it is read: blocks lie anywhere in memory, so the
// CPU cannot guess the next one.
template <class T>
ROSE_INLINE void fetch(const T* line, int64_t D) {
  for (int64_t d = 0; d < D; d += 64 / (int64_t)sizeof(T)) __builtin_prefetch(line + d);
}

// scores[r][t] = q[r] . k[t], rows r of RT at once, keys as they lie.
template <class T, int RT>
void score_direct(const AttentionCall& c, const float* q, const T* k, const T* next, int count, float* scores) {
  int64_t D = c.head_dim, whole = D / W * W;
  for (int t0 = 0; t0 < count; t0 += W) {
    vf a[RT][W];
    for (int i = 0; i < W; i++) {
      const T* line = k + std::min(t0 + i, count - 1) * D;
      if (next) fetch(next + (t0 + i) * D, D);
      for (int r = 0; r < RT; r++) a[r][i] = vf{};
      for (int64_t d = 0; d < whole; d += W) {
        vf kv = load(line + d);
        for (int r = 0; r < RT; r++) a[r][i] += kv * load(q + r * D + d);
      }
      for (int64_t d = whole; d < D; d++)
        for (int r = 0; r < RT; r++) a[r][i][0] += widen(line[d]) * q[r * D + d];
    }
    for (int r = 0; r < RT; r++) store(scores + r * CHUNK + t0, sums(a[r]));
  }
}

// The same against a transposed float32 copy kt[d][CHUNK].
template <int RT>
void score_copied(int64_t D, const float* q, const float* kt, float* scores) {
  constexpr int V = CHUNK / W;
  vf a[RT][V];
  for (int r = 0; r < RT; r++)
    for (int i = 0; i < V; i++) a[r][i] = vf{};
  for (int64_t d = 0; d < D; d++) {
    vf kv[V];
    for (int i = 0; i < V; i++) kv[i] = load(kt + d * CHUNK + i * W);
    for (int r = 0; r < RT; r++)
      for (int i = 0; i < V; i++) a[r][i] += q[r * D + d] * kv[i];
  }
  for (int r = 0; r < RT; r++)
    for (int i = 0; i < V; i++) store(scores + r * CHUNK + i * W, a[r][i]);
}

// out[r] += sum over t of weights[r][t] * v[t].
template <class T, int RT>
void add_values(int64_t D, const float* weights, const T* v, int count, float* out) {
  int64_t d = 0;
  for (; d + 2 * W <= D; d += 2 * W) {
    vf a[RT][2];
    for (int r = 0; r < RT; r++) {
      a[r][0] = load(out + r * D + d);
      a[r][1] = load(out + r * D + d + W);
    }
    for (int t = 0; t < count; t++) {
      vf v0 = load(v + t * D + d), v1 = load(v + t * D + d + W);
      for (int r = 0; r < RT; r++) {
        float w = weights[r * CHUNK + t];
        a[r][0] += w * v0;
        a[r][1] += w * v1;
      }
    }
    for (int r = 0; r < RT; r++) {
      store(out + r * D + d, a[r][0]);
      store(out + r * D + d + W, a[r][1]);
    }
  }
  for (; d < D; d++)
    for (int r = 0; r < RT; r++)
      for (int t = 0; t < count; t++) out[r * D + d] += weights[r * CHUNK + t] * widen(v[t * D + d]);
}

// Bring row r's softmax up to date with the scores of keys first .. first + count; they become
// weights. False if the row sees none of them.
bool weigh(const AttentionCall& c, const Rows& rows, int r, int64_t first, int count) {
  float* s = rows.scores + r * CHUNK;
  int64_t position = rows.positions[r];
  int64_t end = std::min<int64_t>(count, position + 1 - first);
  int64_t start = c.window > 0 ? std::max<int64_t>(0, position - c.window + 1 - first) : 0;
  if (start >= end) {
    for (int t = 0; t < CHUNK; t++) s[t] = 0;
    return false;
  }
  for (int64_t t = 0; t < start; t++) s[t] = NEVER;
  for (int64_t t = end; t < CHUNK; t++) s[t] = NEVER;
  vf high = load(s);
  for (int i = W; i < CHUNK; i += W) high = max(high, load(s + i));
  // what is no number has to stay one, not be lost in a comparison
  float best = std::max(rows.best[r], largest(high));
  vf all = vf{};
  for (int i = 0; i < CHUNK; i += W) {
    vf raw = load(s + i);
    vf w = exp(raw - best);
    w = raw == splat(NEVER) ? vf{} : w;
    w = raw != raw ? raw : w;
    store(s + i, w);
    all += w;
  }
  if (best > rows.best[r]) {
    float shrink = std::exp(rows.best[r] - best);
    rows.total[r] *= shrink;
    float* out = rows.out + r * c.value_dim;
    for (int64_t d = 0; d < c.value_dim; d++) out[d] *= shrink;
    rows.best[r] = best;
  }
  rows.total[r] += sum(all);
  return true;
}

template <class T>
void chunk_direct(const AttentionCall& c, const Rows& rows, const T* k, const T* v, const T* next_k,
                  const T* next_v, int64_t first, int count) {
  for (int r = 0; r < rows.count;) {
    const float* q = rows.q + r * c.head_dim;
    float* s = rows.scores + r * CHUNK;
    int n = std::min(4, rows.count - r);
    n = n == 3 ? 2 : n;
    if (n == 4) score_direct<T, 4>(c, q, k, next_k, count, s);
    else if (n == 2) score_direct<T, 2>(c, q, k, next_k, count, s);
    else score_direct<T, 1>(c, q, k, next_k, count, s);
    for (int i = 0; i < n; i++) weigh(c, rows, r + i, first, count);
    if (next_v)
      for (int t = 0; t < CHUNK; t++) fetch(next_v + t * c.value_dim, c.value_dim);
    next_k = next_v = nullptr;  // asked for once
    float* out = rows.out + r * c.value_dim;
    if (n == 4) add_values<T, 4>(c.value_dim, s, v, count, out);
    else if (n == 2) add_values<T, 2>(c.value_dim, s, v, count, out);
    else add_values<T, 1>(c.value_dim, s, v, count, out);
    r += n;
  }
}

template <class T>
void chunk_copied(const AttentionCall& c, const Rows& rows, const T* k, const T* v, int64_t first,
                  int count, float* kt, float* vc) {
  for (int t = 0; t < CHUNK; t++) {
    const T* line = k + std::min(t, count - 1) * c.head_dim;
    for (int64_t d = 0; d < c.head_dim; d++) kt[d * CHUNK + t] = widen(line[d]);
  }
  const float* values;
  if constexpr (sizeof(T) == 2) {
    for (int64_t i = 0; i < count * c.value_dim; i++) vc[i] = widen(v[i]);
    values = vc;
  } else {
    values = v;
  }
  for (int r = 0; r < rows.count;) {
    const float* q = rows.q + r * c.head_dim;
    float* s = rows.scores + r * CHUNK;
    int n = rows.count - r >= 4 ? 4 : 1;
    if (n == 4) score_copied<4>(c.head_dim, q, kt, s);
    else score_copied<1>(c.head_dim, q, kt, s);
    bool any = false;
    for (int i = 0; i < n; i++) any |= weigh(c, rows, r + i, first, count);
    float* out = rows.out + r * c.value_dim;
    if (any && n == 4) add_values<float, 4>(c.value_dim, s, values, count, out);
    else if (any) add_values<float, 1>(c.value_dim, s, values, count, out);
    r += n;
  }
}

template <class T>
void attend(const AttentionCall& c, const int32_t* item, int64_t kv_head, Scratch& scratch,
            std::vector<int32_t>& positions) {
  int64_t group = c.num_heads / c.num_kv_heads, D = c.head_dim, DV = c.value_dim;
  int64_t first_row = item[0], num_rows = item[1];
  int count = (int)(num_rows * group);
  float* memory = scratch.take(count * (D + DV + CHUNK + 2) + CHUNK * (D + DV));
  Rows rows;
  rows.count = count;
  rows.q = memory;
  rows.out = rows.q + count * D;
  rows.scores = rows.out + count * DV;
  rows.best = rows.scores + count * CHUNK;
  rows.total = rows.best + count;
  float* kt = rows.total + count;
  float* vc = kt + CHUNK * D;
  positions.resize(count);
  rows.positions = positions.data();
  for (int64_t i = 0; i < num_rows; i++) {
    int64_t token = c.row_tokens[first_row + i];
    for (int64_t g = 0; g < group; g++) {
      int64_t r = i * group + g;
      const float* q = c.query + token * c.query_token + (kv_head * group + g) * c.query_head;
      for (int64_t d = 0; d < D; d++) rows.q[r * D + d] = q[d] * (float)c.scale;
      positions[r] = c.positions[token];
      rows.best[r] = NEVER;
      rows.total[r] = 0;
    }
  }
  std::fill(rows.out, rows.out + count * DV, 0.0f);
  int64_t last_position = *std::max_element(positions.begin(), positions.end());
  const int32_t* table = c.block_tables + item[2] * c.table_stride;
  for (int64_t b = item[3]; b < item[4]; b++) {
    int64_t line = ((int64_t)table[b] * c.num_kv_heads + kv_head) * c.block_size;
    for (int64_t t = 0; t < c.block_size; t += CHUNK) {
      int64_t first = b * c.block_size + t;
      int n = (int)std::min<int64_t>({CHUNK, c.block_size - t, last_position + 1 - first});
      if (n <= 0) break;
      const T* k = (const T*)c.keys + (line + t) * D;
      const T* v = (const T*)c.values + (line + t) * DV;
      const T *next_k = nullptr, *next_v = nullptr;
      if (t + CHUNK < c.block_size) {
        next_k = k + CHUNK * D;
        next_v = v + CHUNK * DV;
      } else if (b + 1 < item[4] && c.block_size >= CHUNK) {
        int64_t next = ((int64_t)table[b + 1] * c.num_kv_heads + kv_head) * c.block_size;
        next_k = (const T*)c.keys + next * D;
        next_v = (const T*)c.values + next * DV;
      }
      if (count <= FEW) chunk_direct<T>(c, rows, k, v, next_k, next_v, first, n);
      else chunk_copied<T>(c, rows, k, v, first, n, kt, vc);
    }
  }
  for (int64_t i = 0; i < num_rows; i++) {
    int64_t token = c.row_tokens[first_row + i], slot = c.row_slots[first_row + i];
    for (int64_t g = 0; g < group; g++) {
      int64_t r = i * group + g, head = kv_head * group + g;
      const float* out = rows.out + r * DV;
      if (slot < 0) {
        float* y = c.output + (token * c.num_heads + head) * DV;
        float share = 1 / rows.total[r];
        for (int64_t d = 0; d < DV; d++) y[d] = out[d] * share;
      } else {
        float* y = c.partial + (slot * c.num_heads + head) * (DV + 2);
        y[0] = rows.best[r];
        y[1] = rows.total[r];
        for (int64_t d = 0; d < DV; d++) y[2 + d] = out[d];
      }
    }
  }
}

// Softmax over several runs of keys from the softmax over each.
void merge(const AttentionCall& c, int64_t i, int64_t head) {
  int64_t DV = c.value_dim, begin = c.merge_starts[i], end = c.merge_starts[i + 1];
  float* y = c.output + ((int64_t)c.merge_tokens[i] * c.num_heads + head) * DV;
  auto part = [&](int64_t s) { return c.partial + (s * c.num_heads + head) * (DV + 2); };
  float best = NEVER, total = 0;
  for (int64_t s = begin; s < end; s++) best = std::max(best, part(s)[0]);
  for (int64_t d = 0; d < DV; d++) y[d] = 0;
  for (int64_t s = begin; s < end; s++) {
    const float* p = part(s);
    if (p[1] == 0) continue;
    float share = std::exp(p[0] - best);
    total += share * p[1];
    for (int64_t d = 0; d < DV; d++) y[d] += share * p[2 + d];
  }
  for (int64_t d = 0; d < DV; d++) y[d] /= total;
}

template <class T>
void run(const AttentionCall& c) {
#pragma omp parallel
  {
    write_cache<T>(c);  // ends in a barrier: all writes come before any read
    static thread_local Scratch scratch;
    static thread_local std::vector<int32_t> positions;
#pragma omp for schedule(dynamic, 1)
    for (int64_t i = 0; i < c.num_items * c.num_kv_heads; i++)
      attend<T>(c, c.items + i / c.num_kv_heads * 5, i % c.num_kv_heads, scratch, positions);
#pragma omp for schedule(static)
    for (int64_t i = 0; i < c.num_merges * c.num_heads; i++)
      merge(c, i / c.num_heads, i % c.num_heads);
  }
}

}  // namespace

ROSE_EXPORT void rose_attention(const AttentionCall* c) {
  if (c->is_bfloat16) run<uint16_t>(*c);
  else run<float>(*c);
}
