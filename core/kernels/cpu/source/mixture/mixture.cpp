// The feed-forward block of a mixture. See core/kernels/cpu/structures.py.
//
// A router gives a token some experts and their weights. Rows of tokens are sorted by expert, each
// expert multiplies its own, and a token adds up its experts in the order of their probabilities.
// All of it is computed for one token like for many, so a token's result does not depend on its
// batch.
#include "mixture.h"

#include "experts.h"
#include "router.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace {

constexpr int64_t FEW_TOKENS = 4;

// Intermediate results, at addresses from `memory` on.
class Buffers {
 public:
  int64_t num_rows;  // choices of all tokens
  float *logits, *weights, *gathered, *inner, *rows;
  float* input_weights;  // of rows, if the mixture weighs what experts read
  int64_t *chosen, *sources, *places;
  float *shared_inner, *shared, *shared_weights;
  char* prepared;
  int64_t bytes = 0;

  Buffers(const Mixture& m, int64_t num_tokens, char* memory)
      : num_rows(num_tokens * m.per_token), memory_(memory) {
    const Matrix &up = m.up.first, &down = m.down.first;
    logits = take<float>(num_tokens * m.router.num_rows);
    weights = take<float>(num_rows);
    chosen = take<int64_t>(num_rows);
    sources = take<int64_t>(num_rows);
    places = take<int64_t>(num_rows);
    inner = take<float>(num_rows * down.num_columns);
    rows = take<float>(num_rows * down.num_rows);
    int64_t most = std::max(bytes_for(up, num_rows), bytes_for(down, num_rows));
    gathered =
        take<float>(bytes_for(up, num_rows) && !m.weighs_input ? 0 : num_rows * up.num_columns);
    input_weights = take<float>(m.weighs_input ? num_rows : 0);
    if (m.shared_up.data) {
      shared_inner = take<float>(num_tokens * m.shared_down.num_columns);
      shared = take<float>(num_tokens * m.shared_down.num_rows);
      shared_weights = take<float>(num_tokens);
      most = std::max(
          {most, bytes_for(m.shared_up, num_tokens), bytes_for(m.shared_down, num_tokens)});
    }
    prepared = take<char>(most);
  }

 private:
  char* memory_;

  template <class T>
  T* take(int64_t count) {
    char* at = memory_ ? memory_ + bytes : nullptr;
    bytes += (count * sizeof(T) + 63) / 64 * 64;
    return (T*)at;
  }

  static int64_t bytes_for(const Matrix& m, int64_t num_rows) {
    return prepared_bytes(job_of(m, nullptr, num_rows, nullptr, 0));
  }
};

// A mixture in a step, as one thread of the team computes it.
class Stages {
 public:
  Stages(team::Member& member, const Mixture& mixture, const float* x, int64_t num_tokens,
         int64_t* ends, char* memory)
      : member_(member), m_(mixture), x_(x), num_tokens_(num_tokens), ends_(ends),
        b_(mixture, num_tokens, memory) {}

  // Choose experts, and sort rows by them. For few tokens one thread does both.
  void route() {
    member_.laps.begin(stage::ROUTE);
    multiply(m_.router, x_, b_.logits);
    bool is_one_stage = num_tokens_ <= FEW_TOKENS;
    if (!is_one_stage) tokens([&](int64_t t) { choose(t); });
    member_.stage(1, [&](int64_t, int64_t) {
      for (int64_t t = 0; is_one_stage && t < num_tokens_; t++) choose(t);
      sort_by_expert(b_.chosen, num_tokens_, m_.per_token, m_.router.num_rows, ends_, b_.sources,
                     b_.places);
      for (int64_t c = 0; m_.weighs_input && c < b_.num_rows; c++)
        b_.input_weights[b_.places[c]] = std::exchange(b_.weights[c], 1.0f);
    });
  }

  void multiply_experts() {
    Job up = job_of(m_.up.first, b_.gathered, b_.num_rows, b_.inner, m_.down.first.num_columns);
    bool is_copied = prepared_bytes(up) == 0;
    member_.laps.begin(stage::ROUND);
    member_.stage(b_.num_rows, [&](int64_t r, int64_t) {
      const float* row = x_ + b_.sources[r] * up.K;
      if (m_.weighs_input) {
        float* weighed = b_.gathered + r * up.K;
        for (int64_t k = 0; k < up.K; k++) weighed[k] = row[k] * b_.input_weights[r];
        if (!is_copied) prepare_row(up, r, b_.prepared);
      } else if (is_copied) {
        memcpy(b_.gathered + r * up.K, row, up.K * sizeof(float));
      } else {
        Job one = up;
        one.x = row;
        one.ldx = 0;  // all rows are this one
        prepare_row(one, r, b_.prepared);
      }
    });
    member_.laps.begin(stage::UP);
    grouped_stage(member_, up, groups(m_.up), b_.prepared);
    Job down = job_of(m_.down.first, b_.inner, b_.num_rows, b_.rows, m_.down.first.num_rows);
    member_.laps.begin(stage::ROUND);
    prepare(down);
    member_.laps.begin(stage::DOWN);
    grouped_stage(member_, down, groups(m_.down), b_.prepared);
  }

  // The expert of all tokens.
  void multiply_shared() {
    if (!m_.shared_up.data) return;
    member_.laps.begin(stage::SHARED);
    multiply(m_.shared_up, x_, b_.shared_inner);
    multiply(m_.shared_down, b_.shared_inner, b_.shared);
    if (m_.shared_gate.data) multiply(m_.shared_gate, x_, b_.shared_weights);
  }

  void add_up(const float* residual, float* y) {
    int64_t n = m_.down.first.num_rows;
    member_.laps.begin(stage::ADD_EXPERTS);
    tokens([&](int64_t t) {
      const float* base = residual ? residual + t * n : nullptr;
      if (m_.shared_up.data) {
        float weight = m_.shared_gate.data ? 1 / (1 + std::exp(-b_.shared_weights[t])) : 1;
        const int64_t first = 0;
        add_experts(b_.shared + t * n, &first, &weight, 1, n, base, y + t * n);
        base = y + t * n;
      }
      add_experts(b_.rows, b_.places + t * m_.per_token, b_.weights + t * m_.per_token,
                  m_.per_token, n, base, y + t * n);
    });
  }

 private:
  team::Member& member_;
  const Mixture& m_;
  const float* x_;
  int64_t num_tokens_;
  int64_t* ends_;
  Buffers b_;

  void choose(int64_t t) {
    int64_t k = m_.per_token;
    choose_experts(m_, b_.logits + t * m_.router.num_rows, b_.chosen + t * k, b_.weights + t * k);
  }

  Groups groups(const Matrices& matrices) const {
    return {m_.router.num_rows, ends_, matrices.bytes, matrices.columns};
  }

  template <class F>
  void tokens(F f) {
    member_.stage(num_tokens_, [&](int64_t t, int64_t) { f(t); });
  }

  void prepare(const Job& job) {
    if (prepared_bytes(job))
      member_.stage(job.M, [&](int64_t r, int64_t) { prepare_row(job, r, b_.prepared); });
  }

  void multiply(const Matrix& matrix, const float* x, float* y) {
    Job job = job_of(matrix, x, num_tokens_, y, width_of(matrix));
    prepare(job);
    product_stage(member_, job, b_.prepared);
  }
};

}  // namespace

int64_t mixture_bytes(const Mixture& mixture, int64_t num_tokens) {
  return Buffers(mixture, num_tokens, nullptr).bytes;
}

int64_t mixture_multiplications(const Mixture& m) {
  auto size = [](const Matrix& matrix) { return matrix.num_rows * matrix.num_columns; };
  return size(m.router) + m.per_token * (size(m.up.first) + size(m.down.first)) +
         size(m.shared_up) + size(m.shared_down);
}

void count_mixture(StageTimes times, const Mixture& m, int64_t num_tokens) {
  auto count = [&](stage::Kind kind, const Matrix& matrix, int64_t num_rows) {
    times.count(kind, matrix.num_rows * matrix.num_columns * num_rows,
                0);  // nobody knows which experts are read
  };
  count(stage::ROUTE, m.router, num_tokens);
  count(stage::UP, m.up.first, num_tokens * m.per_token);
  count(stage::DOWN, m.down.first, num_tokens * m.per_token);
  count(stage::SHARED, m.shared_up, num_tokens);
  count(stage::SHARED, m.shared_down, num_tokens);
}

void mixture_stages(team::Member& member, const Mixture& mixture, const float* x,
                    int64_t num_tokens, const float* residual, float* y, int64_t* ends,
                    char* memory) {
  Stages stages(member, mixture, x, num_tokens, ends, memory);
  stages.route();
  stages.multiply_experts();
  stages.multiply_shared();
  stages.add_up(residual, y);
}
