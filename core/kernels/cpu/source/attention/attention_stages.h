// Attention as stages of a team. attention.cpp has them.
#pragma once
#include "attention.h"
#include "team.h"

// Write the keys and values of tokens `first` to `last` of the step to the cache.
void write_to_cache(const AttentionCall& call, int64_t first, int64_t last);

// f(first, last) for runs of tokens: of 16, as a block of the cache, or of fewer if there would be
// few runs.
template <class F>
void runs_stage(team::Member& member, int64_t num_tokens, F f) {
  int64_t length = std::clamp<int64_t>(num_tokens / (4 * member.size), 1, 16);
  member.stage((num_tokens + length - 1) / length,
               [&](int64_t i, int64_t) { f(i * length, std::min((i + 1) * length, num_tokens)); });
}

// Attend. All tokens must have been written in earlier stages: a sequence may read what another one
// writes.
void attention_stages(team::Member& member, const AttentionCall& call);

// Count what attention multiplies and reads.
void count_attention(StageTimes times, const AttentionCall& call);
