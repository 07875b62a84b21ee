// Attention of the rows of an item: two matrix products and a softmax per chunk of keys. Decode and prefill
// are the same code with different numbers of rows, so a row has the same bits in both.
#pragma once
#include "attention_chunk.h"

namespace rows {

// Maximum rows of a tile, and vectors of sums of a tile. The other registers hold lanes and factors.
#if ROSE_WIDTH == 8
constexpr int MAX_ROWS = 6, MAX_VECTORS = 12;
#else
constexpr int MAX_ROWS = 6, MAX_VECTORS = 24;
#endif
template <class L>
constexpr bool IS_INT8 = std::is_same_v<L, Int8Lanes>;
constexpr int vectors_for(int rows) { return MAX_VECTORS / rows >= 4 ? 4 : 2; }

// What is prefetched while a chunk is read: every line twice. With the keys of a vector go the keys of the next chunk, at the
// same place, and the values of the vector itself, with its values the values and the keys of the next chunk. Zen 4 drops
// prefetches to the second-level cache while many loads are under way.
class Ahead {
 public:
  struct Lines {
    const uint32_t *first, *second;
  };

  Ahead() {}
  Ahead(const Chunk& chunk, const Chunk& next)
      : chunk_(&chunk), next_(&next), distance_(next.first_vector() - chunk.first_vector()), last_(next.last_vector() - distance_) {}

  // What goes with the keys or the values of a vector; `own`, which is there, in place of nothing.
  Lines with_keys(int vector, const uint32_t* own) const {
    return {is_next(vector) ? next_->key_lines[vector + distance_] : own, chunk_ ? chunk_->value_lines[vector] : own};
  }
  Lines with_values(int vector, const uint32_t* own) const {
    if (!is_next(vector)) return {own, own};
    return {next_->value_lines[vector + distance_], next_->key_lines[vector + distance_]};
  }

 private:
  const Chunk *chunk_ = nullptr, *next_ = nullptr;
  int distance_ = 0, last_ = 0;

  bool is_next(int vector) const { return vector < last_; }
};

// out[r][v] = sum over steps of x[r][s] * lanes[v][s], for R rows and V vectors, which are those from `first` on
// of the chunk.
template <class L, int R, int V>
ROSE_INLINE void score_tile(const typename L::Factor* x, int64_t ldx, const uint32_t* const* lanes, int64_t stride,
                            int64_t steps, const Ahead& ahead, int first, float* out) {
  typename L::Sum a[R][V];
#pragma GCC unroll 8
  for (int r = 0; r < R; r++)
#pragma GCC unroll 8
    for (int v = 0; v < V; v++) a[r][v] = typename L::Sum{};
  const uint32_t* at[V];
  Ahead::Lines fetch[V];
#pragma GCC unroll 8
  for (int v = 0; v < V; v++) {
    at[v] = lanes[v];
    fetch[v] = ahead.with_keys(first + v, lanes[v]);
  }
  for (int64_t s = 0; s < steps; s++) {
#pragma GCC unroll 8
    for (int v = 0; v < V; v++) {
      vu w = *(const vu_u*)(at[v] + s * stride);
      __builtin_prefetch(fetch[v].first + s * W, 0, 2);
      __builtin_prefetch(fetch[v].second + s * W, 0, 2);
#pragma GCC unroll 8
      for (int r = 0; r < R; r++) a[r][v] = L::add(a[r][v], x[r * ldx + s], w);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; r++)
#pragma GCC unroll 8
    for (int v = 0; v < V; v++) store(out + r * CHUNK + v * W, L::value(a[r][v]));
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

// out[r][d] += sum over tokens of weights[r][t] * values[t][d], for R rows and V vectors of d. Integers are multiplied by
// units[r] too.
template <class L, int R, int V>
ROSE_INLINE void add_tile(const Chunk& c, const Ahead& ahead, const typename L::Factor* weights, const float* units, int64_t d,
                          float* out, int64_t ldo) {
  constexpr int N = L::PER_LANE, LDW = CHUNK / N;
  typename L::Sum a[R][V];
#pragma GCC unroll 8
  for (int r = 0; r < R; r++)
#pragma GCC unroll 8
    for (int v = 0; v < V; v++) a[r][v] = L::begin(out + r * ldo + d + v * W);
  const typename L::Factor* x = weights + c.from / N;
  for (int i = 0; i < c.num_pieces; i++) {
    const uint32_t* lanes = c.pieces[i].values + d;
    Ahead::Lines fetch = ahead.with_values(c.first_vector() + i, c.pieces[i].values);
    fetch = {fetch.first + d, fetch.second + d};
    auto step = [&](uint32_t visible) __attribute__((always_inline)) {
#pragma GCC unroll 8
      for (int v = 0; v < V; v++) {
        vu w = *(const vu_u*)(lanes + v * W) & visible;
        __builtin_prefetch(fetch.first + v * W, 0, 2);
        __builtin_prefetch(fetch.second + v * W, 0, 2);
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) a[r][v] = L::add(a[r][v], x[r * LDW], w);
      }
      lanes += c.value_stride;
      fetch = {fetch.first + c.value_stride, fetch.second + c.value_stride};
      x++;
    };
    // the last lane may hold a token that is not visible, whose weight is 0 but whose value may be NaN
    bool is_cut = N == 2 && c.to % N && i + 1 == c.num_pieces;
    for (int s = c.pieces[i].steps - is_cut; s > 0; s--) step(~0u);
    if (is_cut) step(0xffffu);
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; r++)
#pragma GCC unroll 8
    for (int v = 0; v < V; v++) L::end(out + r * ldo + d + v * W, a[r][v], units[r]);
}

template <class L, int R>
ROSE_INLINE void add(const Chunk& c, const Ahead& ahead, const typename L::Factor* weights, const float* units, int64_t size,
                     float* out, int64_t ldo) {
  constexpr int MANY = vectors_for(R);
  int64_t d = 0;
  for (; d + MANY * W <= size; d += MANY * W) add_tile<L, R, MANY>(c, ahead, weights, units, d, out, ldo);
  for (; d < size; d += W) add_tile<L, R, 1>(c, ahead, weights, units, d, out, ldo);
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

// exp(x) for x <= 0. Below -87, where it is 1e-38 of the largest weight, it is 0. NaN stays NaN.
ROSE_INLINE vf exp_of_score(vf x) {
  vf power, p = exp_in_range(x, power);
#if ROSE_WIDTH == 16 && defined(__AVX512F__)
  __mmask16 counts = _mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(-87.0f), _CMP_NLT_UQ);
  return (vf)_mm512_maskz_mul_ps(counts, (__m512)p, (__m512)power);
#else
  return x < splat(-87.0f) ? vf{} : p * power;
#endif
}

ROSE_INLINE vf put_weights(float* to, vf w) {
  store(to, w);
  return w;
}
ROSE_INLINE vf put_weights(uint16_t* to, vf w) {  // the sum is that of the rounded weights
  store_rounded(to, w);
  return load(to);
}

// The running softmax of a row in the current run. `result` is [largest score, sum of weights, values...]. `unit` is what the
// integers of an int8 query are multiplied by.
struct Row {
  int64_t position;
  float* result;
  float unit;
};

// Hide the scores of a chunk that a row does not see. Returns the largest score of the row so far.
// This and `weigh` are not inlined, so that tiles of every size run the same instructions.
__attribute__((noinline)) inline float hide(const Chunk& c, const Row& row, int64_t window, float* s) {
  int end = (int)std::max<int64_t>(0, std::min<int64_t>(c.to, row.position + 1 - c.first));
  int start = c.from;
  if (window > 0) start = (int)std::min<int64_t>(end, std::max<int64_t>(start, row.position - window + 1 - c.first));
  int first = c.from / W, last = (c.to + W - 1) / W;
  for (int t = first * W; t < start; t++) s[t] = MINUS_INFINITY;
  for (int t = end; t < last * W; t++) s[t] = MINUS_INFINITY;
  vf high = splat(row.result[0]);
  for (int v = first; v < last; v++) high = max(high, load(s + v * W));
  return largest(high);
}

// Turn the scores of a chunk into weights, of which the largest of all is `best`, and update the row's softmax.
template <class V>
__attribute__((noinline)) void weigh(const Chunk& c, const Row& row, float best, int64_t value_size, const float* s, V* weights) {
  float before = row.result[0], base = best == MINUS_INFINITY ? 0 : best;  // or there is no visible key
  vf all = vf{};
  for (int v = c.from / W; v * W < c.to; v++) all += put_weights(weights + v * W, exp_of_score(load(s + v * W) - base));
  if (best > before) {
    if (before > MINUS_INFINITY) {
      float shrink = std::exp(before - best);
      row.result[1] *= shrink;
      for (int64_t d = 0; d < value_size; d += W) store(row.result + 2 + d, load(row.result + 2 + d) * shrink);
    }
    row.result[0] = best;
  }
  row.result[1] += sum(all);
}

// Turn the integer sums of a row into scores. Not inlined, as `weigh`.
__attribute__((noinline)) inline void scale_scores(const Chunk& c, float unit, float* s) {
  for (int v = c.from / W; v * W < c.to; v++) store(s + v * W, load(s + v * W) * (load(c.key_scales[v]) * unit));
}

// Multiply the weights of a row by the scales of the values, and round them to integers. Returns what these are multiplied
// by: NaN if one is NaN. A token that is not visible may have any scale, and so may one whose weight is 0.
//
// With m, the largest weight times scale, rounding a value to its byte errs by up to m / 2. Rounding the weights of a chunk of
// 64 errs by at most 64 * 127 * m / 65534, or m / 8.
__attribute__((noinline)) inline float round_weights(const Chunk& c, float* weights, int16_t* to) {
  vf most = vf{}, none = vf{};
  for (int v = c.from / W; v * W < c.to; v++) {
    vf w = load(weights + v * W), scaled = w * load(c.value_scales[v]);
    scaled = w == vf{} ? vf{} : scaled;
    most = max(most, scaled);
    none += scaled * 0.0f;
    store(weights + v * W, scaled);
  }
  float unit = largest(most) / 32767.0f, inverse = unit > 1e-30f ? 1.0f / unit : 0.0f;
  for (int v = c.from / W; v * W < c.to; v++) put_factors(to + v * W, nearest(load(weights + v * W) * inverse));
  return unit + sum(none);
}

// What the rows of an item share.
struct Unit {
  const Chunk& chunk;
  const Chunk* next;  // which is read after it, in place; or null
  int64_t key_steps, value_size, ldq, ldo, window;
  float softcap;
};

ROSE_INLINE void fetch_scales(const Chunk& c) {
  for (int v = c.first_vector(); v < c.last_vector(); v++) {
    __builtin_prefetch(c.key_scales[v]);
    __builtin_prefetch(c.value_scales[v]);
  }
}

// f(std::integral_constant<int, count>()).
template <class F>
ROSE_INLINE void with_rows(int64_t count, F f) {
  switch (count) {
    case 1: return f(std::integral_constant<int, 1>());
    case 2: return f(std::integral_constant<int, 2>());
    case 3: return f(std::integral_constant<int, 3>());
    case 4: return f(std::integral_constant<int, 4>());
    case 5: return f(std::integral_constant<int, 5>());
    case 6: return f(std::integral_constant<int, 6>());
  }
}

// All rows of one kv head, in tiles of nearly equal size. The keys of a chunk are used by all tiles before its values are: the
// first-level cache holds only one of them.
template <class L>
void all_rows(const Unit& u, const typename L::Factor* q, const Row* rows, int64_t count) {
  static thread_local Scratch scratch;
  using Value = typename L::Value;
  float* scores = scratch.take<float>(2 * count * CHUNK + 2 * count);
  Value* weights = (Value*)(scores + count * CHUNK);
  float *best = scores + 2 * count * CHUNK, *units = best + count;
  int64_t tiles = (count + MAX_ROWS - 1) / MAX_ROWS;
  Ahead all_ahead;
  if (u.next) all_ahead = Ahead(u.chunk, *u.next);
  if constexpr (IS_INT8<L>)
    if (u.next) fetch_scales(*u.next);
  auto each_tile = [&](auto f) __attribute__((always_inline)) {
    Ahead ahead = all_ahead;
    for (int64_t i = 0, r = 0; i < tiles; i++) {
      int64_t n = count / tiles + (i < count % tiles);
      with_rows(n, [&](auto R) __attribute__((always_inline)) { f(R, r, ahead); });
      ahead = {};  // prefetch only once
      r += n;
    }
  };
  each_tile([&](auto R, int64_t r, const Ahead& ahead) __attribute__((always_inline)) {
    score<L, R()>(u.chunk, ahead, q + r * u.ldq, u.ldq, u.key_steps, scores + r * CHUNK);
  });
  for (int64_t r = 0; r < count; r++) {
    float* s = scores + r * CHUNK;
    if constexpr (IS_INT8<L>) scale_scores(u.chunk, rows[r].unit, s);
    if (u.softcap > 0) cap(s, u.chunk.from / W, (u.chunk.to + W - 1) / W, u.softcap);
    best[r] = hide(u.chunk, rows[r], u.window, s);
  }
  for (int64_t r = 0; r < count; r++) {
    float* s = scores + r * CHUNK;
    if constexpr (IS_INT8<L>) {
      weigh(u.chunk, rows[r], best[r], u.value_size, s, s);
      units[r] = round_weights(u.chunk, s, weights + r * CHUNK);
    } else {
      weigh(u.chunk, rows[r], best[r], u.value_size, s, weights + r * CHUNK);
    }
  }
  each_tile([&](auto R, int64_t r, const Ahead& ahead) __attribute__((always_inline)) {
    add<L, R()>(u.chunk, ahead, (const typename L::Factor*)(weights + r * CHUNK), units + r, u.value_size,
                rows[r].result + 2, u.ldo);
  });
}

// The rows of an item for some kv heads: their queries, the softmax of the current run, and the folded results.
template <class L>
class RowStates {
 public:
  using Factor = typename L::Factor;

  RowStates(const Item& item, const Reader<L>& reader, int64_t first_head, int64_t last_head, Scratch& scratch)
      : item_(item), first_head_(first_head), count_((last_head - first_head) * item.num_rows) {
    ldq = reader.key_steps;
    ldo = round_up(reader.value_size + 2, W);
    int64_t q_floats = round_up(count_ * ldq * (int64_t)(sizeof(Factor) / sizeof(float)), W);
    int64_t size = q_floats + W + 2 * count_ * ldo;
    float* memory = scratch.take<float>(size);
    std::fill_n(memory, size, 0.0f);
    q_ = (Factor*)memory;
    results_ = memory + q_floats + W - 2;  // so that the values of a result are aligned
    totals_ = results_ + count_ * ldo;
    for (int64_t i = 0; i < count_; i++) totals_[i * ldo] = MINUS_INFINITY;
    read_queries();
  }

  int64_t ldq, ldo;  // from one query to the next, in factors, and from one result to the next, in floats

  // The rows of a kv head.
  const Factor* queries(int64_t head) const { return q_ + at(head) * ldq; }
  const Row* rows(int64_t head) const { return rows_.data() + at(head); }

  void begin_run() {
    std::fill_n(results_, count_ * ldo, 0.0f);
    for (int64_t i = 0; i < count_; i++) results_[i * ldo] = MINUS_INFINITY;
  }
  void end_run() {
    for (int64_t i = 0; i < count_; i++) fold(totals_ + i * ldo, results_ + i * ldo, item_.call.value_dim);
  }
  void put() const {
    for (int64_t i = 0; i < count_; i++) item_.put(i % item_.num_rows, first_head_ + i / item_.num_rows, totals_ + i * ldo);
  }

 private:
  const Item& item_;
  int64_t first_head_, count_;
  Factor* q_;
  float *results_, *totals_;
  static thread_local std::vector<Row> rows_;

  int64_t at(int64_t head) const { return (head - first_head_) * item_.num_rows; }

  void read_queries() {
    const AttentionCall& c = item_.call;
    rows_.clear();
    for (int64_t i = 0; i < count_; i++) {
      int64_t r = i % item_.num_rows;
      const float* from = item_.query(r, first_head_ + i / item_.num_rows);
      auto* to = (typename L::Value*)(q_ + i * ldq);
      float unit = 1;
      if constexpr (IS_INT8<L>) {
        unit = write_query(from, c.head_dim, (float)c.scale, to);
      } else {
        int64_t d = 0;
        for (; d + W <= c.head_dim; d += W) store(to + d, load(from + d) * (float)c.scale);
        for (; d < c.head_dim; d++) ::put(to + d, from[d] * (float)c.scale);
      }
      rows_.push_back({item_.position(r), results_ + i * ldo, unit});
    }
  }
};

template <class L>
thread_local std::vector<Row> RowStates<L>::rows_;

// Find the first chunk of a part, if it is read in place. Returns whether there is one.
template <class L>
bool find_first(const Part& part, Chunk& chunk) {
  Reader<L> reader(part.item);
  Span span = span_from(part.item, part.item.first_key);
  if (!reader.is_in_place() || span.is_empty()) return false;
  reader.find(span, part.first_head, chunk);
  return true;
}

// Compute a part. All kv heads of a block are adjacent in memory, so each chunk is processed head by head. `then` is
// probably computed next by this thread, or null.
template <class L>
void attend(const Part& part, const Part* then, Scratch& scratch) {
  const Item& item = part.item;
  Reader<L> reader(item);
  RowStates<L> states(item, reader, part.first_head, part.last_head, scratch);
  int64_t run_length = item.call.step->run_length;
  bool is_in_place = reader.is_in_place();
  Chunk chunk, next;
  Span span = span_from(item, item.first_key);
  if (is_in_place && !span.is_empty()) reader.find(span, part.first_head, chunk);
  for (bool is_first = true; !span.is_empty(); is_first = false) {
    Span after = span_from(item, span.to);
    if (is_first || span.from % run_length == 0) states.begin_run();
    for (int64_t h = part.first_head; h < part.last_head; h++) {
      bool is_last = h + 1 == part.last_head, has_next = is_in_place;
      if (!is_in_place) reader.find(span, h, chunk);
      else if (!is_last) reader.next_head(next = chunk);
      else if (!after.is_empty()) reader.find(after, part.first_head, next);
      else has_next = then && find_first<L>(*then, next);
      Unit unit{chunk,      has_next ? &next : nullptr, reader.key_steps,  reader.value_size,
                states.ldq, states.ldo,                 item.call.window, (float)item.call.softcap};
      all_rows<L>(unit, states.queries(h), states.rows(h), item.num_rows);
      if (has_next) chunk = next;
    }
    if (after.is_empty() || after.from % run_length == 0) states.end_run();
    span = after;
  }
  states.put();
}

}  // namespace rows
