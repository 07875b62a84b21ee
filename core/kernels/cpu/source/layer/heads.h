// What is done with queries, keys and values between their product and attention: norms, a bound,
// RoPE, factors.
#pragma once
#include "layer.h"

// Compute the queries of a token in `query` of the step, from its row of `projected`; or its keys
// in `key`.
void finish_queries(const LayerCall& call, int64_t token);
void finish_keys(const LayerCall& call, int64_t token);

// Whether finish_values changes anything.
bool changes_values(const LayerCall& call);

// Change the values of a token where they are, in `projected`. If they are its keys, those must
// have been finished.
void finish_values(const LayerCall& call, int64_t token);

// The first column of values in a row of `projected`.
inline int64_t first_value(const LayerCall& c) {
  return (c.num_heads + (c.values_are_keys ? 0 : c.num_kv_heads)) * c.head_dim;
}

// The first column of the latent of keys and values in a row of `projected`.
inline int64_t first_latent(const LayerCall& c) {
  return c.latent->query_rank ? c.latent->query_rank : c.num_heads * c.head_dim;
}
