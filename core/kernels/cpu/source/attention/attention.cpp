// Causal attention of packed queries over the paged KV cache. core/attention/cpu_backend.py makes
// the plan: work items, each of which has some query rows and one range of KV cache blocks.
//
// The result of a row has the same bits for any division into items: each run of keys, from a
// multiple of the run length on, is computed by itself, and the results of the runs are folded in
// order.
#include "attention_stages.h"
#include "attention_tiles.h"

namespace {

constexpr int FEW = 8;  // maximum rows of an item that is limited by memory bandwidth
constexpr int MANY =
    96;  // rows that are computed at once without tiles: they stay in the CPU cache

// Tasks of equal items per thread; with several, all threads finish at about the same time. Tasks
// limited by memory are few, since memory is read fastest if the heads of a block are read
// together.
constexpr int READING_TASKS = 2, COMPUTING_TASKS = 8;

// Tokens that follow each other in a vector of lanes, or in a block, are written together.
template <class L>
void write_lanes(const AttentionCall& c, int64_t first, int64_t last) {
  using T = typename L::Stored;
  Layout<L> layout(c.block_size, c.head_dim, c.value_dim);
  const int64_t *slots = c.step->slots, together = layout.is_by_lane ? W : c.block_size;
  for (int64_t t = first, count; t < last; t += count) {
    int64_t block = slots[t] / c.block_size, offset = slots[t] % c.block_size;
    for (count = 1;
         t + count < last && slots[t + count] == slots[t] + count && (offset + count) % together;)
      count++;
    for (int64_t h = 0; h < c.num_kv_heads; h++) {
      int64_t line = (block * c.num_kv_heads + h) * c.block_size;
      States from{c.key + t * c.key_token + h * c.key_head,
                  c.value + t * c.value_token + h * c.value_head, c.key_token, c.value_token};
      T *keys = (T*)c.keys + line * c.head_dim, *values = (T*)c.values + line * c.value_dim;
      if constexpr (std::is_same_v<L, Int8Lanes>) {
        write_tokens(layout, offset, count, from, keys, values, c.key_scales + line,
                     c.value_scales + line);
      } else {
        write_tokens(layout, offset, count, from, keys, values);
      }
    }
  }
}

#if defined(ROSE_TILES)
bool uses_tiles(const AttentionCall& c) { return tiles::support(c); }
void attend_in_tiles(const Part& part, Scratch& scratch) {
  tiles::attend(part.item, part.first_head, part.last_head, scratch);
}
void fold_parts(const AttentionCall& c, float* acc, const float* part) {
  (tiles::support(c) ? tiles::fold : fold)(acc, part, c.value_dim);
}
#else
bool uses_tiles(const AttentionCall&) { return false; }
void attend_in_tiles(const Part&, Scratch&) {}
void fold_parts(const AttentionCall& c, float* acc, const float* part) {
  fold(acc, part, c.value_dim);
}
#endif

// Attend a part of the item `of`. `then` is probably computed next by this thread, or null.
template <class L>
void attend(const AttentionCall& c, const int32_t* of, const Part& part, const Part* then) {
  static thread_local Scratch scratch;
  if (uses_tiles(c)) return attend_in_tiles(part, scratch);
  if (part.item.num_rows <= FEW) return rows::attend<L, true>(part, then, scratch);
  int32_t most = (int32_t)std::max<int64_t>(1, MANY / part.item.group);
  for (int64_t h = part.first_head; h < part.last_head; h++)
    for (int32_t row = 0; row < of[1]; row += most) {
      int32_t some[] = {of[0] + row, std::min(most, of[1] - row), of[2], of[3], of[4]};
      rows::attend<L, false>({Item(c, some), h, h + 1}, nullptr, scratch);
    }
}

// Fold the partial results of a token.
void merge(const AttentionCall& c, int64_t i, int64_t head, std::vector<float>& total) {
  int64_t n = c.value_dim + 2;
  auto part = [&](int64_t s) { return c.step->partial + (s * c.num_heads + head) * n; };
  total.assign(n, 0.0f);
  total[0] = MINUS_INFINITY;
  for (int64_t s = c.step->merge_starts[i]; s < c.step->merge_starts[i + 1]; s++)
    fold_parts(c, total.data(), part(s));
  finish(c, c.step->merge_tokens[i], head, total.data());
}

// The tasks of a call: items by kv heads. An item with more than a fair share of the work is
// divided by heads, such as a prefix that many sequences share, or a prompt beside streams. The
// items come in order of their work, the largest first.
class Tasks {
 public:
  Tasks(const AttentionCall& c, int64_t num_threads) : call_(c) {
    int64_t most_rows = 0, total = 0, largest = 0;
    for (int64_t i = 0; i < c.step->num_items; i++) {
      most_rows = std::max<int64_t>(most_rows, item(i)[1]);
      total += work(i);
      largest = std::max(largest, work(i));
    }
    bool is_reading = most_rows * (c.num_heads / c.num_kv_heads) <= FEW;
    int64_t wanted = (is_reading ? READING_TASKS : COMPUTING_TASKS) * num_threads;
    while (num_large_ < c.step->num_items && work(num_large_) * wanted > total) num_large_++;
    if (!num_large_) return;
    int64_t heads = std::max<int64_t>(1, c.num_kv_heads * total / (largest * wanted));  // of a task
    parts_ = (c.num_kv_heads + heads - 1) / heads;
  }

  int64_t count() const { return num_large_ * parts_ + call_.step->num_items - num_large_; }

  // The item of a task.
  const int32_t* item_of(int64_t task) const {
    return item(is_large(task) ? task / parts_ : task - num_large_ * (parts_ - 1));
  }
  Part part_of(int64_t task) const {
    int64_t heads = call_.num_kv_heads, part = is_large(task) ? task % parts_ : 0,
            parts = is_large(task) ? parts_ : 1;
    return {Item(call_, item_of(task)), heads * part / parts, heads * (part + 1) / parts};
  }

 private:
  const AttentionCall& call_;
  int64_t num_large_ = 0, parts_ = 1;

  const int32_t* item(int64_t i) const { return call_.step->items + i * 5; }
  int64_t work(int64_t i) const { return work_of(item(i)); }
  bool is_large(int64_t task) const { return task < num_large_ * parts_; }
};

stage::Kind kind_of(const int32_t* item) {
  return item[1] == 1 ? stage::ATTEND_ONE : stage::ATTEND_MANY;
}

template <class L>
void attend_stages(team::Member& member, const AttentionCall& c) {
  Tasks tasks(c, member.size);
  int64_t count = tasks.count();
  auto attend_part = [&](int64_t i) {
    if (i + member.size >= count) return attend<L>(c, tasks.item_of(i), tasks.part_of(i), nullptr);
    Part then = tasks.part_of(i + member.size);  // threads take tasks in turn
    attend<L>(c, tasks.item_of(i), tasks.part_of(i), &then);
  };
  auto timed_part = [&](int64_t i, int64_t) {
    attend_part(i);
    member.laps.computed(kind_of(tasks.item_of(i)));
  };
  member.laps.begin(count ? kind_of(tasks.item_of(0)) : stage::ATTEND_ONE);
  member.stage(count, timed_part, team::IN_ORDER);  // the longest ones come first
  member.laps.begin(stage::FOLD);
  std::vector<float> total;
  member.stage(c.step->num_merges * c.num_heads,
               [&](int64_t i, int64_t) { merge(c, i / c.num_heads, i % c.num_heads, total); });
}

}  // namespace

void write_to_cache(const AttentionCall& c, int64_t first, int64_t last) {
  switch (c.type) {
    case CacheType::BFLOAT16:
      return write_lanes<BFloat16Lanes>(c, first, last);
    case CacheType::INT8:
      return write_lanes<Int8Lanes>(c, first, last);
    default:
      return write_lanes<Float32Lanes>(c, first, last);
  }
}

void attention_stages(team::Member& member, const AttentionCall& c) {
  switch (c.type) {
    case CacheType::BFLOAT16:
      return attend_stages<BFloat16Lanes>(member, c);
    case CacheType::INT8:
      return attend_stages<Int8Lanes>(member, c);
    default:
      return attend_stages<Float32Lanes>(member, c);
  }
}

void count_attention(StageTimes times, const AttentionCall& c) {
  int64_t of_token = c.head_dim + c.value_dim, size = c.type == CacheType::INT8       ? 1
                                                      : c.type == CacheType::BFLOAT16 ? 2
                                                                                      : 4;
  for (int64_t i = 0; i < c.step->num_items; i++) {
    Item item(c, c.step->items + i * 5);
    int64_t pairs = 0;  // of a row and a key
    for (int64_t r = 0; r < item.num_rows; r++)
      pairs += std::max<int64_t>(std::min(item.position(r) + 1, item.last_key) - item.first_key, 0);
    int64_t keys = std::max<int64_t>(item.last_key - item.first_key, 0);
    times.count(kind_of(c.step->items + i * 5), pairs * c.num_kv_heads * of_token,
                keys * c.num_kv_heads * of_token * size);
  }
}

ROSE_EXPORT void rose_attention(const AttentionCall* call) {
  const AttentionCall& c = *call;
  team::run(false, [&](team::Member& member) {
    runs_stage(member, c.step->num_tokens,
               [&](int64_t first, int64_t last) { write_to_cache(c, first, last); });
    attention_stages(member, c);
  });
}
