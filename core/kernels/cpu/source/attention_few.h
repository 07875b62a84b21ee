// Attention of few rows (decode), limited by memory bandwidth: keys and values are read once, in memory
// order. All kv heads of a block are adjacent in memory, so each chunk is processed head by head.
#pragma once
#include "attention.h"

namespace few {

constexpr int CHUNK = 32;  // keys; the L1 cache holds this chunk and the prefetched one

// Load 2 * W consecutive values into two vectors, in the cheapest order for the type. `place` maps an
// index of the row to its position in that order.
ROSE_INLINE void load_pair(const float* p, vf& a, vf& b) {
  a = load(p);
  b = load(p + W);
}
ROSE_INLINE void load_pair(const uint16_t* p, vf& a, vf& b) {
  vu u = *(const vu_u*)p;
  a = (vf)(u << 16);
  b = (vf)(u & 0xffff0000u);
}
template <class T>
ROSE_INLINE int64_t place(int64_t d) {
  return sizeof(T) == 4 ? d : d / (2 * W) * (2 * W) + d % 2 * W + d % (2 * W) / 2;
}

// A row's running softmax, for one kv head.
struct Row {
  int64_t position;
  float best, total;
  const float* q;  // [head_dim], in the order of `place`, padded to whole pairs of vectors
  float* out;      // [value_dim], likewise
};

// A chunk of keys for one kv head, and the memory to prefetch for the next unit. A line is the key or the
// value of one token; its length is a multiple of 2 * W.
template <class T>
struct Unit {
  const Chunk<T, CHUNK>& chunk;
  const Chunk<T, CHUNK>& next;
  int64_t key_offset, value_offset;            // from the lines of kv head 0
  int64_t next_key_offset, next_value_offset;
  int64_t key_size, value_size, window;
  bool fetches;

  // Prefetch lines t to t + n of a piece.
  void fetch_keys(int piece, int t, int n) const {
    if (fetches && piece < next.num_pieces)
      fetch(next.pieces[piece].keys + next_key_offset + t * key_size, n * key_size);
  }
  void fetch_values(int piece, int t, int n) const {
    if (fetches && piece < next.num_pieces)
      fetch(next.pieces[piece].values + next_value_offset + t * value_size, n * value_size);
  }
  static void fetch(const T* line, int64_t n) {
    for (int64_t d = 0; d < n; d += 64 / (int64_t)sizeof(T)) __builtin_prefetch(line + d);
  }
};

// scores[r][i] = rows[r].q . k[i], for R rows and W / R consecutive keys. Keys are read one after another,
// which suits the hardware prefetcher.
template <class T, int R>
ROSE_INLINE void score_some(int64_t n, const Row* rows, const T* k, float (*scores)[CHUNK]) {
  constexpr int KEYS = W / R;
  vf a[W];
#pragma GCC unroll 16
  for (int i = 0; i < KEYS; i++) {
    vf even[R], odd[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; r++) even[r] = odd[r] = vf{};
    for (int64_t d = 0; d < n; d += 2 * W) {
      vf k0, k1;
      load_pair(k + i * n + d, k0, k1);
#pragma GCC unroll 8
      for (int r = 0; r < R; r++) {
        even[r] += k0 * load(rows[r].q + d);
        odd[r] += k1 * load(rows[r].q + d + W);
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; r++) a[r * KEYS + i] = even[r] + odd[r];
  }
  vf all = sums(a);
  for (int r = 0; r < R; r++) memcpy(scores[r], (const float*)&all + r * KEYS, KEYS * sizeof(float));
}

// The same as score_some for one key.
template <class T, int R>
ROSE_INLINE void score_one(int64_t n, const Row* rows, const T* k, float (*scores)[CHUNK]) {
  for (int r = 0; r < R; r++) {
    vf a = vf{};
    for (int64_t d = 0; d < n; d += 2 * W) {
      vf k0, k1;
      load_pair(k + d, k0, k1);
      a += k0 * load(rows[r].q + d);
      a += k1 * load(rows[r].q + d + W);
    }
    scores[r][0] = sum(a);
  }
}

template <class T, int R>
void score(const Unit<T>& unit, const Row* rows, float (*scores)[CHUNK]) {
  constexpr int KEYS = W / R;
  int64_t n = unit.key_size;
  for (int i = 0, at = 0; i < unit.chunk.num_pieces; i++) {
    const Piece<T>& piece = unit.chunk.pieces[i];
    const T* k = piece.keys + unit.key_offset;
    auto to = [&](int t) { return (float(*)[CHUNK])(scores[0] + at + t); };
    int t = 0;
    // some of these slots may be unused: `weigh` overwrites their scores
    for (; t < piece.count && t + KEYS <= piece.room && at + t + KEYS <= CHUNK; t += KEYS) {
      unit.fetch_keys(i, t, KEYS);
      score_some<T, R>(n, rows, k + t * n, to(t));
    }
    for (; t < piece.count; t++) score_one<T, R>(n, rows, k + t * n, to(t));
    at += piece.count;
  }
}

// Update a row's running softmax with the scores s of a chunk, and turn the scores into weights.
template <class T>
void weigh(const Unit<T>& unit, Row& row, float* s) {
  int64_t first = unit.chunk.first, window = unit.window;
  int end = (int)std::max<int64_t>(0, std::min<int64_t>(unit.chunk.count, row.position + 1 - first));
  int start = window > 0 ? (int)std::min<int64_t>(end, std::max<int64_t>(0, row.position - window + 1 - first)) : 0;
  int n = (int)round_up(unit.chunk.count, W);
  for (int t = 0; t < start; t++) s[t] = MINUS_INFINITY;
  for (int t = end; t < n; t++) s[t] = MINUS_INFINITY;
  vf high = splat(row.best);
  for (int t = 0; t < n; t += W) high = max(high, load(s + t));
  float best = largest(high);
  vf all = vf{};
  for (int t = 0; t < n; t += W) {
    vf raw = load(s + t), w = exp(raw - best);
    w = raw == splat(MINUS_INFINITY) ? vf{} : w;
    w = raw != raw ? raw : w;  // keep NaN: comparisons and exp would hide it
    store(s + t, w);
    all += w;
  }
  if (best > row.best) {
    float shrink = std::exp(row.best - best);
    row.total *= shrink;
    for (int64_t d = 0; d < unit.value_size; d += 2 * W) {
      store(row.out + d, load(row.out + d) * shrink);
      store(row.out + d + W, load(row.out + d + W) * shrink);
    }
    row.best = best;
  }
  row.total += sum(all);
}

// rows[r].out[d...] += sum over t of w[r][t] * v[t], for R rows, `count` values with stride `size`, and PAIRS
// pairs of vectors.
template <class T, int R, int PAIRS>
ROSE_INLINE void add_some(const Row* rows, const float* w, const T* v, int count, int64_t size, int64_t d) {
  vf a[R][2 * PAIRS];
#pragma GCC unroll 8
  for (int r = 0; r < R; r++)
#pragma GCC unroll 8
    for (int i = 0; i < 2 * PAIRS; i++) a[r][i] = load(rows[r].out + d + i * W);
  for (int t = 0; t < count; t++) {
#pragma GCC unroll 8
    for (int p = 0; p < PAIRS; p++) {
      vf v0, v1;
      load_pair(v + t * size + d + p * 2 * W, v0, v1);
#pragma GCC unroll 8
      for (int r = 0; r < R; r++) {
        a[r][2 * p] += w[r * CHUNK + t] * v0;
        a[r][2 * p + 1] += w[r * CHUNK + t] * v1;
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; r++)
#pragma GCC unroll 8
    for (int i = 0; i < 2 * PAIRS; i++) store(rows[r].out + d + i * W, a[r][i]);
}

// If the sums of a row do not fit into registers, 4 values are processed at a time, so that memory is read
// nearly in order.
template <class T, int R>
void add(const Unit<T>& unit, const Row* rows, const float (*weights)[CHUNK]) {
  constexpr int PAIRS = 4 / R, TOGETHER = PAIRS * 2 * W;
  int64_t size = unit.value_size;
  int most = size <= TOGETHER ? CHUNK : 4;
  const float* w = weights[0];
  for (int i = 0; i < unit.chunk.num_pieces; i++) {
    const T* v = unit.chunk.pieces[i].values + unit.value_offset;
    for (int t = 0, count = unit.chunk.pieces[i].count; t < count; t += most) {
      int n = std::min(most, count - t);
      unit.fetch_values(i, t, n);
      int64_t d = 0;
      for (; d + TOGETHER <= size; d += TOGETHER) add_some<T, R, PAIRS>(rows, w + t, v + t * size, n, size, d);
      for (; d < size; d += 2 * W) add_some<T, R, 1>(rows, w + t, v + t * size, n, size, d);
    }
    w += unit.chunk.pieces[i].count;
  }
}

template <class T, int R, bool IS_CAPPED>
void some_rows(const Unit<T>& unit, Row* rows, float softcap) {
  float scores[R][CHUNK];
  score<T, R>(unit, rows, scores);
  if (IS_CAPPED) cap_scores(scores[0], R * CHUNK, softcap);
  for (int r = 0; r < R; r++) weigh(unit, rows[r], scores[r]);
  add<T, R>(unit, rows, scores);
}

template <class T, bool IS_CAPPED>
void all_rows(Unit<T> unit, Row* rows, int64_t count, float softcap) {
  while (count > 0) {
    int64_t n = count >= 4 ? 4 : count >= 2 ? 2 : 1;
    if (n == 4) some_rows<T, 4, IS_CAPPED>(unit, rows, softcap);
    else if (n == 2) some_rows<T, 2, IS_CAPPED>(unit, rows, softcap);
    else some_rows<T, 1, IS_CAPPED>(unit, rows, softcap);
    unit.fetches = false;  // prefetch only once
    rows += n;
    count -= n;
  }
}

// Copies of a chunk's lines for one kv head, padded with zeros to a multiple of 2 * W.
template <class T>
struct Copy {
  std::vector<T> keys, values;
  Chunk<T, CHUNK> chunk;

  void take(const AttentionCall& c, const Chunk<T, CHUNK>& from, int64_t head, int64_t key_size, int64_t value_size) {
    keys.assign(CHUNK * key_size, 0);
    values.assign(CHUNK * value_size, 0);
    int t = 0;
    for (int i = 0; i < from.num_pieces; i++)
      for (int j = 0; j < from.pieces[i].count; j++, t++) {
        std::copy_n(from.pieces[i].keys + (head * c.block_size + j) * c.head_dim, c.head_dim, &keys[t * key_size]);
        std::copy_n(from.pieces[i].values + (head * c.block_size + j) * c.value_dim, c.value_dim, &values[t * value_size]);
      }
    chunk.first = from.first;
    chunk.count = from.count;
    chunk.num_pieces = 1;
    chunk.pieces[0] = {keys.data(), values.data(), from.count, CHUNK};
  }
};

// Compute the rows of an item for kv heads first_head to last_head.
template <class T, bool IS_CAPPED>
void attend(const Item& item, int64_t first_head, int64_t last_head, Scratch& scratch) {
  const AttentionCall& c = item.call;
  int64_t D = round_up(c.head_dim, 2 * W), DV = round_up(c.value_dim, 2 * W), heads = last_head - first_head;
  float* memory = scratch.take(heads * item.num_rows * (D + DV));
  std::fill(memory, memory + heads * item.num_rows * (D + DV), 0.0f);
  static thread_local std::vector<Row> rows;
  rows.clear();
  for (int64_t h = first_head; h < last_head; h++)
    for (int64_t r = 0; r < item.num_rows; r++, memory += D + DV) {
      const float* q = item.query(r, h);
      for (int64_t d = 0; d < c.head_dim; d++) memory[place<T>(d)] = q[d] * (float)c.scale;
      rows.push_back({item.position(r), MINUS_INFINITY, 0, memory, memory + D});
    }
  float softcap = (float)c.softcap;
  bool is_whole = D == c.head_dim && DV == c.value_dim;
  int64_t key_head = c.block_size * c.head_dim, value_head = c.block_size * c.value_dim;
  static thread_local Copy<T> copy;
  Chunk<T, CHUNK> chunks[2];
  chunks[0].find(item, item.first_key);
  for (int i = 0; chunks[i].count > 0; i ^= 1) {
    Chunk<T, CHUNK>& next = chunks[i ^ 1];
    next.find(item, chunks[i].first + CHUNK);
    for (int64_t h = first_head; h < last_head; h++) {
      Row* some = rows.data() + (h - first_head) * item.num_rows;
      if (is_whole) {
        bool is_last = h + 1 == last_head;
        int64_t next_head = is_last ? first_head : h + 1;
        Unit<T> unit{chunks[i], is_last ? next : chunks[i], h * key_head, h * value_head, next_head * key_head,
                     next_head * value_head, D, DV, c.window, true};
        all_rows<T, IS_CAPPED>(unit, some, item.num_rows, softcap);
      } else {
        copy.take(c, chunks[i], h, D, DV);
        Unit<T> unit{copy.chunk, copy.chunk, 0, 0, 0, 0, D, DV, c.window, false};
        all_rows<T, IS_CAPPED>(unit, some, item.num_rows, softcap);
      }
    }
  }
  const Row* row = rows.data();
  for (int64_t h = first_head; h < last_head; h++)
    for (int64_t r = 0; r < item.num_rows; r++, row++)
      item.finish(r, h, row->best, row->total, [&](int64_t d) { return row->out[place<T>(d)]; });
}

}  // namespace few
