// Attention of many rows (prompts, shared prefixes): two matrix products per chunk. Vectors run along the
// rows, so keys and values are not transposed and the softmax needs no sums across lanes.
#pragma once
#include "attention.h"

namespace many {

constexpr int CHUNK = 64;

// c[i][r] = c[i][r] * factor[r] + sum over k of a[i * ai + k * ak] * b[k][r], for I values of i and V
// vectors of r. b and c have row stride `stride`. If `factor` is null, c is not read.
template <int I, int V>
ROSE_INLINE void tile(const float* a, int64_t ai, int64_t ak, const float* b, int64_t count, int64_t stride,
                      const float* factor, float* c) {
  vf s[I][V];
#pragma GCC unroll 8
  for (int i = 0; i < I; i++)
#pragma GCC unroll 8
    for (int v = 0; v < V; v++)
      s[i][v] = factor ? load(c + i * stride + v * W) * load(factor + v * W) : vf{};
  for (int64_t k = 0; k < count; k++) {
    vf x[V];
#pragma GCC unroll 8
    for (int v = 0; v < V; v++) x[v] = load(b + k * stride + v * W);
#pragma GCC unroll 8
    for (int i = 0; i < I; i++)
#pragma GCC unroll 8
      for (int v = 0; v < V; v++) s[i][v] += a[i * ai + k * ak] * x[v];
  }
#pragma GCC unroll 8
  for (int i = 0; i < I; i++)
#pragma GCC unroll 8
    for (int v = 0; v < V; v++) store(c + i * stride + v * W, s[i][v]);
}

template <int V>
void columns(const float* a, int64_t ai, int64_t ak, int64_t num_i, const float* b, int64_t count, int64_t stride,
             const float* factor, float* c) {
  int64_t i = 0;
  for (; i + 6 <= num_i; i += 6) tile<6, V>(a + i * ai, ai, ak, b, count, stride, factor, c + i * stride);
  for (; i + 2 <= num_i; i += 2) tile<2, V>(a + i * ai, ai, ak, b, count, stride, factor, c + i * stride);
  for (; i < num_i; i++) tile<1, V>(a + i * ai, ai, ak, b, count, stride, factor, c + i * stride);
}

inline void product(const float* a, int64_t ai, int64_t ak, int64_t num_i, const float* b, int64_t count, int64_t stride,
             const float* factor, float* c) {
  int64_t r = 0;
  for (; r + 2 * W <= stride; r += 2 * W)
    columns<2>(a, ai, ak, num_i, b + r, count, stride, factor ? factor + r : nullptr, c + r);
  if (r < stride) columns<1>(a, ai, ak, num_i, b + r, count, stride, factor ? factor + r : nullptr, c + r);
}

ROSE_INLINE void widen_all(const float* in, int64_t n, float* out) { memcpy(out, in, n * sizeof(float)); }
ROSE_INLINE void widen_all(const uint16_t* in, int64_t n, float* out) {
  int64_t i = 0;
  for (; i + W <= n; i += W) store(out + i, load(in + i));
  for (; i < n; i++) out[i] = widen(in[i]);
}

// The running softmax of all rows; `stride` is their number rounded up to whole vectors.
struct Rows {
  int64_t stride;
  int32_t* positions;
  float *q;       // [head_dim, stride]
  float *scores;  // [CHUNK, stride], later the weights
  float *out;     // [value_dim, stride]
  float *best, *total, *shrink;
};

// Update the running softmax with the scores of `count` keys from position `first`, and turn the scores
// into weights.
template <bool IS_MASKED>
void weigh(const Rows& rows, int64_t first, int count, int64_t window) {
  for (int64_t r = 0; r < rows.stride; r += W) {
    vi position = *(const vi*)(rows.positions + r);
    float* s = rows.scores + r;
    vf before = load(rows.best + r), best = before;
    for (int t = 0; t < count; t++, s += rows.stride) {
      vf raw = load(s);
      if (IS_MASKED) {
        vi key = vi{} + (int32_t)(first + t);
        vi is_seen = position >= key;
        if (window > 0) is_seen &= key > position - (int32_t)window;
        raw = is_seen ? raw : splat(MINUS_INFINITY);
        store(s, raw);
      }
      best = max(best, raw);
    }
    vf total = vf{};
    s = rows.scores + r;
    for (int t = 0; t < count; t++, s += rows.stride) {
      vf raw = load(s), w = exp(raw - best);
      if (IS_MASKED) w = raw == splat(MINUS_INFINITY) ? vf{} : w;
      w = raw != raw ? raw : w;  // keep NaN: comparisons and exp would hide it
      store(s, w);
      total += w;
    }
    vf shrink = best == before ? splat(1) : exp(before - best);
    store(rows.shrink + r, shrink);
    store(rows.total + r, load(rows.total + r) * shrink + total);
    store(rows.best + r, best);
  }
}

// Compute the rows of an item for one kv head.
template <class T>
void attend(const Item& item, int64_t head, Scratch& scratch) {
  const AttentionCall& c = item.call;
  int64_t D = c.head_dim, DV = c.value_dim, stride = round_up(item.num_rows, W);
  float* memory = scratch.take(stride * (D + DV + CHUNK + 4) + CHUNK * (D + DV));
  auto take = [&](int64_t n) { return std::exchange(memory, memory + n); };
  Rows rows;
  rows.stride = stride;
  rows.positions = (int32_t*)take(stride);
  rows.best = take(stride);
  rows.total = take(stride);
  rows.shrink = take(stride);
  rows.q = take(stride * D);
  rows.out = take(stride * DV);
  rows.scores = take(stride * CHUNK);
  float *keys = take(CHUNK * D), *values = take(CHUNK * DV);
  std::fill(rows.positions, rows.positions + stride, -1);
  std::fill(rows.best, rows.best + stride, MINUS_INFINITY);
  std::fill(rows.total, rows.total + stride, 0.0f);
  std::fill(rows.out, rows.out + stride * DV, 0.0f);
  for (int64_t r = 0; r < stride; r++) {
    if (r < item.num_rows) rows.positions[r] = (int32_t)item.position(r);
    const float* q = item.query(std::min(r, item.num_rows - 1), head);
    for (int64_t d = 0; d < D; d++) rows.q[d * stride + r] = q[d] * (float)c.scale;
  }
  Chunk<T, CHUNK> chunk;
  for (int64_t first = item.first_key; first < item.last_key; first += CHUNK) {
    chunk.find(item, first);
    float *k = keys, *v = values;
    for (int i = 0; i < chunk.num_pieces; i++) {
      const Piece<T>& piece = chunk.pieces[i];
      widen_all(piece.keys + head * c.block_size * D, piece.count * D, k);
      widen_all(piece.values + head * c.block_size * DV, piece.count * DV, v);
      k += piece.count * D;
      v += piece.count * DV;
    }
    product(keys, D, 1, chunk.count, rows.q, D, stride, nullptr, rows.scores);
    if (c.softcap > 0) cap_scores(rows.scores, chunk.count * stride, (float)c.softcap);
    bool is_masked = first + chunk.count - 1 > item.first_position ||
                     (c.window > 0 && first <= item.last_position - c.window) || stride > item.num_rows;
    if (is_masked) weigh<true>(rows, first, chunk.count, c.window);
    else weigh<false>(rows, first, chunk.count, c.window);
    product(values, 1, DV, DV, rows.scores, chunk.count, stride, rows.shrink, rows.out);
  }
  for (int64_t r = 0; r < item.num_rows; r++)
    item.finish(r, head, rows.best[r], rows.total[r], [&](int64_t d) { return rows.out[d * stride + r]; });
}

}  // namespace many
