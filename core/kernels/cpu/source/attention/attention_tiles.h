// Attention over bfloat16 or int8 keys and values in tiles of AMX: 16 query rows against 16 keys,
// or 16 dimensions of values.
//
// Queries and weights are rounded to bfloat16, sums are float32. A run of keys is one softmax. All
// rows, of decode and of prefill, use the same products in the same order, and a row of a tile does
// not depend on its other rows. One or two rows over bfloat16 are computed in vectors, which sum in
// the order of the tiles (attention_few.h).
#pragma once
#include "attention_few.h"
#include "attention_tile_int8.h"

#include <optional>

#if defined(ROSE_TILES)
namespace tiles {

constexpr int MAX_ROWS = 512;  // of an item, as in core/attention/cpu_backend.py

inline bool support(const AttentionCall& c) {
  constexpr int64_t MOST =
      INT32_MAX / (32767 * 127) / 64 * 64;  // dimensions whose integer sum fits int32
  bool is_wide = c.type == CacheType::BFLOAT16
                     ? c.head_dim % 32 == 0
                     : c.type == CacheType::INT8 && c.head_dim % 64 == 0 && c.head_dim <= MOST;
  return is_wide && c.value_dim % 32 == 0 && c.block_size % PIECE == 0 &&
         c.step->run_length <= RUN && c.num_heads <= c.num_kv_heads * MAX_ROWS &&
         amx::is_permitted();
}

// The keys and values of a run for one kv head, in pieces.
struct Run {
  int64_t first = 0;              // position of key 0
  int from = 0, to = 0;           // the keys that the item has
  const char* keys[PIECES] = {};  // of a piece without keys: those of another
  const char* values[PIECES] = {};
  const float *key_scales[PIECES] = {}, *value_scales[PIECES] = {};  // int8 only

  Run() {}
  Run(const Item& item, int64_t key, int64_t head) {
    const AttentionCall& c = item.call;
    int64_t length = c.step->run_length, size = size_of(c);
    first = key / length * length;
    from = (int)(key - first);
    to = (int)std::min(length, item.last_key - first);
    for (int i = from / PIECE; i * PIECE < to; i++) {
      int64_t at = first + i * PIECE,
              line = (item.block(at / c.block_size) * c.num_kv_heads + head) * c.block_size;
      int64_t offset = at % c.block_size;
      keys[i] = (const char*)c.keys + line * c.head_dim * size + offset * 4;
      values[i] = (const char*)c.values + (line + offset) * c.value_dim * size;
      if (c.type != CacheType::INT8) continue;
      key_scales[i] = c.key_scales + line + offset;
      value_scales[i] = c.value_scales + line + offset;
    }
    for (int i = 0; i < PIECES; i++)
      if (!keys[i]) keys[i] = keys[from / PIECE];
  }

  // The same run for the next kv head.
  Run next_head(const AttentionCall& c) const {
    Run run = *this;
    for (int i = 0; i < PIECES; i++) {
      run.keys[i] += c.block_size * c.head_dim * size_of(c);
      if (values[i]) run.values[i] += c.block_size * c.value_dim * size_of(c);
      if (key_scales[i]) run.key_scales[i] += c.block_size;
      if (value_scales[i]) run.value_scales[i] += c.block_size;
    }
    return run;
  }

 private:
  static int64_t size_of(const AttentionCall& c) { return c.type == CacheType::INT8 ? 1 : 2; }
};

// The rows of an item for some kv heads, in groups of R tiles; or, unless it is 0, FEW_ROWS rows in
// vectors.
template <int R, bool IS_INT8, int FEW_ROWS>
class Rows {
 public:
  Rows(const Item& item, int64_t first_head, int64_t last_head, Scratch& scratch)
      : item_(item), c_(item.call), first_head_(first_head), num_heads_(last_head - first_head) {
    num_groups_ = (int)((item.num_rows + GROUP - 1) / GROUP);
    padded_ = R == 2 ? num_groups_ * GROUP : item.num_rows;
    int64_t rows = padded_, count = num_heads_ * rows;
    ldo_ = round_up(c_.value_dim + 2, 16);
    query_floats_ = rows * c_.head_dim / 2;
    int64_t size = num_heads_ * query_floats_ + count * ldo_ + 2 * GROUP * ldo_ + 2 * GROUP * RUN +
                   GROUP * RUN / 2 + RUN * c_.value_dim / 2 + 64 +
                   (IS_INT8 ? 2 * RUN + 2 * GROUP * RUN + count : 0);
    queries_ = scratch.take<float>(size);
    totals_ =
        queries_ + num_heads_ * query_floats_ + 14;  // so that the values of a result are aligned
    parts_ = totals_ + count * ldo_;
    scores_ = parts_ + 2 * GROUP * ldo_ + 2;
    weights_ = (uint16_t*)(scores_ + 2 * GROUP * RUN);
    values_ = (char*)(weights_ + GROUP * RUN);
    key_scales_ = (float*)(values_ + RUN * c_.value_dim * 2);  // this and what follows: int8 only
    value_scales_ = key_scales_ + RUN;
    low_scores_ = value_scales_ + RUN;
    factors_ = low_scores_ + 2 * GROUP * RUN;
    std::fill_n(queries_, num_heads_ * query_floats_ + count * ldo_ + 14, 0.0f);
    for (int64_t i = 0; i < count; i++) totals_[i * ldo_] = MINUS_INFINITY;
    read_positions();
    for (int64_t h = 0; h < num_heads_; h++) read_queries(h);
  }

  // Compute a run of a kv head, and prefetch another.
  void compute(const Run& run, int64_t head, const Run* ahead) {
    run_ = &run;
    ahead_ = ahead;
    head_ = head - first_head_;
    if (IS_INT8) copy_scales();
    if (R == 2) gather(run.from / UNIT, (run.to + UNIT - 1) / UNIT);
    int n = 0;
    Span spans[MAX_ROWS / GROUP];
    for (int g = 0; g < num_groups_; g++) {
      Span span = see(g);
      if (span.start < span.end) spans[n++] = span;
    }
    // Scores of a group beside the weights of the one before, then its results beside those of the
    // one before.
    for (int i = 0; i < n + 2; i++) {
      bool has_scores = i < n, has_weights = i > 0 && i <= n, is_old = i > 1;
      auto to_weigh = [&](int r) { weigh_row(spans[i - 1], (i - 1) & 1, r); };
      auto to_fold = [&](int r) { fold_row(spans[i - 2], i & 1, r); };
      Beside weighed(to_weigh, has_weights ? rows_of(spans[i - 1]) : 0,
                     has_scores ? units_of(spans[i]) * key_steps() : 1);
      if (has_scores) score(spans[i], i & 1, i == 0, weighed);
      weighed.rest();
      Beside folded(to_fold, is_old ? rows_of(spans[i - 2]) : 0,
                    has_weights ? c_.value_dim / 32 * units_of(spans[i - 1]) : 1);
      if (has_weights) add(spans[i - 1], (i - 1) & 1, folded);
      folded.rest();
    }
  }

  void put() const {
    for (int64_t h = 0; h < num_heads_; h++)
      for (int64_t r = 0; r < item_.num_rows; r++) item_.put(r, first_head_ + h, total(h, r));
  }

 private:
  static constexpr int64_t GROUP = R * 16;

  // A group, and the keys of the current run that some of its rows see.
  struct Span {
    int group, start, end;
  };

  const Item& item_;
  const AttentionCall& c_;
  int64_t first_head_, num_heads_, padded_, ldo_, query_floats_, head_ = 0;
  int num_groups_;
  float *queries_, *totals_, *parts_, *scores_;
  uint16_t* weights_;
  char* values_;
  float *key_scales_, *value_scales_, *low_scores_, *factors_;
  const Run *run_ = nullptr, *ahead_ = nullptr;
  Ahead few_ahead_;  // FEW_ROWS only
  int64_t positions_[MAX_ROWS], lowest_[MAX_ROWS / GROUP], highest_[MAX_ROWS / GROUP];

  int64_t key_steps() const { return c_.head_dim / 32; }
  static int units_of(const Span& s) { return (s.end + UNIT - 1) / UNIT - s.start / UNIT; }
  int rows_of(const Span& s) const {
    return (int)std::min<int64_t>(GROUP, item_.num_rows - s.group * GROUP);
  }
  float* total(int64_t head, int64_t row) const { return totals_ + (head * padded_ + row) * ldo_; }
  float* part(int which, int64_t r) const { return parts_ + (which * GROUP + r) * ldo_; }

  void read_positions() {
    for (int g = 0; g < num_groups_; g++) {
      lowest_[g] = std::numeric_limits<int64_t>::max();
      highest_[g] = 0;
    }
    for (int64_t r = 0; r < item_.num_rows; r++) {
      positions_[r] = item_.position(r);
      lowest_[r / GROUP] = std::min(lowest_[r / GROUP], positions_[r]);
      highest_[r / GROUP] = std::max(highest_[r / GROUP], positions_[r]);
    }
  }

  void read_queries(int64_t h) {
    vf scale = splat((float)c_.scale);
    for (int64_t r = 0; r < item_.num_rows; r++) {
      const float* from = item_.query(r, first_head_ + h);
      uint16_t* to = (uint16_t*)(queries_ + h * query_floats_) + r * c_.head_dim;
      if constexpr (IS_INT8) {
        int8_t* high = (int8_t*)to;
        factors_[h * padded_ + r] =
            write_query(from, c_.head_dim, (float)c_.scale, high, high + c_.head_dim);
        continue;
      }
      for (int64_t d = 0; d < c_.head_dim; d += W) store(to + d, load(from + d) * scale);
    }
  }

  // The keys of the current run that a row at `low` and one at `high` see.
  int start_of(int64_t low) const {
    return c_.window > 0
               ? (int)std::clamp<int64_t>(low - c_.window + 1 - run_->first, run_->from, RUN)
               : run_->from;
  }
  int end_of(int64_t high) const {
    return (int)std::clamp<int64_t>(high + 1 - run_->first, 0, run_->to);
  }
  Span see(int g) const { return {g, start_of(lowest_[g]), end_of(highest_[g])}; }

  // Copy the values of some units of the current run into tiles, with zeros for tokens that the
  // item does not have.
  void gather(int first, int last) {
    static const ToBFloat16 to_bfloat16;
    constexpr int TOKENS = IS_INT8 ? 4 : 2;  // in a lane
    int64_t row = c_.value_dim * 4, tiles = c_.value_dim / 16;
    for (int i = first * 2; i < last * 2; i++) {
      bool is_there = i * PIECE < run_->to && (i + 1) * PIECE > run_->from;
      char* to = values_of(i / 2) + i % 2 * 512;
      for (int s = 0; s < PIECE; s += TOKENS, to += TOKENS * 32) {
        int left = is_there ? std::clamp(run_->to - i * PIECE - s, 0, TOKENS) : 0;
        vu seen = vu{} + (uint32_t)((1ull << left * 32 / TOKENS) - 1);
        const char* from = is_there ? run_->values[i] + s / TOKENS * row : to;
        if (ahead_ && ahead_->values[i])
          for (int64_t t = 0; t < tiles; t++)
            __builtin_prefetch(ahead_->values[i] + s / TOKENS * row + t * 64, 0, 2);
        for (int64_t t = 0; t < tiles; t++) {
          vu lanes = *(const vu_u*)(from + (is_there ? t * 64 : 0)) & seen;
          if constexpr (IS_INT8)
            to_bfloat16((__m512i)lanes, to + t * 1024, to + t * 1024 + 64);
          else
            *(vu*)(to + t * 1024) = lanes;
        }
      }
    }
  }

  // The scales of the current run, and 0 for tokens that the item does not have.
  void copy_scales() {
    for (int i = run_->from / UNIT * 2; i < (run_->to + UNIT - 1) / UNIT * 2; i++) {
      __mmask16 seen = (__mmask16)(run_->key_scales[i] ? below(run_->to - i * PIECE) : 0);
      _mm512_store_ps(key_scales_ + i * PIECE, _mm512_maskz_loadu_ps(seen, run_->key_scales[i]));
      _mm512_store_ps(value_scales_ + i * PIECE,
                      _mm512_maskz_loadu_ps(seen, run_->value_scales[i]));
      if (!ahead_ || !ahead_->key_scales[i]) continue;
      __builtin_prefetch(ahead_->key_scales[i], 0, 2);
      __builtin_prefetch(ahead_->value_scales[i], 0, 2);
    }
  }

  template <class B>
  void score(const Span& span, int which, bool is_first, B& beside) {
    const char* q =
        (const char*)(queries_ + head_ * query_floats_) + span.group * GROUP * c_.head_dim * 2;
    int64_t ldb = c_.block_size * 4;
    if constexpr (FEW_ROWS > 0) return score_few(span, which, q, ldb);
    float *sums = scores_ + which * GROUP * RUN, *low = low_scores_ + which * GROUP * RUN;
    for (int i = span.start / UNIT * 2; i * PIECE < span.end; i += 2) {
      auto after = [&](int64_t s) {
        if (is_first && ahead_) fetch_keys(i, s, ldb);
        beside.step();
      };
      if constexpr (IS_INT8) {
        for (int k = i; k < i + 2; k++)
          product_int8<R>(q, c_.head_dim * 2, run_->keys[k], ldb, 16 * ldb, c_.head_dim / 64,
                          sums + k * PIECE, low + k * PIECE, RUN,
                          [&](int64_t s) { after(2 * s + k - i); });
      } else {
        product<R>(q, c_.head_dim * 2, run_->keys[i], run_->keys[i + 1], ldb, 16 * ldb,
                   c_.head_dim / 32, sums + i * PIECE, RUN, false, after);
      }
    }
  }

  void score_few(const Span& span, int which, const char* q, int64_t ldb) {
    int first = span.start / UNIT * 2;
    few_ahead_.plan(*run_, ahead_, first, first + units_of(span) * 2, ldb);
    NoSubnormals mode;
    for (int i = first; i * PIECE < span.end;) {
      bool has_four = (i + 2) * PIECE < span.end;
      (has_four ? few_scores<FEW_ROWS, 4>
                : few_scores<FEW_ROWS, 2>)(q, c_.head_dim * 2, run_->keys + i, few_ahead_.keys(i),
                                           ldb, c_.head_dim / 32,
                                           scores_ + which * GROUP * RUN + i * PIECE, RUN);
      i += has_four ? 4 : 2;
    }
  }

  // Prefetch what a step of a product of two pieces reads.
  void fetch_keys(int piece, int64_t step, int64_t ldb) const {
    int first = piece + (IS_INT8 ? (int)step % 2 : 0), last = IS_INT8 ? first + 1 : piece + 2;
    int64_t offset = (IS_INT8 ? step / 2 : step) * 16 * ldb;
    for (int i = first; i < last; i++)
      for (int64_t s = 0; s < 16; s++) __builtin_prefetch(ahead_->keys[i] + offset + s * ldb, 0, 2);
  }

  void weigh_row(const Span& span, int which, int r) {
    int64_t row = span.group * GROUP + r, position = positions_[row];
    float* scores = scores_ + (which * GROUP + r) * RUN;
    int first = span.start / UNIT, last = (span.end + UNIT - 1) / UNIT;
    if constexpr (IS_INT8)
      join_sums(scores, low_scores_ + (which * GROUP + r) * RUN, key_scales_,
                factors_[head_ * padded_ + row], first * 2, last * 2);
    if (c_.softcap > 0) rows::cap(scores, first * 2, last * 2, (float)c_.softcap);
    weigh<IS_INT8>(scores, value_scales_, start_of(position), end_of(position), first, last,
                   part(which, r), weights_ + r * RUN);
  }

  template <class B>
  void add(const Span& span, int which, B& beside) {
    int first = span.start / UNIT, last = first + units_of(span);
    if constexpr (FEW_ROWS > 0) return add_few(first, last, which);
    if (R == 2) return add_units(first, last, false, which, beside);
    for (int u = first; u < last;
         u++) {  // few values at a time, for they are read only once: they stay in the L1 cache
      gather(u, u + 1);
      add_units(u, u + 1, u > first, which, beside);
    }
  }

  void add_few(int first, int last, int which) {
    NoSubnormals mode;
    for (int u = first; u < last; u++) {
      UnitValues unit;
      for (int i = 0; i < 2; i++) unit.values[i] = run_->values[u * 2 + i];
      unit.ahead = few_ahead_.values(u * 2);
      unit.from = std::max(0, run_->from - u * UNIT);
      unit.to = std::min(UNIT, run_->to - u * UNIT);
      int64_t vectors = c_.value_dim / 16;
      for (int64_t t = 0; t < vectors;) {
        bool has_four = t + 4 <= vectors;
        (has_four ? few_values<FEW_ROWS, 4>
                  : few_values<FEW_ROWS, 2>)(weights_ + u * UNIT, RUN, unit, t * 64,
                                             c_.value_dim * 4, part(which, 0) + 2 + t * 16, ldo_,
                                             u > first);
        t += has_four ? 4 : 2;
      }
    }
  }

  template <class B>
  void add_units(int first, int last, bool is_more, int which, B& beside) {
    int64_t unit = c_.value_dim / 16 * 1024;
    for (int64_t t = 0; t < c_.value_dim / 16; t += 2) {
      const char* v = values_of(first) + t * 1024;
      product<R>((const char*)(weights_ + first * UNIT), RUN * 2, v, v + 1024, 64, unit,
                 last - first, part(which, 0) + 2 + t * 16, ldo_, is_more,
                 [&](int64_t) { beside.step(); });
    }
  }

  // Tiles of 16 pairs of tokens and 16 dimensions.
  char* values_of(int unit) const {
    return values_ + (R == 2 ? unit * c_.value_dim / 16 * 1024 : 0);
  }

  void fold_row(const Span& span, int which, int r) {
    fold(total(head_, span.group * GROUP + r), part(which, r), c_.value_dim);
  }
};

// Compute rows for kv heads one after the other, run by run: all kv heads of a block are adjacent
// in memory.
template <int R, bool IS_INT8, int FEW_ROWS = 0>
void attend_heads(const Item& item, int64_t first_head, int64_t last_head, Scratch& scratch) {
  std::optional<amx::Tiles> configured;
  if (FEW_ROWS == 0) configured.emplace((int)std::min<int64_t>(item.num_rows, 16));
  Rows<R, IS_INT8, FEW_ROWS> rows(item, first_head, last_head, scratch);
  int64_t key = item.first_key, length = item.call.step->run_length;
  Run run, next;
  if (key < item.last_key) run = Run(item, key, first_head);
  while (key < item.last_key) {
    int64_t end = std::min((key / length + 1) * length, item.last_key);
    for (int64_t h = first_head; h < last_head; h++) {
      bool is_last = h + 1 == last_head, has_next = !is_last || end < item.last_key;
      if (has_next) next = is_last ? Run(item, end, first_head) : run.next_head(item.call);
      rows.compute(run, h, has_next ? &next : nullptr);
      run = next;
    }
    key = end;
  }
  rows.put();
}

template <bool IS_INT8>
void attend_in(const Item& item, int64_t first_head, int64_t last_head, Scratch& scratch) {
  if (!IS_INT8 && item.num_rows == 1)
    return attend_heads<1, false, 1>(item, first_head, last_head, scratch);
  if (!IS_INT8 && item.num_rows == FEW)
    return attend_heads<1, false, FEW>(item, first_head, last_head, scratch);
  if (item.num_rows <= 16) return attend_heads<1, IS_INT8>(item, first_head, last_head, scratch);
  for (int64_t h = first_head; h < last_head; h++)
    attend_heads<2, IS_INT8>(item, h, h + 1, scratch);
}

inline void attend(const Item& item, int64_t first_head, int64_t last_head, Scratch& scratch) {
  if (item.call.type == CacheType::INT8)
    attend_in<true>(item, first_head, last_head, scratch);
  else
    attend_in<false>(item, first_head, last_head, scratch);
}

}  // namespace tiles
#endif
