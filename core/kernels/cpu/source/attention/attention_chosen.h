// The part of a step's attention that gives the results of chosen tokens.
#pragma once
#include <algorithm>
#include <array>
#include "attention.h"

class ChosenAttention {
 public:
  // `all` for the `count` different tokens in `chosen`: row i of the output is that of chosen[i].
  // Valid until the next call.
  AttentionCall of(const AttentionCall& all, const int64_t* chosen, int64_t count) {
    const AttentionStep& step = *all.step;
    places_.assign(step.num_tokens, -1);
    for (int64_t i = 0; i < count; i++) places_[chosen[i]] = (int32_t)i;
    choose_merges(step);
    choose_items(step);
    step_ = step;
    step_.items = items_.empty() ? nullptr : items_[0].data();
    step_.row_tokens = row_tokens_.data();
    step_.row_slots = row_slots_.data();
    step_.merge_tokens = merge_tokens_.data();
    step_.merge_starts = merge_starts_.data();
    step_.num_items = (int64_t)items_.size();
    step_.num_merges = (int64_t)merge_tokens_.size();
    AttentionCall call = all;
    call.step = &step_;
    call.places = places_.data();
    return call;
  }

 private:
  AttentionStep step_;
  std::vector<std::array<int32_t, 5>> items_;
  std::vector<int32_t> places_, row_tokens_, row_slots_, merge_tokens_, merge_starts_;
  std::vector<int32_t>
      slots_;  // of a partial result of the whole step: its number among those that are left

  bool is_chosen(int32_t token) const { return places_[token] >= 0; }

  void choose_merges(const AttentionStep& step) {
    merge_tokens_.clear();
    merge_starts_.assign(1, 0);
    slots_.assign(step.num_merges ? step.merge_starts[step.num_merges] : 0, -1);
    int32_t count = 0;
    for (int64_t i = 0; i < step.num_merges; i++) {
      if (!is_chosen(step.merge_tokens[i])) continue;
      for (int32_t s = step.merge_starts[i]; s < step.merge_starts[i + 1]; s++) slots_[s] = count++;
      merge_tokens_.push_back(step.merge_tokens[i]);
      merge_starts_.push_back(count);
    }
  }

  void choose_items(const AttentionStep& step) {
    items_.clear();
    row_tokens_.clear();
    row_slots_.clear();
    for (const int32_t *item = step.items, *end = item + step.num_items * 5; item < end;
         item += 5) {
      int32_t first = (int32_t)row_tokens_.size();
      for (int32_t row = item[0]; row < item[0] + item[1]; row++) {
        if (!is_chosen(step.row_tokens[row])) continue;
        int32_t slot = step.row_slots[row];
        row_tokens_.push_back(step.row_tokens[row]);
        row_slots_.push_back(slot < 0 ? slot : slots_[slot]);
      }
      int32_t num_rows = (int32_t)row_tokens_.size() - first;
      if (num_rows) items_.push_back({first, num_rows, item[2], item[3], item[4]});
    }
    std::stable_sort(items_.begin(), items_.end(), [](const auto& a, const auto& b) {
      return work_of(a.data()) > work_of(b.data());
    });
  }
};
