// Declarations shared by few::attend and many::attend.
#pragma once
#include "vec.h"

#include <algorithm>
#include <utility>
#include <vector>

constexpr float MINUS_INFINITY = -std::numeric_limits<float>::infinity();

// Both structures mirror core/kernels/cpu/attention.py. Strides are in elements.
struct AttentionStep {
  const int64_t* slots;        // [num_tokens] block * block_size + offset
  const int32_t* positions;    // [num_tokens]
  const int32_t* block_tables; // [num_seqs, table_stride]
  const int32_t* items;        // [num_items, 5] first row, rows, sequence, first block, last block
  const int32_t* row_tokens;   // [num_rows] token of a row
  const int32_t* row_slots;    // [num_rows] index of a row's partial result, or -1 if its result is final
  const int32_t* merge_tokens; // [num_merges] tokens with partial results
  const int32_t* merge_starts; // [num_merges + 1] first partial result of each such token
  float* partial;              // [num_partials, num_heads, value_dim + 2]
  int64_t num_tokens, table_stride, num_items, num_merges;
};

struct AttentionCall {
  const AttentionStep* step;
  // constant for a layer
  void* keys;    // [num_blocks, num_kv_heads, block_size, head_dim]
  void* values;  // [num_blocks, num_kv_heads, block_size, value_dim]
  int64_t is_bfloat16, block_size, num_heads, num_kv_heads, head_dim, value_dim, window;
  double scale;
  double softcap;      // bound of the scores, or 0: none
  const float* sinks;  // [num_heads] one more score of each head, which has no value; null: none
  // set by each call
  const float* query;
  const float* key;
  const float* value;
  float* output;  // [num_tokens, num_heads, value_dim]
  int64_t query_token, query_head, key_token, key_head, value_token, value_head;
};

struct Scratch {
  std::vector<float> memory;
  float* take(size_t n) {
    if (memory.size() < n + 16) memory.resize(n + 16);
    return (float*)(((uintptr_t)memory.data() + 63) & ~(uintptr_t)63);
  }
};

ROSE_INLINE int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

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

// Bound `count` scores, a multiple of W. What is no number stays none.
// Not inlined: the loops of layers without a cap stay as they are.
__attribute__((noinline)) inline void cap_scores(float* scores, int64_t count, float softcap) {
  for (int64_t i = 0; i < count; i += W) {
    vf raw = load(scores + i);
    store(scores + i, raw != raw ? raw : softcap * tanh_exact(raw / softcap));
  }
}

// Some query rows and one run of keys. For a kv head, row r is query head r % group of token r / group.
struct Item {
  const AttentionCall& call;
  int64_t first_row, num_tokens, group, num_rows, sequence, first_key, last_key, first_position, last_position;

  Item(const AttentionCall& c, const int32_t* item) : call(c) {
    first_row = item[0];
    num_tokens = item[1];
    group = c.num_heads / c.num_kv_heads;
    num_rows = num_tokens * group;
    sequence = item[2];
    first_position = last_position = position(0);
    for (int64_t r = 0; r < num_rows; r += group) {
      first_position = std::min(first_position, position(r));
      last_position = std::max(last_position, position(r));
    }
    first_key = item[3] * c.block_size;
    last_key = std::min(item[4] * c.block_size, last_position + 1);
  }

  int64_t token(int64_t r) const { return call.step->row_tokens[first_row + r / group]; }
  int64_t position(int64_t r) const { return call.step->positions[token(r)]; }

  const float* query(int64_t r, int64_t kv_head) const {
    return call.query + token(r) * call.query_token + (kv_head * group + r % group) * call.query_head;
  }

  // Store a row's result: its largest score, the sum of its weights, and the weighted sum of values out(d).
  template <class Out>
  void finish(int64_t r, int64_t kv_head, float best, float total, Out out) const {
    int64_t head = kv_head * group + r % group, slot = call.step->row_slots[first_row + r / group], n = call.value_dim;
    if (slot < 0) {
      float* y = call.output + (token(r) * call.num_heads + head) * n;
      if (call.sinks) total += std::exp(call.sinks[head] - best);
      for (int64_t d = 0; d < n; d++) y[d] = out(d) / total;
    } else {
      float* y = call.step->partial + (slot * call.num_heads + head) * (n + 2);
      y[0] = best;
      y[1] = total;
      for (int64_t d = 0; d < n; d++) y[2 + d] = out(d);
    }
  }
};

// Consecutive keys and values of one block, for kv head 0.
template <class T>
struct Piece {
  const T* keys;
  const T* values;
  int count;
  int room;  // slots from the first key to the end of the block, used or not; at most SIZE of the chunk
};

// Up to SIZE consecutive keys of a sequence. The running softmax is updated once per chunk.
template <class T, int SIZE>
struct Chunk {
  int64_t first;  // position of the first key
  int count, num_pieces;
  Piece<T> pieces[SIZE];

  void find(const Item& item, int64_t from) {
    const AttentionCall& c = item.call;
    first = from;
    count = (int)std::max<int64_t>(0, std::min<int64_t>(SIZE, item.last_key - from));
    num_pieces = 0;
    const int32_t* table = c.step->block_tables + item.sequence * c.step->table_stride;
    int64_t block = from / c.block_size, offset = from % c.block_size;
    for (int64_t left = count; left > 0; block++, offset = 0) {
      int64_t line = (int64_t)table[block] * c.num_kv_heads * c.block_size + offset, room = c.block_size - offset;
      int64_t n = std::min(left, room);
      pieces[num_pieces++] = {(const T*)c.keys + line * c.head_dim, (const T*)c.values + line * c.value_dim, (int)n,
                              (int)std::min<int64_t>(room, SIZE)};
      left -= n;
    }
  }
};
