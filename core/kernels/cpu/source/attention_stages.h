// Attention as stages of a team. attention.cpp has them.
#pragma once
#include "attention.h"
#include "team.h"

// Write the key and value of a token of the step to the cache.
void write_to_cache(const AttentionCall& call, int64_t token);

// Attend. All tokens must have been written in earlier stages: a sequence may read what another one writes.
void attention_stages(team::Member& member, const AttentionCall& call);
