// What a decoder layer consists of. These structures mirror core/kernels/cpu/structures.py.
#pragma once
#include "epilogue.h"
#include "linear.h"

struct Norm {
  const float* weight;  // null if there is no norm
  const float* bias;
  int64_t center;
  double eps;
};

struct Matrix {
  int64_t format, epilogue, num_rows, num_columns;
  const char* data;
  const float* scale;
  const float* bias;
  const Matrix* more;   // further rows, or null
  const float* slopes;  // [2] of XIELU, or null
};

// Matrices of one shape that follow each other in memory.
struct Matrices {
  Matrix first;
  int64_t bytes, columns;  // of a matrix; columns of whole panels
};

// The feed-forward block of a mixture: a router chooses experts for each token. `router` and
// `shared_gate` are float32: mixture.cpp has no memory for rows of x in the form of other formats.
struct Mixture {
  Matrix router;                  // a row for each expert
  int64_t per_token, normalises;  // experts of a token; whether their weights add up to 1
  Matrices up, down;              // of the experts
  Matrix shared_up, shared_down;  // an expert of all tokens; without data if there is none
  Matrix
      shared_gate;  // one row whose sigmoid is the weight of that expert; without data, that is 1
  int64_t is_sigmoid;        // scores are sigmoids, not a softmax
  const float* choice_bias;  // [experts] added to the scores for the choice alone, or null
  int64_t num_groups,
      groups_chosen;  // of experts; those of the best groups can be chosen. 0 or 1 group: all can
  double scale;       // of the weights; 0 stands for 1
  int64_t weighs_input;  // weights are those of what experts read, not of what they give
};

// Latent attention: queries, keys and values are products of normalised latents, which are
// `projections` of x. A row of these has the latent of queries, or queries, then that of keys and
// values, then the columns of keys that are rotated and that all heads share. A head of queries or
// keys is `plain_dim` columns and those that are rotated.
struct Latent {
  int64_t query_rank, kv_rank;  // columns of latents; no query_rank: `projections` has queries
  int64_t plain_dim;
  Norm query_norm, kv_norm;
  Matrix query_up;  // to [num_heads, head_dim]
  Matrix kv_up;     // to [num_heads, plain_dim + value_dim]
};

// What changes from step to step. Layers of the same sizes share it.
struct LayerStep {
  int64_t num_tokens, rotated;
  // buffers for intermediate results
  float* normed;  // [num_tokens, hidden_size]
  float*
      projected;    // [num_tokens, all rows of `projections`] queries, keys and values of all heads
  float* query;     // [num_tokens, num_heads, head_dim], null if nothing is done with queries and
                    // keys: see heads.h
  float* key;       // [num_tokens, num_kv_heads, head_dim]
  float* hidden;    // [num_tokens, hidden_size] the residual stream after attention
  float* inner;     // [num_tokens, all rows of `up`, or half as many if its epilogue is gated]
  float* attended;  // [num_tokens, num_heads, value_dim]
  const float* cos;  // [num_tokens, rotated]
  const float* sin;
  const float* x;            // [num_tokens, hidden_size]
  float* y;                  // [num_tokens, hidden_size]; may be x
  const int64_t* positions;  // [num_tokens], if queries have a temperature
  float* expanded;           // [num_tokens, num_heads, plain_dim + value_dim] of Latent
  const float* inputs;       // [num_tokens, input_columns] of all layers, beside x
  int64_t input_columns;
};

// A product whose norm has no weight reads what the norm would.
struct LayerCall {
  Norm first_norm, second_norm, query_norm, key_norm;
  Matrix projections, output, up, down;
  const Mixture* mixture;  // in place of `up` and `down`, or null
  int64_t num_heads, num_kv_heads, head_dim, value_dim, applies_rope;
  int64_t joins_heads;  // whether queries and keys have one norm of all heads, not one of each
  const LayerStep* step;
  Norm post_mixer, post_feed_forward;  // of what is added to the residual stream
  double residual_scale;               // of what is added; 0 stands for 1
  int64_t is_parallel;  // whether the feed-forward reads x as the mixer does, without a second norm
                        // by the first one
  // see heads.h
  int64_t norms_each, norms_rotated;  // whether each head has its own row of a norm's weight;
                                      // whether norms follow RoPE
  double clip;                        // bound of queries, keys and values, or 0
  double temperature;                 // its strength, or 0: see temperature_of
  int64_t temperature_length, temperature_first;
  Norm value_norm;
  double value_scale;       // 0 stands for 1
  int64_t values_are_keys;  // `projections` has no values: they are the keys before norms and RoPE
  int64_t
      reuses_keys;  // `projections` has queries alone; another layer has written keys and values

  const Latent* latent;  // or null
  // y gets the norm of down(activation(up y) * input) for the columns of `inputs` from
  // `first_input` on. Without data: it does not
  Matrix input_up, input_down;
  Norm input_norm;
  int64_t first_input;
  double output_scale;  // of y, or 0; only behind `input_down`, a norm or a factor of what is added
  int64_t gate;         // a gated epilogue of the halves of a row of `up`, which has none, or 0

  float scale_of_added() const { return residual_scale ? (float)residual_scale : 1.0f; }
};

// The columns of a product.
inline int64_t width_of(const Matrix& m) {
  int64_t own = is_gated((int)m.epilogue) ? m.num_rows / 2 : m.num_rows;
  return m.more ? own + width_of(*m.more) : own;
}

// The product of rows of x with a matrix without its further rows.
inline Job job_of(const Matrix& m, const float* x, int64_t num_rows, float* y, int64_t ldy,
                  const float* residual = nullptr) {
  Job job{(int)m.format, (int)m.epilogue, x,       m.num_columns, num_rows, m.num_columns,
          m.num_rows,    m.data,          m.scale, m.bias,        y,        ldy,
          residual};
  job.slopes = m.slopes;
  return job;
}
