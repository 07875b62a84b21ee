// Attention of the rows of an item: two matrix products and a softmax per chunk of keys. Decode and
// prefill are the same code with different numbers of rows, so a row has the same bits in both.
#pragma once
#include "attention_chunk.h"

namespace rows {

// Maximum rows of a tile, and vectors of sums of a tile. The other registers hold lanes and
// factors.
#if ROSE_WIDTH == 8
constexpr int MAX_ROWS = 6, MAX_VECTORS = 12;
#else
constexpr int MAX_ROWS = 6, MAX_VECTORS = 24;
#endif
template <class L>
constexpr bool IS_INT8 = std::is_same_v<L, Int8Lanes>;
constexpr int vectors_for(int rows) { return MAX_VECTORS / rows >= 4 ? 4 : 2; }

// What is prefetched while a chunk is read: every line twice. With the keys of a vector go the keys
// of the next chunk, at the same place, and the values of the vector itself, with its values the
// values and the keys of the next chunk. Zen 4 drops prefetches to the second-level cache while
// many loads are under way.
class Ahead {
 public:
  struct Lines {
    const uint32_t *first, *second;
  };

  Ahead() {}
  Ahead(const Chunk& chunk, const Chunk& next)
      : chunk_(&chunk), next_(&next), distance_(next.first_vector() - chunk.first_vector()),
        last_(next.last_vector() - distance_) {}

  // What goes with the keys or the values of a vector; `own`, which is there, in place of nothing.
  Lines with_keys(int vector, const uint32_t* own) const {
    return {is_next(vector) ? next_->key_lines[vector + distance_] : own,
            chunk_ ? chunk_->values[vector] : own};
  }
  Lines with_values(int vector, const uint32_t* own) const {
    if (!is_next(vector)) return {own, own};
    return {next_->values[vector + distance_], next_->key_lines[vector + distance_]};
  }

 private:
  const Chunk *chunk_ = nullptr, *next_ = nullptr;
  int distance_ = 0, last_ = 0;

  bool is_next(int vector) const { return vector < last_; }
};

// out[r][v] = sum over steps of x[r][s] * lanes[v][s], for R rows and V vectors, which are those
// from `first` on of the chunk. FETCHES: whether `ahead` is prefetched.
template <class L, int R, int V, bool FETCHES>
ROSE_INLINE void score_tile(const typename L::Factor* x, int64_t ldx, const uint32_t* const* lanes,
                            int64_t stride, int64_t steps, const Ahead& ahead, int first,
                            float* out) {
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
      if constexpr (FETCHES) {
        __builtin_prefetch(fetch[v].first + s * W, 0, 2);
        __builtin_prefetch(fetch[v].second + s * W, 0, 2);
      }
#pragma GCC unroll 8
      for (int r = 0; r < R; r++) a[r][v] = L::add(a[r][v], x[r * ldx + s], w);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; r++)
#pragma GCC unroll 8
    for (int v = 0; v < V; v++) store(out + r * CHUNK + v * W, L::value(a[r][v]));
}

// Scores of R rows and the vectors `v` to `last` of a chunk. The sum of a score runs over the
// dimensions in order.
template <class L, int R, bool FETCHES>
ROSE_INLINE void score(const Chunk& c, const Ahead& ahead, int v, int last,
                       const typename L::Factor* q, int64_t ldq, int64_t steps, float* scores) {
  constexpr int MANY = vectors_for(R);
  for (; v + MANY <= last; v += MANY)
    score_tile<L, R, MANY, FETCHES>(q, ldq, c.keys + v, c.key_stride, steps, ahead, v,
                                    scores + v * W);
  for (; v < last; v++)
    score_tile<L, R, 1, FETCHES>(q, ldq, c.keys + v, c.key_stride, steps, ahead, v, scores + v * W);
}

// Keys of a chunk, from a multiple of W on.
struct Keys {
  int start, end;
  bool is_empty() const { return start >= end; }
  int first_vector() const { return start / W; }
  int last_vector() const { return (end + W - 1) / W; }
};

// Fold sum over tokens of weights[r][t] * values[t][d] into out[r][d], for R rows and V vectors of
// d.
template <class L, int R, int V, bool FETCHES>
ROSE_INLINE void add_tile(const Chunk& c, const Ahead& ahead, const Keys& seen,
                          const typename L::Factor* weights, const Shares* shares, int64_t d,
                          float* out, int64_t ldo) {
  constexpr int N = L::PER_LANE, LDW = CHUNK / N;
  typename L::Sum a[R][V];
#pragma GCC unroll 8
  for (int r = 0; r < R; r++)
#pragma GCC unroll 8
    for (int v = 0; v < V; v++) a[r][v] = typename L::Sum{};
  const typename L::Factor* x = weights + seen.start / N;
  for (int key = seen.start; key < seen.end;) {
    int piece = key / c.piece_keys, start = piece * c.piece_keys,
        end = std::min(start + c.piece_keys, seen.end);
    const uint32_t* lanes = c.values[piece] + (key - start) / N * c.value_stride + d;
    Ahead::Lines fetch = ahead.with_values(piece, lanes - d);
    fetch = {fetch.first + d, fetch.second + d};
    auto step = [&](uint32_t visible) __attribute__((always_inline)) {
#pragma GCC unroll 8
      for (int v = 0; v < V; v++) {
        vu w = *(const vu_u*)(lanes + v * W) & visible;
        if constexpr (FETCHES) {
          __builtin_prefetch(fetch.first + v * W, 0, 2);
          __builtin_prefetch(fetch.second + v * W, 0, 2);
        }
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) a[r][v] = L::add(a[r][v], x[r * LDW], w);
      }
      lanes += c.value_stride;
      fetch = {fetch.first + c.value_stride, fetch.second + c.value_stride};
      x++;
    };
    // the last lane may hold a token that is not visible, whose weight is 0 but whose value may be
    // NaN
    bool is_cut = N == 2 && end % N;
    for (int s = (end - key + N - 1) / N - is_cut; s > 0; s--) step(~0u);
    if (is_cut) step(0xffffu);
    key = end;
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; r++)
#pragma GCC unroll 8
    for (int v = 0; v < V; v++) {
      float* to = out + r * ldo + d + v * W;
      store(to, folded(load(to), L::value(a[r][v]), shares[r]));
    }
}

// The same for the dimensions from `d` to `end`.
template <class L, int R, bool FETCHES>
ROSE_INLINE void add(const Chunk& c, const Ahead& ahead, const Keys& seen,
                     const typename L::Factor* weights, const Shares* shares, int64_t d,
                     int64_t end, float* out, int64_t ldo) {
  constexpr int MANY = vectors_for(R);
  for (; d + MANY * W <= end; d += MANY * W)
    add_tile<L, R, MANY, FETCHES>(c, ahead, seen, weights, shares, d, out, ldo);
  for (; d < end; d += W) add_tile<L, R, 1, FETCHES>(c, ahead, seen, weights, shares, d, out, ldo);
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

// Bound the scores of `last - first` vectors. NaN stays NaN. Not inlined: the loops of layers
// without a cap stay as they are.
__attribute__((noinline)) inline void cap(float* scores, int first, int last, float softcap) {
  for (int v = first; v < last; v++) {
    vf raw = load(scores + v * W);
    store(scores + v * W, raw != raw ? raw : softcap * tanh_exact(raw / softcap));
  }
}

// 2^x for x <= 1 with a relative error below 2e-7. Below -126, where it is 1e-38 of the largest
// weight, it is 0. NaN stays NaN. Minimax polynomial of 2^r over r in [-1/2, 1/2].
ROSE_INLINE vf power_of_score(vf x) {
  vf n = x + 12582912.0f;  // 1.5 * 2^23: rounds to an integer
  vf r = x - (n - 12582912.0f), p = splat(1.32647238e-3f);
  p = p * r + 9.67151299e-3f;
  p = p * r + 5.55073359e-2f;
  p = p * r + 2.40222424e-1f;
  p = p * r + 6.93147004e-1f;
  p = p * r + 1.0f;
  vf power = p * (vf)(((vi)n << 23) + 0x3f800000);
  return x < splat(-126.0f) ? vf{} : power;
}

// Write the weights of two vectors of keys. Returns the sums of their lanes, in some order: of
// rounded weights if they are rounded.
ROSE_INLINE vf put_weights(float* to, vf a, vf b) {
  store(to, a);
  store(to + W, b);
  return a + b;
}
ROSE_INLINE vf put_weights(uint16_t* to, vf a, vf b) {
#if ROSE_WIDTH == 16 && defined(__AVX512BF16__)
  vu both = (vu)_mm512_cvtne2ps_pbh((__m512)b, (__m512)a);
  _mm512_storeu_si512(to, (__m512i)both);
  return (vf)(both << 16) + (vf)(both & 0xffff0000u);
#else
  store_rounded(to, a);
  store_rounded(to + W, b);
  return load(to) + load(to + W);
#endif
}

// A row and its result of the keys so far; see attention.h. `unit` is what the integers of an int8
// query are multiplied by.
struct Row {
  int64_t position;
  float* result;
  float unit;
};

// The keys of a chunk that a row sees.
inline Keys seen_by(const Row& row, const Chunk& c, int64_t window) {
  int end = (int)std::max<int64_t>(0, std::min<int64_t>(c.to, row.position + 1 - c.first));
  int start = c.from;
  if (window > 0)
    start =
        (int)std::min<int64_t>(end, std::max<int64_t>(start, row.position - window + 1 - c.first));
  return {start, end};
}

// Minus infinity in place of lanes before `start` and from `end` on.
ROSE_INLINE vf hide(vf scores, int start, int end) {
  vi lanes;
#pragma GCC unroll 16
  for (int lane = 0; lane < W; lane++) lanes[lane] = lane;
  return (lanes >= start) & (lanes < end) ? scores : splat(MINUS_INFINITY);
}

// The largest of the scores of vectors `first` to `last`, of the keys that are seen. The others
// become minus infinity. This and the next functions are not inlined, so that tiles of every size
// run the same instructions.
__attribute__((noinline)) inline float hide_and_find(const Keys& seen, int first, int last,
                                                     float* s) {
  vf high = splat(MINUS_INFINITY);
  if (seen.start <= first * W && seen.end >= last * W) {
    for (int v = first; v < last; v++) high = max(high, load(s + v * W));
  } else {
    for (int v = first; v < last; v++) {
      vf x = hide(load(s + v * W), seen.start - v * W, seen.end - v * W);
      store(s + v * W, x);
      high = max(high, x);
    }
  }
  return largest(high);
}

// Turn scores into weights, for pairs of vectors. `sums` are their sums by lane. The largest weight
// is between 1/2 and 1, also where scores are so large that `base` is no longer within 1 of the
// best one.
template <class V>
__attribute__((noinline)) void weigh(int first, int last, float best, float base, float* s,
                                     V* weights, float* sums) {
  float rest = std::min(std::max(__builtin_fmaf(best, LOG2_E, -base), -1.0f), 0.0f);
  vf all = vf{};
  for (int v = first; v < last; v += 2) {
    vf a = power_of_score((load(s + v * W) - best) * LOG2_E + rest);
    vf b = power_of_score((load(s + v * W + W) - best) * LOG2_E + rest);
    all += put_weights(weights + v * W, a, b);
  }
  store(sums, all);
}

// Turn the integer sums of a row into scores. Not inlined, as `weigh`.
__attribute__((noinline)) inline void scale_scores(const Chunk& c, int first, int last, float unit,
                                                   float* s) {
  for (int v = first; v < last; v++)
    store(s + v * W, load(s + v * W) * (load(c.key_scales[v]) * unit));
}

// Multiply the weights of a row by the scales of the values, and round them to integers. Returns
// what these are multiplied by: NaN if one is NaN. A token that is not visible may have any scale,
// and so may one whose weight is 0.
//
// With m, the largest weight times scale, rounding a value to its byte errs by up to m / 2.
// Rounding the weights of a chunk of 128 errs by at most 128 * 127 * m / 65534, or m / 4.
__attribute__((noinline)) inline float round_weights(const Chunk& c, int first, int last,
                                                     float* weights, int16_t* to) {
  vf most = vf{}, none = vf{};
  for (int v = first; v < last; v++) {
    vf w = load(weights + v * W), scaled = w * load(c.value_scales[v]);
    scaled = w == vf{} ? vf{} : scaled;
    most = max(most, scaled);
    none += scaled * 0.0f;
    store(weights + v * W, scaled);
  }
  float unit = largest(most) / 32767.0f, inverse = unit > 1e-30f ? 1.0f / unit : 0.0f;
  for (int v = first; v < last; v++)
    put_factors(to + v * W, nearest(load(weights + v * W) * inverse));
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

// Rows that are computed at once. `seen` are the keys that at least one of them sees, from a
// multiple of W on.
struct Tile {
  int64_t row, count;
  Keys seen;
};

// Turn the scores of a tile into weights, and fold their bases and sums into the results of its
// rows. Each step is for all rows: its operations depend on each other, and the CPU begins those of
// the next rows meanwhile.
template <class L>
__attribute__((noinline)) void weigh_tile(const Unit& u, const Tile& tile, const Keys* seen,
                                          const Row* rows, float* scores,
                                          typename L::Value* weights, Shares* shares) {
  int first = tile.seen.first_vector(), last = tile.seen.last_vector(), first_pair = first / 2 * 2,
      last_pair = (last + 1) / 2 * 2;
  float best[MAX_ROWS], base[MAX_ROWS], sums[MAX_ROWS * W];
  for (int64_t r = 0; r < tile.count; r++) {
    float* s = scores + r * CHUNK;
    if constexpr (IS_INT8<L>) scale_scores(u.chunk, first, last, rows[r].unit, s);
    if (u.softcap > 0) cap(s, first, last, u.softcap);
    float high = hide_and_find(seen[r], first_pair, last_pair, s);
    best[r] = high == MINUS_INFINITY ? 0 : high;  // there is no visible key
    base[r] = std::ceil(best[r] * LOG2_E);
  }
  for (int64_t r = 0; r < tile.count; r++) {
    float* s = scores + r * CHUNK;
    if constexpr (IS_INT8<L>)
      weigh(first_pair, last_pair, best[r], base[r], s, s, sums + r * W);
    else
      weigh(first_pair, last_pair, best[r], base[r], s, weights + r * CHUNK, sums + r * W);
  }
  for (int64_t r = 0; r < tile.count; r++) {
    float part[] = {base[r], sum(load(sums + r * W))};
    shares[r] = fold_weights(rows[r].result, part);
    if constexpr (IS_INT8<L>)
      shares[r].part *=
          round_weights(u.chunk, first, last, scores + r * CHUNK, weights + r * CHUNK);
  }
}

// f(std::integral_constant<int, count>()).
template <class F>
ROSE_INLINE void with_rows(int64_t count, F f) {
  switch (count) {
    case 1:
      return f(std::integral_constant<int, 1>());
    case 2:
      return f(std::integral_constant<int, 2>());
    case 3:
      return f(std::integral_constant<int, 3>());
    case 4:
      return f(std::integral_constant<int, 4>());
    case 5:
      return f(std::integral_constant<int, 5>());
    case 6:
      return f(std::integral_constant<int, 6>());
  }
}

// Lanes of a chunk that the first-level cache keeps while all tiles use them: so many keys times
// their steps, or dimensions of values times theirs.
constexpr int64_t KEPT = 4096;

// All rows of one kv head, in tiles of nearly equal size. The keys of a chunk are used by all tiles
// before its values are.
template <class L, bool FETCHES>
void all_rows(const Unit& u, const typename L::Factor* q, const Row* rows, int64_t count) {
  static thread_local Scratch scratch;
  using Value = typename L::Value;
  const Chunk& c = u.chunk;
  int64_t num_tiles = (count + MAX_ROWS - 1) / MAX_ROWS;
  float* scores = scratch.take<float>(2 * count * CHUNK + count * 4 +
                                      num_tiles * (int64_t)(sizeof(Tile) / sizeof(float)));
  Value* weights = (Value*)(scores + count * CHUNK);
  Tile* tiles = (Tile*)(scores + 2 * count * CHUNK);
  Keys* seen = (Keys*)(tiles + num_tiles);
  Shares* shares = (Shares*)(seen + count);
  for (int64_t i = 0, r = 0; i < num_tiles; i++) {
    Tile tile{r, count / num_tiles + (i < count % num_tiles), {CHUNK, 0}};
    for (; r < tile.row + tile.count; r++) {
      seen[r] = seen_by(rows[r], c, u.window);
      if (seen[r].is_empty()) continue;
      tile.seen = {std::min(tile.seen.start, seen[r].start / W * W),
                   std::max(tile.seen.end, seen[r].end)};
    }
    tiles[i] = tile;
  }
  Ahead all_ahead;
  if (FETCHES && u.next) all_ahead = Ahead(c, *u.next);
  if constexpr (FETCHES && IS_INT8<L>)
    if (u.next) fetch_scales(*u.next);
  auto each_tile = [&](auto f) __attribute__((always_inline)) {
    Ahead ahead = all_ahead;
    for (int64_t i = 0; i < num_tiles; i++) {
      const Tile& tile = tiles[i];
      if (tile.seen.is_empty()) continue;
      with_rows(tile.count, [&](auto R) __attribute__((always_inline)) { f(R, tile, ahead); });
      ahead = {};  // prefetch only once
    }
  };
  int kept = (int)std::max<int64_t>(1, KEPT / (u.key_steps * 4 * W)) * 4;  // vectors of keys
  for (int v = c.first_vector(); v < c.last_vector(); v += kept)
    each_tile([&](auto R, const Tile& tile, const Ahead& ahead) __attribute__((always_inline)) {
      int first = std::max(v, tile.seen.first_vector()),
          last = std::min(v + kept, tile.seen.last_vector());
      float* s = scores + tile.row * CHUNK;
      score<L, R(), FETCHES>(c, ahead, first, last, q + tile.row * u.ldq, u.ldq, u.key_steps, s);
      if (v + kept >= c.last_vector())
        weigh_tile<L>(u, tile, seen + tile.row, rows + tile.row, s, weights + tile.row * CHUNK,
                      shares + tile.row);
    });
  constexpr int64_t SIZE = std::max(KEPT / (CHUNK / L::PER_LANE), (int64_t)4 * W);
  for (int64_t d = 0; d < u.value_size; d += SIZE)
    each_tile([&](auto R, const Tile& tile, const Ahead& ahead) __attribute__((always_inline)) {
      add<L, R(), FETCHES>(
          c, ahead, tile.seen, (const typename L::Factor*)(weights + tile.row * CHUNK),
          shares + tile.row, d, std::min(d + SIZE, u.value_size), rows[tile.row].result + 2, u.ldo);
    });
}

// The rows of an item for some kv heads: their queries, the results of the current run if it has
// several chunks, and the folded results.
template <class L>
class RowStates {
 public:
  using Factor = typename L::Factor;

  RowStates(const Item& item, const Reader<L>& reader, int64_t first_head, int64_t last_head,
            Scratch& scratch)
      : item_(item), first_head_(first_head), count_((last_head - first_head) * item.num_rows),
        has_parts_(item.call.step->run_length > CHUNK) {
    ldq = reader.key_steps;
    ldo = round_up(reader.value_size + 2, W);
    int64_t q_floats = round_up(count_ * ldq * (int64_t)(sizeof(Factor) / sizeof(float)), W);
    int64_t size = q_floats + W + (has_parts_ ? 2 : 1) * count_ * ldo;
    float* memory = scratch.take<float>(size);
    std::fill_n(memory, size, 0.0f);
    q_ = (Factor*)memory;
    totals_ = memory + q_floats + W - 2;  // so that the values of a result are aligned
    results_ = has_parts_ ? totals_ + count_ * ldo : totals_;
    for (int64_t i = 0; i < count_; i++) totals_[i * ldo] = MINUS_INFINITY;
    read_queries();
  }

  int64_t ldq,
      ldo;  // from one query to the next, in factors, and from one result to the next, in floats

  // The rows of a kv head.
  const Factor* queries(int64_t head) const { return q_ + at(head) * ldq; }
  const Row* rows(int64_t head) const { return rows_.data() + at(head); }

  void begin_run() {
    if (!has_parts_) return;
    std::fill_n(results_, count_ * ldo, 0.0f);
    for (int64_t i = 0; i < count_; i++) results_[i * ldo] = MINUS_INFINITY;
  }
  void end_run() {
    if (!has_parts_) return;
    for (int64_t i = 0; i < count_; i++)
      fold(totals_ + i * ldo, results_ + i * ldo, item_.call.value_dim);
  }
  void put() const {
    for (int64_t i = 0, h = first_head_; i < count_; h++)
      for (int64_t r = 0; r < item_.num_rows; r++, i++) item_.put(r, h, totals_ + i * ldo);
  }

 private:
  const Item& item_;
  int64_t first_head_, count_;
  bool has_parts_;
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

// Compute a part. All kv heads of a block are adjacent in memory, so each chunk is processed head
// by head. `then` is probably computed next by this thread, or null. FETCHES: whether what is read
// next is prefetched.
template <class L, bool FETCHES>
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
      if (!is_in_place)
        reader.find(span, h, chunk);
      else if (!is_last)
        reader.next_head(next = chunk);
      else if (!after.is_empty())
        reader.find(after, part.first_head, next);
      else
        has_next = then && find_first<L>(*then, next);
      Unit unit{chunk,
                has_next ? &next : nullptr,
                reader.key_steps,
                reader.value_size,
                states.ldq,
                states.ldo,
                item.call.window,
                (float)item.call.softcap};
      all_rows<L, FETCHES>(unit, states.queries(h), states.rows(h), item.num_rows);
      if (has_next) chunk = next;
    }
    if (after.is_empty() || after.from % run_length == 0) states.end_run();
    span = after;
  }
  states.put();
}

}  // namespace rows
