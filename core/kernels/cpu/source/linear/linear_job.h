// What is done with the sums of a product.
#pragma once
#include "epilogue.h"
#include "linear.h"
#include "linear_rows.h"

namespace {

// Let a thread that waits read the weights of its run of tiles, as many as its second-level cache
// holds beside the rest.
template <class T>
void read_own_weights(team::Member& member, const T& product) {
  static const int64_t MOST = team::most_ahead(sysconf(_SC_LEVEL2_CACHE_SIZE));
  auto panel = [&](int later) {
    return std::min(member.first_tile(product.num_groups, later) * product.group,
                    product.num_panels);
  };
  int64_t first = panel(0), bytes = (panel(1) - first) * product.panel_bytes;
  member.read_while_waiting(product.job.weight + first * product.panel_bytes,
                            std::min(bytes, MOST));
}

// Whether whole vectors of a result can be written past the caches.
inline bool can_stream(const Job& job) {
  return !job.rounded && (uintptr_t)job.y % 64 == 0 && job.ldy * sizeof(float) % 64 == 0;
}

// The columns of a panel: what is done with the sums of a row, and where the result goes. Streamed
// results are written past the caches, and a fence must follow.
class PanelEnd {
 public:
  PanelEnd(const Job& job, int64_t panel, bool is_streamed = false)
      : job(job), panel(panel), column(panel * PANEL), left(job.N - column),
        is_streamed(is_streamed && left >= PANEL) {
    if (job.scale) scale[0] = load(job.scale + column), scale[1] = load(job.scale + column + W);
    if (job.bias) bias[0] = load(job.bias + column), bias[1] = load(job.bias + column + W);
    is_plain = left >= PANEL && job.epilogue == NONE;
  }

  inline __attribute__((always_inline)) void finish(int64_t row, vf a, vf b) const {
    if (job.scale) a *= scale[0], b *= scale[1];
    if (job.bias) a += bias[0], b += bias[1];
    if (!is_plain) return finish_any(row, a, b);
    int64_t at = row * job.ldy + column;
    if (job.residual) a += load(job.residual + at), b += load(job.residual + at + W);
    write(at, a, W);
    write(at + W, b, W);
  }

 private:
  const Job& job;
  int64_t panel, column, left;
  bool is_plain, is_streamed;
  vf scale[2], bias[2];

  inline __attribute__((always_inline)) void write(int64_t at, vf v, int64_t count) const {
    if (job.rounded) return store_rounded(job.rounded + at, v);
#if defined(ROSE_AMX)
    if (is_streamed) return _mm512_stream_ps(job.y + at, (__m512)v);
#endif
    put(job.y + at, v, count);
  }

  void finish_any(int64_t row, vf a, vf b) const {
    if (is_gated(job.epilogue)) {
      write(row * job.ldy + panel * W, gate(job.epilogue, a, b), job.N / 2 - panel * W);
      return;
    }
    int64_t at = row * job.ldy + column;
    a = activate(job.epilogue, a, job.slopes);
    b = activate(job.epilogue, b, job.slopes);
    if (job.residual) {
      a += get(job.residual + at, left);
      b += get(job.residual + at + W, left - W);
    }
    write(at, a, left);
    write(at + W, b, left - W);
  }
};

}  // namespace
