// Arguments of the attention kernel, and the parts of its result.
#pragma once
#include "scratch.h"
#include "vec.h"

#include <algorithm>
#include <vector>

constexpr float MINUS_INFINITY = -std::numeric_limits<float>::infinity(), LOG2_E = 1.44269504f;

// The types of keys and values in the cache.
enum class CacheType : int64_t { FLOAT32, BFLOAT16, INT8 };

// Both structures mirror core/kernels/cpu/structures.py. Strides are in elements.
struct AttentionStep {
  const int64_t* slots;         // [num_tokens] block * block_size + offset
  const int32_t* positions;     // [num_tokens]
  const int32_t* block_tables;  // [num_seqs, table_stride]
  const int32_t* items;         // [num_items, 5] first row, rows, sequence, first block, last block
  const int32_t* row_tokens;    // [num_rows] token of a row
  const int32_t*
      row_slots;  // [num_rows] index of a row's partial result, or -1 if its result is final
  const int32_t* merge_tokens;  // [num_merges] tokens with partial results
  const int32_t* merge_starts;  // [num_merges + 1] first partial result of each such token
  float* partial;               // [num_partials, num_heads, value_dim + 2]
  int64_t num_tokens, table_stride, num_items, num_merges;
  int64_t run_length;  // tokens of a run; a multiple of the block size
};

// Rows times blocks of an item of a step.
inline int64_t work_of(const int32_t* item) { return (int64_t)item[1] * (item[4] - item[3]); }

struct AttentionCall {
  const AttentionStep* step;
  // constant for a layer
  void* keys;  // [num_blocks, num_kv_heads, block_size, head_dim] in the order of attention_cache.h
  void* values;         // [num_blocks, num_kv_heads, block_size, value_dim] likewise
  float* key_scales;    // [num_blocks, num_kv_heads, block_size] of int8, else null
  float* value_scales;  // likewise
  CacheType type;
  int64_t block_size, num_heads, num_kv_heads, head_dim, value_dim, window;
  double scale;
  double softcap;      // bound of the scores, or 0: none
  const float* sinks;  // [num_heads] one more score of each head, which has no value; null: none
  // set by each call
  const int32_t* places;  // [num_tokens] row of the output of a token; null: the token's number
  const float* query;
  const float* key;
  const float* value;
  float* output;      // [num_tokens, num_heads, value_dim], or as many rows as `places` has
  uint16_t* rounded;  // in place of output, or null: a token's heads in bfloat16. Then value_dim is
                      // a multiple of W
  int64_t query_token, query_head, key_token, key_head, value_token, value_head, rounded_token;
};

ROSE_INLINE int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// A result of some keys is [base, sum of weights, weighted sum of values...]. The weight of a score
// is 2^(score * LOG2_E - base). Without any visible key the sum of weights is 0.

// 2^n of an integer n <= 0; 0 below -126, and of NaN.
ROSE_INLINE float power_of_two(float n) {
  if (!(n >= -126)) return 0;
  int32_t bits = ((int32_t)n + 127) << 23;
  float power;
  std::memcpy(&power, &bits, 4);
  return power;
}

// How two results with integers as bases become one: the values of each are multiplied by its
// share, a power of two or 0 (times the unit of the weights of an int8 cache).
struct Shares {
  float acc = 1, part = 0;
};
ROSE_INLINE vf folded(vf acc, vf part, const Shares& shares) {
  return multiply_add(acc, splat(shares.acc), part * shares.part);
}

// Fold base and sum of weights of `part` into those of `acc`.
inline Shares fold_weights(float* acc, const float* part) {
  if (part[1] == 0) return {};
  float base = std::max(acc[0], part[0]);
  Shares shares{power_of_two(acc[0] - base), power_of_two(part[0] - base)};
  acc[0] = base;
  acc[1] = acc[1] * shares.acc + part[1] * shares.part;
  return shares;
}

// acc = the result of the keys of both. Always called in the order of the runs: the result has the
// same bits whether one item computed all runs of a row or several did.
inline void fold(float* acc, const float* part, int64_t value_dim) {
  Shares shares = fold_weights(acc, part);
  if (shares.acc == 1 && shares.part == 0)
    return;  // values of keys that the row does not see may be NaN
  int64_t d = 2, end = value_dim + 2;
  for (; d + W <= end; d += W) store(acc + d, folded(load(acc + d), load(part + d), shares));
  for (; d < end; d++) acc[d] = acc[d] * shares.acc + part[d] * shares.part;
}

// y = the weighted mean of the values. A sink takes its share of the weights.
__attribute__((noinline)) inline void finish(const AttentionCall& c, int64_t token, int64_t head,
                                             const float* result) {
  float total = result[1];
  if (c.sinks) total += std::exp2(c.sinks[head] * LOG2_E - result[0]);
  if (c.places) token = c.places[token];
  float share = 1 / total;
  if (c.rounded) {
    uint16_t* y = c.rounded + token * c.rounded_token + head * c.value_dim;
    for (int64_t d = 0; d < c.value_dim; d += W) store_rounded(y + d, load(result + 2 + d) * share);
    return;
  }
  float* y = c.output + (token * c.num_heads + head) * c.value_dim;
  for (int64_t d = 0; d < c.value_dim; d++) y[d] = result[2 + d] * share;
}

// Some query rows and some blocks of keys. For a kv head, row r is query head r % group of token r
// / group.
struct Item {
  const AttentionCall& call;
  int64_t first_row, group, num_rows, sequence, first_key, last_key;

  Item(const AttentionCall& c, const int32_t* item) : call(c) {
    first_row = item[0];
    group = c.num_heads / c.num_kv_heads;
    num_rows = item[1] * group;
    sequence = item[2];
    int64_t last_position = 0;
    for (int64_t r = 0; r < num_rows; r += group)
      last_position = std::max(last_position, position(r));
    first_key = item[3] * c.block_size;
    last_key = std::min(item[4] * c.block_size, last_position + 1);
  }

  int64_t token(int64_t r) const { return call.step->row_tokens[first_row + r / group]; }
  int64_t position(int64_t r) const { return call.step->positions[token(r)]; }
  int64_t head(int64_t r, int64_t kv_head) const { return kv_head * group + r % group; }
  int32_t block(int64_t i) const {
    return call.step->block_tables[sequence * call.step->table_stride + i];
  }

  const float* query(int64_t r, int64_t kv_head) const {
    return call.query + token(r) * call.query_token + head(r, kv_head) * call.query_head;
  }

  // Store the result of a row: final, or partial if other items have keys of the row.
  void put(int64_t r, int64_t kv_head, const float* result) const {
    int64_t slot = call.step->row_slots[first_row + r / group], n = call.value_dim + 2;
    if (slot < 0)
      finish(call, token(r), head(r, kv_head), result);
    else
      std::copy_n(result, n, call.step->partial + (slot * call.num_heads + head(r, kv_head)) * n);
  }
};

// An item for some kv heads.
struct Part {
  Item item;
  int64_t first_head, last_head;
};
