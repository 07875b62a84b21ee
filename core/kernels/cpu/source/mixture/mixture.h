// The feed-forward block of a mixture, as stages of a team. mixture.cpp has them.
#pragma once
#include "layer.h"
#include "team.h"

// Bytes of memory for so many tokens.
int64_t mixture_bytes(const Mixture& mixture, int64_t num_tokens);

// Multiplications of a token.
int64_t mixture_multiplications(const Mixture& mixture);

// Count what its stages multiply.
void count_mixture(StageTimes times, const Mixture& mixture, int64_t num_tokens);

// y = residual + mixture(x), in rows of hidden_size values. residual may be null. x must have been
// computed in an earlier stage. `memory` is aligned to a cache line. `ends` has a number for each
// expert, which nothing else writes in the region: a thread that comes late reads from them how
// many tiles the stages had.
void mixture_stages(team::Member& member, const Mixture& mixture, const float* x,
                    int64_t num_tokens, const float* residual, float* y, int64_t* ends,
                    char* memory);
