// y = x @ w.T + bias, with weights packed once at load. See core/kernels/cpu/linear.py.
//
// A tile of the team is a group of panels. All rows of x are multiplied with a group while the L2
// cache holds it, and the next group is prefetched meanwhile. The sum of an output runs over k in
// order for any number of rows, so a row's result does not depend on its batch.
#include "linear.h"

#include "block_stages.h"
#include "linear_amx.h"
#include "linear_groups.h"
#include "linear_tasks.h"
#include "linear_vectors.h"

#include <algorithm>
#include <type_traits>

namespace {

constexpr int64_t MORE_ROWS = 32;  // tiles read rows beyond the last one

// The form in which rows of x are multiplied: activations and scales of a row, and where they are.
template <class P>
struct Prepared {
  static constexpr bool IS_X = P::K_PER_STEP == 1;  // they are multiplied as they are
  using Value = typename P::Activation;
  int64_t stride, num_scales, M;
  explicit Prepared(const Job& job)
      : num_scales(
            P::SUMMED == ALL ? 0 : (job.K + P::SUMMED - 1) / P::SUMMED * (IS_ROTATED<P> ? 2 : 1)),
        M(job.M) {
    constexpr int64_t LINE = 64 / sizeof(Value);
    // an odd number of cache lines, so that rows are in different cache sets
    stride = ((steps_of<P>(job.K) * P::PARTS + LINE - 1) / LINE | 1) * LINE;
  }
  int64_t values_bytes() const { return (M + MORE_ROWS) * stride * sizeof(Value); }
  int64_t bytes() const { return IS_X ? 0 : values_bytes() + M * num_scales * sizeof(float); }
  Value* values(char* at) const { return (Value*)at; }
  float* scales(char* at) const { return (float*)(at + values_bytes()); }

  Rows<P> rows(const Job& job, const char* at) const {
    if constexpr (IS_X)
      return {job.x, job.ldx, nullptr, 0};
    else
      return {values((char*)at), stride, scales((char*)at), num_scales};
  }
};

// Call f with the type of the product that this CPU computes fastest.
template <class P, class F>
void with_product(F f) {
#if defined(ROSE_AMX)
  if constexpr (P::STEPS == amx::STEPS) {
    if (amx::is_permitted()) return f((TiledProduct<P>*)nullptr);
  }
#endif
  f((Product<P>*)nullptr);
}

template <class P>
void multiply_groups_of(team::Member& member, const Job& all, const Groups& groups,
                        const char* prepared) {
  Rows<P> rows = Prepared<P>(all).rows(all, prepared);
  with_product<P>([&](auto* kind) {
    using T = std::remove_pointer_t<decltype(kind)>;
    multiply_groups<T>(member, all, groups, rows);
  });
}

}  // namespace

int64_t prepared_bytes(const Job& job) {
  if (is_in_blocks(job.format)) return prepared_block_bytes(job);
  return with_layout(job.format,
                     [&](auto layout) { return Prepared<decltype(layout)>(job).bytes(); });
}

void prepare_row(const Job& job, int64_t row, char* prepared, int64_t part, int64_t parts) {
  if (is_in_blocks(job.format)) return prepare_block_row(job, row, prepared, part, parts);
  if (part > 0) return;  // these are converted at once
  with_layout(job.format, [&](auto layout) {
    using P = decltype(layout);
    if constexpr (!Prepared<P>::IS_X) {
      Prepared<P> form(job);
      prepare(layout, job.x + row * job.ldx, job.K, form.values(prepared) + row * form.stride,
              form.scales(prepared) + row * form.num_scales);
    }
  });
}

uint16_t* rounded_rows(const Job& job, char* prepared, int64_t& stride) {
  if (is_in_blocks(job.format)) return nullptr;
  return with_layout(job.format, [&](auto layout) -> uint16_t* {
    using P = decltype(layout);
    if constexpr (P::K_PER_STEP == 2 && P::SUMMED == ALL) {
      if (job.K % (P::K_PER_STEP * P::STEPS)) return nullptr;  // rows are padded
      Prepared<P> form(job);
      stride = form.stride * P::K_PER_STEP;
      return (uint16_t*)form.values(prepared);
    }
    return nullptr;
  });
}

void product_stage(team::Member& member, const Job& job, const char* prepared) {
  if (job.M == 0) return;
  if (is_in_blocks(job.format)) return block_product_stage(member, job, prepared);
  with_layout(job.format, [&](auto layout) {
    using P = decltype(layout);
    with_product<P>([&](auto* kind) {
      using T = std::remove_pointer_t<decltype(kind)>;
      T product(job, Prepared<P>(job).rows(job, prepared), member.size);
      typename T::Session session;
      (void)session;
      compute_tasks(member, product);
    });
  });
}

void expect_product(team::Member& member, const Job& job, const char* prepared) {
  if (job.M == 0 || job.M > FEW_ROWS || member.size == 1) return;
  if (is_in_blocks(job.format)) return expect_block_product(member, job, prepared);
  with_layout(job.format, [&](auto layout) {
    using P = decltype(layout);
    with_product<P>([&](auto* kind) {
      using T = std::remove_pointer_t<decltype(kind)>;
      read_own_weights(member, T(job, Prepared<P>(job).rows(job, prepared), member.size));
    });
  });
}

void grouped_stage(team::Member& member, const Job& all, const Groups& groups,
                   const char* prepared) {
  if (all.M == 0) return;
  if (is_in_blocks(all.format)) return grouped_block_stage(member, all, groups, prepared);
  with_layout(all.format, [&](auto layout) {
    multiply_groups_of<decltype(layout)>(member, all, groups, prepared);
  });
}

// Whether x is rounded to bfloat16 before the product.
ROSE_EXPORT int64_t rose_rounds_activations(int format) {
  return with_layout(format, [](auto layout) -> int64_t {
    return decltype(layout)::K_PER_STEP == 2 && decltype(layout)::SUMMED == ALL;
  });
}

// The largest integer that x is rounded to before the product, and how many columns of a row have a
// scale in common. Both are 0 if x is not rounded to integers.
ROSE_EXPORT int64_t rose_activation_levels(int format) {
  return with_layout(format, [](auto layout) -> int64_t {
    using P = decltype(layout);
    if constexpr (P::SUMMED == ALL)
      return 0;
    else
      return P::MOST;
  });
}
ROSE_EXPORT int64_t rose_activation_columns(int format) {
  return with_layout(format, [](auto layout) -> int64_t {
    return decltype(layout)::SUMMED == ALL ? 0 : decltype(layout)::SUMMED;
  });
}

// y = rows of K values as they are before they are rounded, beside weights of this format: rotated,
// or x itself.
ROSE_EXPORT void rose_rotate(int format, const float* x, int64_t count, int64_t K, float* y) {
  with_layout(format, [&](auto layout) {
    for (int64_t i = 0; i < count; i++, x += K, y += K)
      if constexpr (IS_ROTATED<decltype(layout)>)
        rotate(x, K, y);
      else
        std::copy_n(x, K, y);
  });
}

// y = epilogue(x @ w.T * scale + bias) + residual. x is [M, K] with row stride ldx. y is [M, N]
// with row stride ldy, or [M, N / 2] for gated epilogues, whose weight rows alternate in runs of
// half a panel: W rows of gate, W rows of up. scale (int8 only) and bias are padded to whole
// panels; bias may be null. residual may be null; it has the layout of y and may be y. Gated
// epilogues ignore it.
ROSE_EXPORT void rose_linear(int format, int epilogue, const float* x, int64_t ldx, int64_t M,
                             int64_t K, int64_t N, const char* weight, const float* scale,
                             const float* bias, float* y, int64_t ldy, const float* residual) {
  Job job{format, epilogue, x, ldx, M, K, N, weight, scale, bias, y, ldy, residual};
  static thread_local Scratch scratch;
  int64_t bytes = prepared_bytes(job);
  char* prepared = scratch.take<char>(bytes);
  team::run(M * N * K <= SMALL_PRODUCT, [&](team::Member& member) {
    if (bytes) member.stage(M, [&](int64_t r, int64_t) { prepare_row(job, r, prepared); });
    product_stage(member, job, prepared);
  });
}

// The same for `count` matrices of one shape, each with its own rows of x, which are contiguous and
// sorted by matrix: those of matrix i end before ends[i]. The matrices are `bytes` apart, and their
// scale and bias `columns` values. Rows of y that belong to no matrix are not written.
ROSE_EXPORT void rose_grouped_linear(int format, int epilogue, const float* x, const int64_t* ends,
                                     int64_t count, int64_t K, int64_t N, const char* weight,
                                     int64_t bytes, const float* scale, const float* bias,
                                     int64_t columns, float* y, int64_t ldy) {
  Groups groups{count, ends, bytes, columns};
  Job all{format, epilogue, x, K, ends[count - 1], K, N, weight, scale, bias, y, ldy, nullptr};
  static thread_local Scratch scratch;
  int64_t prepared_size = prepared_bytes(all);
  char* prepared = scratch.take<char>(prepared_size);
  team::run(all.M * N * K <= SMALL_PRODUCT, [&](team::Member& member) {
    if (prepared_size)
      member.stage(all.M, [&](int64_t r, int64_t) { prepare_row(all, r, prepared); });
    grouped_stage(member, all, groups, prepared);
  });
}
