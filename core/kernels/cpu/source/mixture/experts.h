// Which rows of a product belong to which expert of a mixture, and the sum of a token's rows.
#pragma once
#include "vec.h"

// Sort the choices of tokens by expert, in the order of tokens for each expert. chosen is
// [tokens, per_token]. The rows of expert e end before ends[e]; row r is that of token sources[r],
// and choice c has row places[c]. A choice that is no expert has the place -1; sources has zeros at
// its end for these.
void sort_by_expert(const int64_t* chosen, int64_t tokens, int64_t per_token, int64_t num_experts,
                    int64_t* ends, int64_t* sources, int64_t* places);

// y = base + sum over k of weights[k] * rows[places[k]], in the order of k. A place of -1 adds
// nothing. Rows have n values. base may be null, and may be y.
void add_experts(const float* rows, const int64_t* places, const float* weights, int64_t per_token,
                 int64_t n, const float* base, float* y);
