// Chunks of keys and values, read in place or, if the layout of the cache is by token, from a copy.
#pragma once
#include "attention.h"
#include "attention_int8.h"

namespace rows {

constexpr int CHUNK = 128;  // keys; chunks begin at multiples of CHUNK in a run
constexpr int VECTORS = CHUNK / W;

// The keys and values of a chunk for one kv head, in lanes.
struct Chunk {
  int64_t first = 0;     // position of lane 0
  int from = 0, to = 0;  // lanes of the keys that the item has; a row may see fewer
  int64_t key_stride = 0, value_stride = 0;  // lanes of a step
  const uint32_t* keys[VECTORS] = {};        // step 0 of each vector of keys
  const float *key_scales[VECTORS] = {},
              *value_scales[VECTORS] = {};  // of each vector of keys; int8 only
  // Step 0 of the values of each piece of `piece_keys` tokens: W, a vector of keys, if they are
  // read in place, else CHUNK.
  const uint32_t* values[VECTORS] = {};
  int piece_keys = CHUNK;
  // The lines of each vector of keys, from the first one on: read in place only. Those of a block
  // with several vectors of keys are divided among them.
  const uint32_t* key_lines[VECTORS] = {};

  int first_vector() const { return from / W; }
  int last_vector() const { return (to + W - 1) / W; }
};

// The keys `from` to `to` of an item that are in the chunk that starts at `first`.
struct Span {
  int64_t first, from, to;
  bool is_empty() const { return from >= to; }
};

// The span that begins with a key: it ends with the chunk, the run or the item.
inline Span span_from(const Item& item, int64_t key) {
  int64_t length = item.call.step->run_length, run = key / length * length,
          first = run + (key - run) / CHUNK * CHUNK;
  return {first, key, std::min({first + CHUNK, run + length, item.last_key})};
}

// Finds the chunks of an item.
template <class L>
class Reader {
 public:
  Reader(const Item& item)
      : item_(item), layout_(item.call.block_size, item.call.head_dim, item.call.value_dim) {
    const AttentionCall& c = item.call;
    key_steps = round_up(c.head_dim, L::PER_LANE) / L::PER_LANE;
    value_size = round_up(c.value_dim, W);
    key_head_ = c.block_size * c.head_dim / L::PER_LANE;
    value_head_ = c.block_size * c.value_dim / L::PER_LANE;
  }

  int64_t key_steps, value_size;  // of a chunk's lanes
  bool is_in_place() const { return layout_.is_by_lane; }

  void find(const Span& span, int64_t head, Chunk& chunk) {
    chunk.first = span.first;
    chunk.from = (int)(span.from - span.first);
    chunk.to = (int)(span.to - span.first);
    if (layout_.is_by_lane)
      point(head, chunk);
    else
      copy(head, chunk);
  }

  // Move a chunk that is read in place to the next kv head.
  void next_head(Chunk& chunk) const {
    for (int v = chunk.first_vector(); v < chunk.last_vector(); v++) {
      chunk.keys[v] += key_head_;
      chunk.key_lines[v] += key_head_;
      chunk.values[v] += value_head_;
      if (!HAS_SCALES) continue;
      chunk.key_scales[v] += item_.call.block_size;
      chunk.value_scales[v] += item_.call.block_size;
    }
  }

 private:
  static constexpr bool HAS_SCALES = std::is_same_v<L, Int8Lanes>;
  const Item& item_;
  Layout<L> layout_;
  int64_t key_head_, value_head_;  // lanes from one kv head to the next

  const typename L::Stored* keys_of(int64_t block, int64_t head) const {
    const AttentionCall& c = item_.call;
    return (const typename L::Stored*)c.keys +
           (item_.block(block) * c.num_kv_heads + head) * c.block_size * c.head_dim;
  }
  const typename L::Stored* values_of(int64_t block, int64_t head) const {
    const AttentionCall& c = item_.call;
    return (const typename L::Stored*)c.values +
           (item_.block(block) * c.num_kv_heads + head) * c.block_size * c.value_dim;
  }

  // The index of a token's scales.
  int64_t place_of(int64_t key, int64_t head) const {
    const AttentionCall& c = item_.call;
    return (item_.block(key / c.block_size) * c.num_kv_heads + head) * c.block_size +
           key % c.block_size;
  }

  void point(int64_t head, Chunk& chunk) const {
    const AttentionCall& c = item_.call;
    constexpr int N = L::PER_LANE;
    chunk.key_stride = c.block_size;
    chunk.value_stride = c.value_dim;
    chunk.piece_keys = W;
    for (int v = chunk.first_vector(); v < chunk.last_vector(); v++) {
      int64_t key = chunk.first + v * W, offset = key % c.block_size;
      const uint32_t* keys = (const uint32_t*)keys_of(key / c.block_size, head);
      chunk.keys[v] = keys + offset;
      chunk.key_lines[v] = keys + offset * key_steps;
      chunk.values[v] =
          (const uint32_t*)values_of(key / c.block_size, head) + offset / N * c.value_dim;
      if (!HAS_SCALES) continue;
      chunk.key_scales[v] = c.key_scales + place_of(key, head);
      chunk.value_scales[v] = c.value_scales + place_of(key, head);
    }
  }

  void copy(int64_t head, Chunk& chunk) const {
    static thread_local std::vector<typename L::Stored> keys, values;
    static thread_local float key_scales[CHUNK], value_scales[CHUNK];
    const AttentionCall& c = item_.call;
    constexpr int N = L::PER_LANE;
    keys.assign(CHUNK * key_steps * N, 0);
    values.assign(CHUNK * value_size, 0);
    for (int t = chunk.from; t < chunk.to; t++) {
      int64_t key = chunk.first + t, offset = key % c.block_size;
      const auto* k = keys_of(key / c.block_size, head);
      const auto* v = values_of(key / c.block_size, head);
      for (int64_t d = 0; d < c.head_dim; d++)
        keys[(d / N * CHUNK + t) * N + d % N] = k[layout_.key(offset, d)];
      for (int64_t d = 0; d < c.value_dim; d++)
        values[(t / N * value_size + d) * N + t % N] = v[layout_.value(offset, d)];
      if (!HAS_SCALES) continue;
      key_scales[t] = c.key_scales[place_of(key, head)];
      value_scales[t] = c.value_scales[place_of(key, head)];
    }
    chunk.key_stride = CHUNK;
    chunk.value_stride = value_size;
    for (int v = 0; v < VECTORS; v++) {
      chunk.keys[v] = (const uint32_t*)keys.data() + v * W;
      chunk.key_scales[v] = key_scales + v * W;
      chunk.value_scales[v] = value_scales + v * W;
    }
    chunk.piece_keys = CHUNK;
    chunk.values[0] = (const uint32_t*)values.data();
  }
};

}  // namespace rows
