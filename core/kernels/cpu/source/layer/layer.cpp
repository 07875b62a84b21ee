// Decoder layers as stages of a team, all in one call.
#include "attention_chosen.h"
#include "attention_stages.h"
#include "elementwise.h"
#include "heads.h"
#include "layer.h"
#include "mixture.h"
#include "model.h"
#include "products.h"
#include "scratch.h"

ROSE_EXPORT int64_t rose_panel_bytes(int format, int64_t K);  // pack.cpp

namespace {

void apply(const Norm& norm, const float* x, int64_t n, float* y) {
  norm_row(x, n, norm.center, (float)norm.eps, norm.weight, norm.bias, y);
}

// A layer in a step, as one thread of the team computes it.
class Layer {
 public:
  // `next` is the matrix of the products after the layer, or null. `ends`: see mixture_stages.
  Layer(team::Member& member, const LayerCall& call, const Matrix* next, int64_t* ends,
        char* prepared)
      : member_(member), c_(call), next_(next), s_(*call.step),
        hidden_(call.projections.num_columns), ends_(ends), prepared_(prepared),
        num_rows_(s_.num_tokens), residual_(s_.x) {}

  // Queries, keys and values of x. With `attention`, write keys and values to the cache.
  void begin(const AttentionCall* attention) {
    const float* read = normed_of(c_.first_norm, s_.x);
    Products products(c_.projections, read, s_.num_tokens, s_.projected);
    expect_product(member_, products.jobs[0], prepared_);
    norm_and_prepare(c_.first_norm, s_.x, products.bytes,
                     [&](int64_t t) { products.prepare(t, prepared_); });
    member_.laps.begin(stage::PROJECTIONS);
    products.stages(member_, prepared_, c_.latent ? first_of(*c_.latent) : &c_.output);
    if (c_.latent) expand_latents(*c_.latent);
    member_.laps.begin(stage::KEYS);
    bool has_values = !c_.reuses_keys && changes_values(c_);
    if (!s_.query && !has_values && !attention) return;
    if (s_.query && s_.num_tokens <= FEW_ROWS && !c_.reuses_keys)
      return parts_of_tokens(2, [&](int64_t t, int64_t part) {
        if (part == 0) return finish_queries(c_, t);
        finish_keys(c_, t);
        if (has_values) finish_values(c_, t);
        if (attention) write_to_cache(*attention, t, t + 1);
      });
    runs_stage(member_, s_.num_tokens, [&](int64_t first, int64_t last) {
      for (int64_t t = first; t < last; t++) {
        if (s_.query) finish_queries(c_, t);
        if (s_.query && !c_.reuses_keys) finish_keys(c_, t);
        if (has_values) finish_values(c_, t);
      }
      if (attention && !c_.reuses_keys) write_to_cache(*attention, first, last);
    });
  }

  // From now on there are rows of `count` chosen tokens alone, one after the other. Attention must
  // give the same.
  void keep(const int64_t* chosen, int64_t count) {
    member_.laps.begin(stage::KEYS);
    member_.stage(count, [&](int64_t i, int64_t) {
      std::copy_n(s_.x + chosen[i] * hidden_, hidden_, s_.normed + i * hidden_);
    });
    num_rows_ = count;
    residual_ = s_.normed;
    chosen_ = chosen;
  }

  void attend(const AttentionCall& attention) { attention_stages(member_, attention); }

  // y, from what attention has computed.
  void end() {
    Products output(c_.output, s_.attended, num_rows_, s_.hidden,
                    adds_itself(c_.post_mixer) ? residual_ : nullptr);
    if (!is_attended_prepared_) prepare_rows(output, prepared_);
    member_.laps.begin(stage::OUTPUT);
    output.stages(member_, prepared_, c_.mixture ? nullptr : &c_.up);
    c_.mixture ? feed_mixture() : feed();
    bool has_input = c_.input_up.data;
    float factor = c_.output_scale ? (float)c_.output_scale : 1;
    if (!adds_itself(c_.post_feed_forward)) {
      member_.laps.begin(stage::NORM);
      tokens([&](int64_t t) {
        add_normed(c_.post_feed_forward, t, s_.hidden, s_.y, s_.y, c_.scale_of_added(),
                   has_input ? 1 : factor);
      });
    }
    if (has_input) add_input(factor);
  }

  // `constant` with the queries, keys and values of `begin`, whose result is what `end` multiplies.
  AttentionCall attention(const AttentionCall& constant) {
    AttentionCall a = constant;
    int64_t num_query = c_.num_heads * c_.head_dim, num_key = c_.num_kv_heads * c_.head_dim;
    a.query_token = a.key_token = a.value_token = width_of(c_.projections);
    a.query_head = a.key_head = c_.head_dim;
    a.value_head = c_.value_dim;
    a.query = s_.projected;
    a.key = s_.projected + num_query;
    a.value = s_.projected + first_value(c_);
    if (s_.query) {
      a.query = s_.query;
      a.query_token = num_query;
      a.key = s_.key;
      a.key_token = num_key;
    }
    if (c_.latent) {
      a.value_head = c_.latent->plain_dim + c_.value_dim;
      a.value_token = c_.num_heads * a.value_head;
      a.value = s_.expanded + c_.latent->plain_dim;
    }
    a.output = s_.attended;
    Products output(c_.output, s_.attended, s_.num_tokens, s_.hidden);
    if (output.count == 1 && c_.value_dim % W == 0)
      a.rounded = rounded_rows(output.jobs[0], prepared_, a.rounded_token);
    is_attended_prepared_ = a.rounded;
    return a;
  }

 private:
  team::Member& member_;
  const LayerCall& c_;
  const Matrix* next_;
  const LayerStep& s_;
  int64_t hidden_;
  int64_t* ends_;
  char* prepared_;
  bool is_attended_prepared_ = false;
  int64_t num_rows_;
  const float* residual_;
  const int64_t* chosen_ = nullptr;  // see keep

  template <class F>
  void tokens(F f) {
    member_.stage(num_rows_, [&](int64_t t, int64_t) { f(t); });
  }

  // Whether a product or a mixture adds the residual to its result: there is neither a norm nor a
  // factor of what is added.
  bool adds_itself(const Norm& post) const { return !post.weight && c_.scale_of_added() == 1; }

  // y = (base + norm of x * scale) * factor in a token's row. x, which is overwritten, and base may
  // be y.
  void add_normed(const Norm& norm, int64_t t, const float* base, float* x, float* y, float scale,
                  float factor = 1) {
    int64_t at = t * hidden_;
    if (norm.weight) apply(norm, x + at, hidden_, x + at);
    add_row(base + at, x + at, hidden_, scale, y + at);
    for (int64_t i = 0; factor != 1 && i < hidden_; i++) y[at + i] *= factor;
  }

  // The residual stream after the mixer, and the rows that the feed-forward reads.
  template <class F>
  void finish_mixer(int64_t bytes, F prepare) {
    if (adds_itself(c_.post_mixer))
      return norm_and_prepare(norm_of_feed(), source_of_feed(), bytes, prepare);
    member_.laps.begin(stage::NORM);
    tokens([&](int64_t t) {
      add_normed(c_.post_mixer, t, residual_, s_.hidden, s_.hidden, c_.scale_of_added());
      norm_row_of(norm_of_feed(), source_of_feed(), t);
      prepare(t);
    });
  }

  // y = (y + norm of the product of the layer's input, gated by y) * factor.
  void add_input(float factor) {
    Products up(c_.input_up, s_.y, num_rows_, s_.inner),
        down(c_.input_down, s_.inner, num_rows_, s_.hidden);
    int64_t size = width_of(c_.input_up);
    prepare_rows(up, prepared_);
    member_.laps.begin(stage::UP);
    up.stages(member_, prepared_, &c_.input_down);
    member_.laps.begin(stage::ROUND);
    tokens([&](int64_t t) {
      const float* input =
          s_.inputs + (chosen_ ? chosen_[t] : t) * s_.input_columns + c_.first_input;
      for (int64_t i = 0; i < size; i++) s_.inner[t * size + i] *= input[i];
      down.prepare(t, prepared_);
    });
    member_.laps.begin(stage::DOWN);
    down.stages(member_, prepared_, next_);
    member_.laps.begin(stage::NORM);
    tokens([&](int64_t t) { add_normed(c_.input_norm, t, s_.y, s_.hidden, s_.y, 1, factor); });
  }

  static const Matrix* first_of(const Latent& latent) {
    return latent.query_rank ? &latent.query_up : &latent.kv_up;
  }

  // Queries, keys and values from the latents in `projected`.
  void expand_latents(const Latent& latent) {
    int64_t width = width_of(c_.projections);
    float* kv = s_.projected + first_latent(c_);
    Products queries(latent.query_up, s_.projected, num_rows_, s_.query, nullptr, width);
    Products keys(latent.kv_up, kv, num_rows_, s_.expanded, nullptr, width);
    char* behind = prepared_ + queries.bytes;
    member_.laps.begin(stage::NORM);
    tokens([&](int64_t t) {
      float *query_row = s_.projected + t * width, *kv_row = kv + t * width;
      if (latent.query_rank) apply(latent.query_norm, query_row, latent.query_rank, query_row);
      apply(latent.kv_norm, kv_row, latent.kv_rank, kv_row);
      queries.prepare(t, prepared_);
      keys.prepare(t, behind);
    });
    member_.laps.begin(stage::PROJECTIONS);
    if (latent.query_rank) queries.stages(member_, prepared_, &latent.kv_up);
    keys.stages(member_, behind, &c_.output);
  }

  const Norm& norm_of_feed() const {
    return c_.is_parallel && !c_.second_norm.weight ? c_.first_norm : c_.second_norm;
  }
  const float* source_of_feed() const { return c_.is_parallel ? residual_ : s_.hidden; }
  const float* base_of_feed() const {
    return adds_itself(c_.post_feed_forward) ? s_.hidden : nullptr;
  }

  void feed() {
    const float* read = normed_of(norm_of_feed(), source_of_feed());
    int64_t width = width_of(c_.up);
    Products up(c_.up, read, num_rows_, s_.inner),
        down(c_.down, s_.inner, num_rows_, s_.y, base_of_feed(), width);
    char* inner = prepared_ + up.bytes;
    bool is_prepared = c_.gate ? false : up.write_for(down, inner);
    finish_mixer(up.bytes, [&](int64_t t) { up.prepare(t, prepared_); });
    member_.laps.begin(stage::UP);
    up.stages(member_, prepared_, &c_.down);
    if (c_.gate)
      gate_and_prepare(width, down, inner);
    else if (!is_prepared)
      prepare_rows(down, inner);
    member_.laps.begin(stage::DOWN);
    down.stages(member_, inner, next_);
  }

  // Gate the rows of `inner`, whose results are in their first halves, for the products that read
  // them.
  void gate_and_prepare(int64_t width, const Products& down, char* prepared) {
    member_.laps.begin(stage::ROUND);
    tokens([&](int64_t t) {
      gate_row((int)c_.gate, s_.inner + t * width, width / 2, s_.inner + t * width);
      down.prepare(t, prepared);
    });
  }

  void feed_mixture() {
    const float* read = normed_of(norm_of_feed(), source_of_feed());
    finish_mixer(0, [](int64_t) {});
    mixture_stages(member_, *c_.mixture, read, num_rows_, base_of_feed(), s_.y, ends_, prepared_);
  }

  // Where a product reads rows of x: their norms, or x itself.
  const float* normed_of(const Norm& norm, const float* x) const {
    return norm.weight ? s_.normed : x;
  }

  void norm_row_of(const Norm& norm, const float* x, int64_t t) {
    if (norm.weight) apply(norm, x + t * hidden_, hidden_, s_.normed + t * hidden_);
  }

  // Compute norms of x, which may be `normed`, and prepare each row for the products that read
  // `bytes` of prepared rows.
  template <class F>
  void norm_and_prepare(const Norm& norm, const float* x, int64_t bytes, F prepare) {
    if (!norm.weight && !bytes) return;
    member_.laps.begin(stage::NORM);
    tokens([&](int64_t t) {
      norm_row_of(norm, x, t);
      prepare(t);
    });
  }

  // f(token, part) for each part of a token: of few tokens, each thread has a part that it has
  // mostly computed itself.
  template <class F>
  void parts_of_tokens(int64_t parts, F f) {
    member_.stage(num_rows_ * parts, [&](int64_t i, int64_t) { f(i % num_rows_, i / num_rows_); });
  }

  void prepare_rows(const Products& products, char* prepared) {
    if (!products.bytes) return;
    member_.laps.begin(stage::ROUND);
    int64_t parts = num_rows_ <= FEW_ROWS ? member_.size : 1;
    parts_of_tokens(parts,
                    [&](int64_t t, int64_t part) { products.prepare(t, prepared, part, parts); });
  }
};

// f(matrix) for all matrices of a layer but those of a mixture.
template <class F>
void each_matrix(const LayerCall& c, F f) {
  for (const Matrix* m : {&c.projections, &c.output, &c.up, &c.down, &c.input_up, &c.input_down})
    f(*m);
  if (c.latent) f(c.latent->query_up), f(c.latent->kv_up);
}

// Bytes for the rows of any product of the layer, for those of products that are prepared together,
// and for its mixture.
int64_t prepared_bytes(const LayerCall& c) {
  int64_t most = c.mixture ? mixture_bytes(*c.mixture, c.step->num_tokens) : 0;
  auto bytes_of = [&](const Matrix& m) {
    return Products(m, nullptr, c.step->num_tokens, nullptr).bytes;
  };
  each_matrix(c, [&](const Matrix& m) { most = std::max(most, bytes_of(m)); });
  if (c.latent) most = std::max(most, bytes_of(c.latent->query_up) + bytes_of(c.latent->kv_up));
  return std::max(most, bytes_of(c.up) + bytes_of(c.down));
}

int64_t num_multiplications(const LayerCall& c) {
  int64_t sum = c.mixture ? mixture_multiplications(*c.mixture) : 0;
  each_matrix(c, [&](const Matrix& all) {
    for (const Matrix* m = &all; m; m = m->more) sum += m->num_rows * m->num_columns;
  });
  return sum * c.step->num_tokens;
}

// Count what the product of some rows multiplies and reads.
void count(StageTimes times, stage::Kind kind, const Matrix& all, int64_t num_rows) {
  for (const Matrix* m = &all; m; m = m->more) {
    int64_t panels = (m->num_rows + PANEL - 1) / PANEL;
    times.count(kind, m->num_rows * m->num_columns * num_rows,
                panels * rose_panel_bytes((int)m->format, m->num_columns));
  }
}

// `num_rows` has the layer after its attention.
void count(StageTimes times, const LayerCall& c, const AttentionCall& attention, int64_t num_rows) {
  count(times, stage::PROJECTIONS, c.projections, c.step->num_tokens);
  if (c.latent)
    for (const Matrix* m : {&c.latent->query_up, &c.latent->kv_up})
      count(times, stage::PROJECTIONS, *m, c.step->num_tokens);
  if (!num_rows) return;
  count_attention(times, attention);
  count(times, stage::OUTPUT, c.output, num_rows);
  count(times, stage::UP, c.input_up, num_rows);
  count(times, stage::DOWN, c.input_down, num_rows);
  if (c.mixture) return count_mixture(times, *c.mixture, num_rows);
  count(times, stage::UP, c.up, num_rows);
  count(times, stage::DOWN, c.down, num_rows);
}

// Compute `count` layers: f(layer i, i) for each, and what `model` has around them if it is not
// null. `lent` and `times`: see team::run.
template <class F>
void run(const LayerCall* const* calls, int64_t count, F f, const ModelCall* model = nullptr,
         int32_t* lent = nullptr, StageTimes times = {}) {
  static thread_local Scratch scratch, numbers;
  int64_t bytes = model ? prepared_bytes(*model) : 0,
          work = model ? num_multiplications(*model) : 0, num_experts = 0;
  for (int64_t i = 0; i < count; i++) {
    bytes = std::max(bytes, prepared_bytes(*calls[i]));
    work += num_multiplications(*calls[i]);
    if (calls[i]->mixture) num_experts = std::max(num_experts, calls[i]->mixture->router.num_rows);
  }
  int64_t* ends = numbers.take<int64_t>(count * num_experts);
  char* prepared = scratch.take<char>(bytes);
  auto body = [&](team::Member& member) {
    if (model) before_layers(member, *model, prepared);
    for (int64_t i = 0; i < count; i++) {
      const Matrix* head = model && model->num_logits ? &model->head : nullptr;
      const Matrix* next = i + 1 < count ? &calls[i + 1]->projections : head;
      f(Layer(member, *calls[i], next, ends + i * num_experts, prepared), i);
    }
    if (model) after_layers(member, *model, prepared);
  };
  team::run(work <= SMALL_PRODUCT, body, lent, times);
}

}  // namespace

// Compute layers one after the other, each with its attention. y is x of the next layer. `model` is
// what comes before and after them, or null. `lent` is the word of a core that the last thread of
// the team leaves to another one while it is not 0 (see team.h), or null. `times` is what
// StageTimes points to (see laps.h), or null.
ROSE_EXPORT void rose_layers(const LayerCall* const* calls, const AttentionCall* const* attentions,
                             int64_t num_layers, const ModelCall* model, int32_t* lent,
                             int64_t* parts_of_times) {
  static thread_local ChosenAttention chosen;
  const AttentionCall& whole = *attentions[num_layers - 1];
  bool is_part = model && has_chosen_rows(*model);
  AttentionCall last = is_part ? chosen.of(whole, model->chosen, model->num_logits) : whole;
  auto attention_of = [&](int64_t i) -> const AttentionCall& {
    return i + 1 < num_layers ? *attentions[i] : last;
  };
  StageTimes times{parts_of_times};
  for (int64_t i = 0; times && i < num_layers; i++)
    count(times, *calls[i], attention_of(i),
          is_part && i + 1 == num_layers ? model->num_logits : calls[i]->step->num_tokens);
  if (times && model && model->num_logits)
    count(times, stage::HEAD, model->head, model->num_logits);
  auto compute = [&](Layer layer, int64_t i) {
    AttentionCall attention = layer.attention(attention_of(i));
    layer.begin(&attention);
    if (is_part && i + 1 == num_layers) {
      if (!model->num_logits) return;
      layer.keep(model->chosen, model->num_logits);
    }
    layer.attend(attention);
    layer.end();
  };
  run(calls, num_layers, compute, model, lent, times);
}

// Return a core before the team has computed everything. Any thread.
ROSE_EXPORT void rose_return_core(int32_t* lent) { team::return_core(lent); }
