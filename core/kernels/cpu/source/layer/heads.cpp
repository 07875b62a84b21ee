// See heads.h.
#include "heads.h"

#include "elementwise.h"

#include <algorithm>

namespace {

// y = x within -bound and bound. NaN stays.
void clip_row(const float* x, int64_t n, float bound, float* y) {
  for (int64_t i = 0; i < n; i++) y[i] = x[i] > bound ? bound : x[i] < -bound ? -bound : x[i];
}

void scale_row(float* x, int64_t n, float factor) {
  for (int64_t i = 0; i < n; i++) x[i] *= factor;
}

void apply(const Norm& norm, const float* x, int64_t n, float* y, int64_t first = 0) {
  norm_row(x, n, norm.center, (float)norm.eps, norm.weight + first,
           norm.bias ? norm.bias + first : nullptr, y);
}

// Norms of heads of n values: one of all, or one of each by its own row of the weight or by the
// same.
void normalise(const LayerCall& c, const Norm& norm, int64_t heads, const float* x, float* y) {
  int64_t n = c.head_dim;
  if (c.joins_heads) return apply(norm, x, heads * n, y);
  for (int64_t h = 0; h < heads; h++)
    apply(norm, x + h * n, n, y + h * n, c.norms_each ? h * n : 0);
}

void rotate(const LayerCall& c, int64_t t, const float* x, int64_t n, float* y) {
  const LayerStep& s = *c.step;
  rotate_head(x, n, s.rotated, s.cos + t * s.rotated, s.sin + t * s.rotated, y);
}

// y = heads of x: norms and the bound, then RoPE; or norms after RoPE.
void finish_heads(const LayerCall& c, int64_t t, const Norm& norm, int64_t heads, const float* x,
                  float* y) {
  int64_t n = c.head_dim;
  const float* read = x;
  if (norm.weight && !c.norms_rotated) normalise(c, norm, heads, read, y), read = y;
  if (c.clip) clip_row(read, heads * n, (float)c.clip, y), read = y;
  if (c.applies_rope) {
    for (int64_t h = 0; h < heads; h++) rotate(c, t, read + h * n, n, y + h * n);
    read = y;
  }
  if (norm.weight && c.norms_rotated) normalise(c, norm, heads, read, y), read = y;
  if (read == x) std::copy_n(x, heads * n, y);
}

// The factor of queries at a position: 1 + strength * log(1 + floor((position + first) / length)).
float temperature_of(const LayerCall& c, int64_t position) {
  return 1 + (float)c.temperature *
                 std::log1p((float)((position + c.temperature_first) / c.temperature_length));
}

const float* row_of(const LayerCall& c, int64_t t) {
  return c.step->projected + t * width_of(c.projections);
}

// Rotate the last columns of heads. Their products are in `query`, or in `projected`.
void finish_latent_queries(const LayerCall& c, int64_t t) {
  int64_t n = c.head_dim, plain = c.latent->plain_dim;
  float* y = c.step->query + t * c.num_heads * n;
  if (!c.latent->query_rank) std::copy_n(row_of(c, t), c.num_heads * n, y);
  for (int64_t h = 0; h < c.num_heads; h++, y += n) rotate(c, t, y + plain, n - plain, y + plain);
}

void finish_latent_keys(const LayerCall& c, int64_t t) {
  int64_t n = c.head_dim, plain = c.latent->plain_dim, made = plain + c.value_dim;
  const float* shared = row_of(c, t) + first_latent(c) + c.latent->kv_rank;
  float* y = c.step->key + t * c.num_heads * n;
  for (int64_t h = 0; h < c.num_heads; h++, y += n) {
    std::copy_n(c.step->expanded + (t * c.num_heads + h) * made, plain, y);
    rotate(c, t, shared, n - plain, y + plain);
  }
}

}  // namespace

void finish_queries(const LayerCall& c, int64_t t) {
  if (c.latent) return finish_latent_queries(c, t);
  int64_t n = c.num_heads * c.head_dim;
  float* y = c.step->query + t * n;
  finish_heads(c, t, c.query_norm, c.num_heads, row_of(c, t), y);
  if (c.temperature) scale_row(y, n, temperature_of(c, c.step->positions[t]));
}

void finish_keys(const LayerCall& c, int64_t t) {
  if (c.latent) return finish_latent_keys(c, t);
  int64_t n = c.num_kv_heads * c.head_dim;
  finish_heads(c, t, c.key_norm, c.num_kv_heads, row_of(c, t) + c.num_heads * c.head_dim,
               c.step->key + t * n);
}

bool changes_values(const LayerCall& c) { return c.value_norm.weight || c.clip || c.value_scale; }

void finish_values(const LayerCall& c, int64_t t) {
  int64_t n = c.num_kv_heads * c.value_dim;
  float* x = c.step->projected + t * width_of(c.projections) + first_value(c);
  for (int64_t h = 0; c.value_norm.weight && h < c.num_kv_heads; h++)
    apply(c.value_norm, x + h * c.value_dim, c.value_dim, x + h * c.value_dim);
  if (c.clip) clip_row(x, n, (float)c.clip, x);
  if (c.value_scale) scale_row(x, n, (float)c.value_scale);
}
