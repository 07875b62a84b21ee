// Attention of the rows of an item: two matrix products and a softmax per chunk of keys. Decode and prefill
// are the same code with different numbers of rows, so a row has the same bits in both.
#pragma once
#include "attention.h"
#include "attention_cache.h"

namespace rows {

constexpr int CHUNK = 64;  // keys; chunks begin at multiples of CHUNK in a run
constexpr int VECTORS = CHUNK / W;

// Maximum rows of a tile, and vectors of sums of a tile. The other registers hold lanes and factors.
#if ROSE_WIDTH == 8
constexpr int MAX_ROWS = 6, MAX_VECTORS = 12;
#else
constexpr int MAX_ROWS = 6, MAX_VECTORS = 24;
#endif
constexpr int vectors_for(int rows) { return MAX_VECTORS / rows >= 4 ? 4 : 2; }

// The keys and values of a chunk for one kv head, in lanes.
struct Chunk {
  int64_t first = 0;  // position of lane 0
  int from = 0, to = 0;  // visible tokens of the chunk
  int64_t key_stride = 0, value_stride = 0;   // lanes of a step
  const uint32_t* keys[VECTORS] = {};         // step 0 of each vector of keys
  int num_pieces = 0;
  struct {
    const uint32_t* values;  // first of `steps` steps
    int steps;
  } pieces[VECTORS];  // blocks that are read in place have at least W tokens
};

// Where the next chunk or head of a thread is in memory, to prefetch it; or null.
struct Ahead {
  const Chunk* chunk = nullptr;
  int64_t keys = 0, values = 0;  // lanes from the pointers of `chunk`
};

// out[r][v] = sum over steps of x[r][s] * lanes[v][s], for R rows and V vectors, which are those from `first` on
// of the chunk.
template <class L, int R, int V>
ROSE_INLINE void score_tile(const typename L::Factor* x, int64_t ldx, const uint32_t* const* lanes, int64_t stride,
                            int64_t steps, const Ahead& ahead, int first, float* out) {
  vf a[R][V];
#pragma GCC unroll 8
  for (int r = 0; r < R; r++)
#pragma GCC unroll 8
    for (int v = 0; v < V; v++) a[r][v] = vf{};
  const uint32_t *at[V], *fetch[V];
#pragma GCC unroll 8
  for (int v = 0; v < V; v++) {
    at[v] = lanes[v];
    fetch[v] = ahead.chunk ? ahead.chunk->keys[first + v] + ahead.keys : lanes[v];
  }
  for (int64_t s = 0; s < steps; s++) {
#pragma GCC unroll 8
    for (int v = 0; v < V; v++) {
      vu w = *(const vu_u*)(at[v] + s * stride);
      __builtin_prefetch(fetch[v] + s * stride);
#pragma GCC unroll 8
      for (int r = 0; r < R; r++) a[r][v] = L::add(a[r][v], x[r * ldx + s], w);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; r++)
#pragma GCC unroll 8
    for (int v = 0; v < V; v++) store(out + r * CHUNK + v * W, a[r][v]);
}

// Scores of R rows and the visible vectors of a chunk. The sum of a score runs over the dimensions in order.
template <class L, int R>
ROSE_INLINE void score(const Chunk& c, const Ahead& ahead, const typename L::Factor* q, int64_t ldq, int64_t steps,
                       float* scores) {
  constexpr int MANY = vectors_for(R);
  int v = c.from / W, last = (c.to + W - 1) / W;
  for (; v + MANY <= last; v += MANY)
    score_tile<L, R, MANY>(q, ldq, c.keys + v, c.key_stride, steps, ahead, v, scores + v * W);
  for (; v < last; v++) score_tile<L, R, 1>(q, ldq, c.keys + v, c.key_stride, steps, ahead, v, scores + v * W);
}

// out[r][d] += sum over tokens of weights[r][t] * values[t][d], for R rows and V vectors of d.
template <class L, int R, int V>
ROSE_INLINE void add_tile(const Chunk& c, const Ahead& ahead, const typename L::Factor* weights, int64_t d, float* out,
                          int64_t ldo) {
  constexpr int N = L::PER_LANE, LDW = CHUNK / N;
  vf a[R][V];
#pragma GCC unroll 8
  for (int r = 0; r < R; r++)
#pragma GCC unroll 8
    for (int v = 0; v < V; v++) a[r][v] = load(out + r * ldo + d + v * W);
  const typename L::Factor* x = weights + c.from / N;
  for (int i = 0; i < c.num_pieces; i++) {
    const uint32_t* lanes = c.pieces[i].values + d;
    bool fetches = ahead.chunk && i < ahead.chunk->num_pieces;
    const uint32_t* fetch = fetches ? ahead.chunk->pieces[i].values + ahead.values + d : lanes;
    auto step = [&](uint32_t visible) __attribute__((always_inline)) {
#pragma GCC unroll 8
      for (int v = 0; v < V; v++) {
        vu w = *(const vu_u*)(lanes + v * W) & visible;
        __builtin_prefetch(fetch + v * W);
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) a[r][v] = L::add(a[r][v], x[r * LDW], w);
      }
      lanes += c.value_stride;
      fetch += c.value_stride;
      x++;
    };
    // the last lane may hold a token that is not visible
    bool is_cut = N > 1 && c.to % N && i + 1 == c.num_pieces;
    for (int s = c.pieces[i].steps - is_cut; s > 0; s--) step(~0u);
    if (is_cut) step(0xffffu);
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; r++)
#pragma GCC unroll 8
    for (int v = 0; v < V; v++) store(out + r * ldo + d + v * W, a[r][v]);
}

template <class L, int R>
ROSE_INLINE void add(const Chunk& c, const Ahead& ahead, const typename L::Factor* weights, int64_t size, float* out,
                     int64_t ldo) {
  constexpr int MANY = vectors_for(R);
  int64_t d = 0;
  for (; d + MANY * W <= size; d += MANY * W) add_tile<L, R, MANY>(c, ahead, weights, d, out, ldo);
  for (; d < size; d += W) add_tile<L, R, 1>(c, ahead, weights, d, out, ldo);
}

// tanh(x) with a relative error below 3e-7: Cephes' tanhf, whose polynomial serves small x.
ROSE_INLINE vf tanh_exact(vf x) {
  vf z = x * x, p = splat(-5.70498872745e-3f);
  p = p * z + 2.06390887954e-2f;
  p = p * z - 5.37397155531e-2f;
  p = p * z + 1.33314422036e-1f;
  p = p * z - 3.33332819422e-1f;
  vf large = 1.0f - 2.0f / (exp(2.0f * x) + 1.0f);
  return z < splat(0.390625f) ? p * z * x + x : large;
}

// Bound the scores of `last - first` vectors. NaN stays NaN. Not inlined: the loops of layers without a cap
// stay as they are.
__attribute__((noinline)) inline void cap(float* scores, int first, int last, float softcap) {
  for (int v = first; v < last; v++) {
    vf raw = load(scores + v * W);
    store(scores + v * W, raw != raw ? raw : softcap * tanh_exact(raw / softcap));
  }
}

ROSE_INLINE vf put_weights(float* to, vf w) {
  store(to, w);
  return w;
}
ROSE_INLINE vf put_weights(uint16_t* to, vf w) {  // the sum is that of the rounded weights
  store(to, w);
  return load(to);
}

// The running softmax of a row in the current run. `result` is [largest score, sum of weights, values...].
struct Row {
  int64_t position;
  float* result;
};

// Turn the scores of a chunk into weights and update the row's softmax.
// Not inlined, so that tiles of every size run the same instructions.
template <class V>
__attribute__((noinline)) void weigh(const Chunk& c, const Row& row, int64_t window, int64_t value_size, float* s, V* weights) {
  int end = (int)std::max<int64_t>(0, std::min<int64_t>(c.to, row.position + 1 - c.first));
  int start = c.from;
  if (window > 0) start = (int)std::min<int64_t>(end, std::max<int64_t>(start, row.position - window + 1 - c.first));
  int first = c.from / W, last = (c.to + W - 1) / W;
  for (int t = first * W; t < start; t++) s[t] = MINUS_INFINITY;
  for (int t = end; t < last * W; t++) s[t] = MINUS_INFINITY;
  float before = row.result[0];
  vf high = splat(before);
  for (int v = first; v < last; v++) high = max(high, load(s + v * W));
  float best = largest(high);
  vf all = vf{};
  for (int v = first; v < last; v++) {
    vf raw = load(s + v * W), w = exp(raw - best);
    w = raw == splat(MINUS_INFINITY) ? vf{} : w;
    w = raw != raw ? raw : w;  // keep NaN: comparisons and exp would hide it
    all += put_weights(weights + v * W, w);
  }
  if (best > before) {
    float shrink = std::exp(before - best);
    row.result[1] *= shrink;
    for (int64_t d = 0; d < value_size; d += W) store(row.result + 2 + d, load(row.result + 2 + d) * shrink);
    row.result[0] = best;
  }
  row.result[1] += sum(all);
}

// What the rows of an item share.
struct Unit {
  const Chunk& chunk;
  Ahead ahead;
  int64_t key_steps, value_size, ldq, ldo, window;
  float softcap;
};

template <class L, int R>
void some_rows(const Unit& u, const typename L::Factor* q, const Row* rows) {
  alignas(64) float scores[R * CHUNK];
  alignas(64) typename L::Value weights[R * CHUNK];
  score<L, R>(u.chunk, u.ahead, q, u.ldq, u.key_steps, scores);
  for (int r = 0; r < R; r++) {
    if (u.softcap > 0) cap(scores + r * CHUNK, u.chunk.from / W, (u.chunk.to + W - 1) / W, u.softcap);
    weigh(u.chunk, rows[r], u.window, u.value_size, scores + r * CHUNK, weights + r * CHUNK);
  }
  add<L, R>(u.chunk, u.ahead, (const typename L::Factor*)weights, u.value_size, rows[0].result + 2, u.ldo);
}

// All rows of one kv head, in tiles of nearly equal size.
template <class L>
void all_rows(Unit u, const typename L::Factor* q, const Row* rows, int64_t count) {
  int64_t tiles = (count + MAX_ROWS - 1) / MAX_ROWS;
  for (int64_t i = 0, r = 0; i < tiles; i++) {
    int64_t n = count / tiles + (i < count % tiles);
    const auto* x = q + r * u.ldq;
    switch (n) {
      case 1: some_rows<L, 1>(u, x, rows + r); break;
      case 2: some_rows<L, 2>(u, x, rows + r); break;
      case 3: some_rows<L, 3>(u, x, rows + r); break;
      case 4: some_rows<L, 4>(u, x, rows + r); break;
      case 5: some_rows<L, 5>(u, x, rows + r); break;
      case 6: some_rows<L, 6>(u, x, rows + r); break;
    }
    u.ahead = {};  // prefetch only once
    r += n;
  }
}

// Finds the chunks of an item.
template <class L>
class Reader {
 public:
  Reader(const Item& item) : item_(item), layout_(item.call.block_size, item.call.head_dim, item.call.value_dim) {
    const AttentionCall& c = item.call;
    key_steps = round_up(c.head_dim, L::PER_LANE) / L::PER_LANE;
    value_size = round_up(c.value_dim, W);
    key_head_ = c.block_size * c.head_dim / L::PER_LANE;
    value_head_ = c.block_size * c.value_dim / L::PER_LANE;
  }

  int64_t key_steps, value_size;  // of a chunk's lanes
  bool is_in_place() const { return layout_.is_by_lane; }
  int64_t key_head() const { return key_head_; }  // lanes from one kv head to the next
  int64_t value_head() const { return value_head_; }

  // Keys `from` to `to` of the item, which are in the chunk that starts at `first`.
  void find(int64_t first, int64_t from, int64_t to, int64_t head, Chunk& chunk) {
    chunk.first = first;
    chunk.from = (int)(from - first);
    chunk.to = (int)(to - first);
    if (layout_.is_by_lane) point(head, chunk);
    else copy(head, chunk);
  }

 private:
  const Item& item_;
  Layout<L> layout_;
  int64_t key_head_, value_head_;

  const typename L::Stored* keys_of(int64_t block, int64_t head) const {
    const AttentionCall& c = item_.call;
    return (const typename L::Stored*)c.keys + (item_.block(block) * c.num_kv_heads + head) * c.block_size * c.head_dim;
  }
  const typename L::Stored* values_of(int64_t block, int64_t head) const {
    const AttentionCall& c = item_.call;
    return (const typename L::Stored*)c.values + (item_.block(block) * c.num_kv_heads + head) * c.block_size * c.value_dim;
  }

  void point(int64_t head, Chunk& chunk) const {
    const AttentionCall& c = item_.call;
    constexpr int N = L::PER_LANE;
    chunk.key_stride = c.block_size;
    chunk.value_stride = c.value_dim;
    for (int v = chunk.from / W; v * W < chunk.to; v++) {
      int64_t key = chunk.first + v * W;
      chunk.keys[v] = (const uint32_t*)keys_of(key / c.block_size, head) + key % c.block_size;
    }
    chunk.num_pieces = 0;
    for (int64_t t = chunk.from; t < chunk.to;) {
      int64_t key = chunk.first + t, offset = key % c.block_size;
      int64_t n = std::min<int64_t>(chunk.to - t, c.block_size - offset);
      const uint32_t* values = (const uint32_t*)values_of(key / c.block_size, head) + offset / N * c.value_dim;
      chunk.pieces[chunk.num_pieces++] = {values, (int)((n + N - 1) / N)};
      t += n;
    }
  }

  void copy(int64_t head, Chunk& chunk) const {
    static thread_local std::vector<typename L::Stored> keys, values;
    const AttentionCall& c = item_.call;
    constexpr int N = L::PER_LANE;
    keys.assign(CHUNK * key_steps * N, 0);
    values.assign(CHUNK * value_size, 0);
    for (int t = chunk.from; t < chunk.to; t++) {
      int64_t key = chunk.first + t, offset = key % c.block_size;
      const auto* k = keys_of(key / c.block_size, head);
      const auto* v = values_of(key / c.block_size, head);
      for (int64_t d = 0; d < c.head_dim; d++) keys[(d / N * CHUNK + t) * N + d % N] = k[layout_.key(offset, d)];
      for (int64_t d = 0; d < c.value_dim; d++) values[(t / N * value_size + d) * N + t % N] = v[layout_.value(offset, d)];
    }
    chunk.key_stride = CHUNK;
    chunk.value_stride = value_size;
    for (int v = 0; v < VECTORS; v++) chunk.keys[v] = (const uint32_t*)keys.data() + v * W;
    chunk.num_pieces = 1;
    chunk.pieces[0] = {(const uint32_t*)values.data() + chunk.from / N * value_size,
                       (chunk.to + N - 1) / N - chunk.from / N};
  }
};

// Compute the rows of an item for kv heads first_head to last_head. All kv heads of a block are adjacent in
// memory, so each chunk is processed head by head.
template <class L>
void attend(const Item& item, int64_t first_head, int64_t last_head, Scratch& scratch) {
  const AttentionCall& c = item.call;
  Reader<L> reader(item);
  int64_t heads = last_head - first_head, count = heads * item.num_rows, n = reader.value_size;
  int64_t ldq = reader.key_steps, ldo = round_up(n + 2, W), factor_floats = sizeof(typename L::Factor) / sizeof(float);
  int64_t q_floats = round_up(count * ldq * factor_floats, W), size = q_floats + W + 2 * count * ldo;
  float* memory = scratch.take(size);
  std::fill_n(memory, size, 0.0f);
  auto* q = (typename L::Factor*)memory;
  float *results = memory + q_floats + W - 2, *totals = results + count * ldo;  // values are aligned
  static thread_local std::vector<Row> states;
  states.clear();
  for (int64_t h = first_head; h < last_head; h++)
    for (int64_t r = 0; r < item.num_rows; r++) {
      const float* from = item.query(r, h);
      auto* to = (typename L::Value*)(q + states.size() * ldq);
      for (int64_t d = 0; d < c.head_dim; d++) put(to + d, from[d] * (float)c.scale);
      states.push_back({item.position(r), results + states.size() * ldo});
    }
  for (int64_t i = 0; i < count; i++) totals[i * ldo] = MINUS_INFINITY;
  int64_t run_length = c.step->run_length;
  Chunk chunks[2];
  auto bounds = [&](int64_t key, int64_t& first, int64_t& end) {  // of the chunk that holds a key
    int64_t run = key / run_length * run_length;
    first = run + (key - run) / CHUNK * CHUNK;
    end = std::min({first + CHUNK, run + run_length, item.last_key});
  };
  int64_t first, end, now = 0;
  bounds(item.first_key, first, end);
  if (reader.is_in_place() && item.first_key < end) reader.find(first, item.first_key, end, first_head, chunks[0]);
  for (int64_t key = item.first_key; key < item.last_key; key = end, now ^= 1) {
    bounds(key, first, end);
    if (key == item.first_key || key % run_length == 0)
      for (int64_t i = 0; i < count; i++) {
        std::fill_n(results + i * ldo, ldo, 0.0f);
        results[i * ldo] = MINUS_INFINITY;
      }
    bool has_next = end < item.last_key;
    if (reader.is_in_place() && has_next) {
      int64_t next, next_end;
      bounds(end, next, next_end);
      reader.find(next, end, next_end, first_head, chunks[now ^ 1]);
    }
    for (int64_t h = first_head; h < last_head; h++) {
      Chunk& chunk = chunks[now];
      Ahead ahead;
      if (!reader.is_in_place()) {
        reader.find(first, key, end, h, chunk);
      } else {
        if (h > first_head) {
          for (int v = chunk.from / W; v * W < chunk.to; v++) chunk.keys[v] += reader.key_head();
          for (int i = 0; i < chunk.num_pieces; i++) chunk.pieces[i].values += reader.value_head();
        }
        if (h + 1 < last_head) ahead = {&chunk, reader.key_head(), reader.value_head()};
        else if (has_next) ahead = {&chunks[now ^ 1]};
      }
      Unit unit{chunk, ahead, reader.key_steps, n, ldq, ldo, c.window, (float)c.softcap};
      int64_t at = (h - first_head) * item.num_rows;
      all_rows<L>(unit, q + at * ldq, states.data() + at, item.num_rows);
    }
    if (end % run_length == 0 || !has_next)
      for (int64_t i = 0; i < count; i++) fold(totals + i * ldo, results + i * ldo, c.value_dim);
  }
  for (int64_t h = first_head, i = 0; h < last_head; h++)
    for (int64_t r = 0; r < item.num_rows; r++, i++) item.put(r, h, totals + i * ldo);
}

}  // namespace rows
