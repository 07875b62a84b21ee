// What a language model has before and after its decoder layers. These structures mirror
// core/kernels/cpu/structures.py.
#pragma once
#include "layer.h"

// Rows that are looked up by their number: of a packed matrix, or one after the other as float32,
// bfloat16 or float16.
struct Table {
  int64_t format, is_packed;
  const char* data;    // null if there is none
  const float* scale;  // of a packed matrix
  double factor;       // of every value
};

constexpr int64_t ANGLES = 256;  // positions whose angles follow each other in memory

// The angles of one kind of RoPE.
struct Angles {
  int64_t rotated;              // columns
  const float* const* cosines;  // of ANGLES positions each: [ANGLES, rotated]
  const float* const* sines;
  float *cos, *sin;  // [num_tokens, rotated] for the layers
};

struct ModelCall {
  Table tokens, positions;
  Norm norm;
  Matrix head;
  int64_t hidden;  // columns of x
  // what changes from step to step
  int64_t num_tokens, num_logits;
  const int64_t* ids;     // [num_tokens]
  const int64_t* places;  // [num_tokens] their positions
  const int64_t* chosen;  // [num_logits] the tokens that get logits
  const Angles* angles;   // [num_angles]
  int64_t num_angles;
  float* x;       // [num_tokens, hidden] for the layers, and what they give: see has_chosen_rows
  float* normed;  // [num_logits, hidden]
  float* logits;  // [num_logits, logits_stride], or null
  int64_t logits_stride;
  int64_t* best;  // in place of logits, or null: [num_logits] the best tokens (see best.h)
  // what is the same in every step again
  Norm embedding_norm;  // of rows of `tokens`
  // `inputs` of layers: rows of a table, and the norm of each layer's part of a product of x.
  // Without data: there are none
  Table input_table;
  Matrix input_projection;
  Norm input_norm;
  int64_t input_size;  // columns of a layer
  float* inputs;       // [num_tokens, columns of all layers]
  double logit_cap;    // logits become cap * tanh(logit / cap), which the best token does not need;
                       // 0: they stay
};

// Whether the last layer gives rows of the chosen tokens alone, one after the other. Others get no
// logits, and of the last layer only their keys and values are read.
inline bool has_chosen_rows(const ModelCall& call) { return call.num_logits < call.num_tokens; }

// Bytes that `before_layers` or `after_layers` prepares.
int64_t prepared_bytes(const ModelCall& call);

int64_t num_multiplications(const ModelCall& call);

// x, the angles and the inputs of layers of all tokens. `prepared` is aligned to a cache line.
void before_layers(team::Member& member, const ModelCall& call, char* prepared);

// Logits or best tokens. `prepared` likewise.
void after_layers(team::Member& member, const ModelCall& call, char* prepared);
