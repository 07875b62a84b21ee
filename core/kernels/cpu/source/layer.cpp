// A decoder layer in two calls: the part before attention, and the part after it.
#include "epilogue.h"
#include "exports.h"

// These structures mirror core/kernels/cpu/layer.py.
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
};

struct LayerCall {
  // constant for a layer
  Norm first_norm, second_norm, query_norm, key_norm;
  Matrix projections, output, up, down;
  int64_t num_heads, num_kv_heads, head_dim, value_dim;
  // buffers for intermediate results
  float* normed;     // [num_tokens, hidden_size]
  float* projected;  // [num_tokens, num_rows of `projections`] queries, keys and values of all heads
  float* query;      // [num_tokens, num_heads, head_dim], null if there is neither RoPE nor a query norm
  float* key;        // [num_tokens, num_kv_heads, head_dim]
  float* hidden;     // [num_tokens, hidden_size] the residual stream after attention
  float* inner;      // [num_tokens, num_columns of `down`]
  // set by each call
  int64_t num_tokens, rotated;
  const float* x;         // [num_tokens, hidden_size]
  const float* cos;       // [num_tokens, rotated], null without RoPE
  const float* sin;
  const float* attended;  // [num_tokens, num_heads, value_dim]
  float* y;               // [num_tokens, hidden_size]
};

namespace {

void apply(const Norm& norm, const float* x, int64_t count, int64_t heads, int64_t outer, int64_t inner, int64_t n,
           float* y) {
  rose_norm(x, count, heads, outer, inner, n, norm.center, norm.eps, norm.weight, norm.bias, y);
}

void multiply(const Matrix& m, const float* x, int64_t count, float* y, const float* residual = nullptr) {
  int64_t width = is_gated((int)m.epilogue) ? m.num_rows / 2 : m.num_rows;
  rose_linear((int)m.format, (int)m.epilogue, x, m.num_columns, count, m.num_columns, m.num_rows, m.data, m.scale, m.bias,
              y, width, residual);
}

// Apply the norm and RoPE to queries or keys, if the layer has them.
void finish_heads(const LayerCall& c, const Norm& norm, const float* x, int64_t heads, float* y) {
  int64_t n = c.head_dim, token = c.projections.num_rows;
  if (norm.weight) {
    apply(norm, x, c.num_tokens, heads, token, n, n, y);
    x = y;
    token = heads * n;
  }
  if (c.cos) rose_rotary(x, c.num_tokens, heads, token, n, n, c.rotated, c.cos, c.sin, y);
}

}  // namespace

// Compute queries, keys and values from x.
ROSE_EXPORT void rose_layer_begin(const LayerCall* call) {
  const LayerCall& c = *call;
  int64_t hidden = c.projections.num_columns;
  apply(c.first_norm, c.x, c.num_tokens, 1, hidden, hidden, hidden, c.normed);
  multiply(c.projections, c.normed, c.num_tokens, c.projected);
  if (!c.query) return;
  finish_heads(c, c.query_norm, c.projected, c.num_heads, c.query);
  finish_heads(c, c.key_norm, c.projected + c.num_heads * c.head_dim, c.num_kv_heads, c.key);
}

// Compute y from the output of attention.
ROSE_EXPORT void rose_layer_end(const LayerCall* call) {
  const LayerCall& c = *call;
  int64_t hidden = c.projections.num_columns;
  multiply(c.output, c.attended, c.num_tokens, c.hidden, c.x);
  apply(c.second_norm, c.hidden, c.num_tokens, 1, hidden, hidden, hidden, c.normed);
  multiply(c.up, c.normed, c.num_tokens, c.inner);
  multiply(c.down, c.inner, c.num_tokens, c.y, c.hidden);
}
