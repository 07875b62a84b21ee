// y = x @ w.T + bias, with weights in blocks. A tile of the team is a group of panels.
//
// Up to FEW rows read the codes where they lie. For more, a tile of a panel is expanded to bytes once, in the L1
// cache, for all rows.
#pragma once
#include "block_product.h"
#include "block_stages.h"
#include "linear_job.h"

namespace {

// Rows that are multiplied together, so that their sums stay in registers. Products of fewer rows compute some
// rows twice or compute padding, and drop the results.
constexpr int FEW = W == 16 ? 4 : 2, MANY = W == 16 ? 6 : 3, HALF_OF_MANY = 3;
constexpr int64_t MOST_ROWS = MANY * 11;  // for which a tile is expanded: x and sums stay in the L1 cache
constexpr int64_t PADDING = MANY;         // rows behind the last one that may be read
constexpr int64_t BLOCK_GROUP_BYTES = 64 << 10;

template <class T>
struct BlockProduct {
  const Job& job;
  ByteRows rows;
  int64_t chunks, panel_bytes, num_panels, group, num_groups;

  BlockProduct(const Job& job, const ByteRows& rows, int64_t num_threads) : job(job), rows(rows) {
    chunks = job.K / CHUNK;
    panel_bytes = block_panel_bytes<T>(chunks);
    num_panels = (job.N + PANEL - 1) / PANEL;
    int64_t fair = num_panels / (num_threads * 4);
    group = std::max<int64_t>(std::min(BLOCK_GROUP_BYTES / panel_bytes, fair), 1);
    num_groups = (num_panels + group - 1) / group;
  }

  void multiply_few(const char* tile, int64_t own, int64_t t, const ByteRows& x, int64_t count, float* sums) const {
    Packed<T> from{tile};
    if (count == 1) return multiply_tile<T, 1>(tile, from, own, t, x, sums);
    if (count == 2) return multiply_tile<T, 2>(tile, from, own, t, x, sums);
    if constexpr (FEW > 2) multiply_tile<T, FEW>(tile, from, own, t, x, sums);
  }

  void multiply_many(const char* tile, int64_t own, int64_t t, const ByteRows& x, int64_t count, float* sums,
                     char* bytes) const {
    expand<T>(tile, own, bytes);
    Bytes from{bytes};
    int64_t row = 0;
    for (; row + HALF_OF_MANY < count; row += MANY)
      multiply_tile<T, MANY>(tile, from, own, t, x.from(row), sums + row * PANEL);
    if (row < count) multiply_tile<T, HALF_OF_MANY>(tile, from, own, t, x.from(row), sums + row * PANEL);
  }

  // `sums` has room for MOST_ROWS + PADDING rows, `bytes` for an expanded tile.
  void compute(int64_t panel, float* sums, char* bytes) const {
    const char* weight = job.weight + panel * panel_bytes;
    for (int64_t row = 0; row < job.M; row += MOST_ROWS) {
      int64_t count = std::min(MOST_ROWS, job.M - row);
      ByteRows x = rows.from(row);
      std::fill_n(sums, (count + PADDING) * PANEL, 0.0f);
      for (int64_t t = 0; t * CHUNKS < chunks; t++) {
        const char* tile = weight + t * T::TILE_BYTES;
        int64_t own = std::min(CHUNKS, chunks - t * CHUNKS);
        if (count <= FEW) multiply_few(tile, own, t, x, count, sums);
        else multiply_many(tile, own, t, x, count, sums, bytes);
      }
      PanelEnd results(job, panel);
      for (int64_t r = 0; r < count; r++)
        results.finish(row + r, load(sums + r * PANEL), load(sums + r * PANEL + W));
    }
  }
};

// Where the rows of x are in prepared memory.
template <class T>
struct BlockRows {
  int64_t ldx, num_factors, num_sums, capacity, code_bytes, factor_bytes;
  explicit BlockRows(const Job& job) {
    ldx = job.K + 64;
    num_factors = (job.K + T::X_RUN - 1) / T::X_RUN * 2;
    num_sums = job.K / T::SUM_RUN + 1;
    capacity = job.M + PADDING;
    code_bytes = (capacity * ldx + 63) / 64 * 64;
    factor_bytes = (capacity * num_factors * 4 + 63) / 64 * 64;
  }
  int64_t bytes() const { return code_bytes + factor_bytes + capacity * num_sums * 2; }
  ByteRows at(const char* p) const {
    return {(const int8_t*)p, (const float*)(p + code_bytes), (const int16_t*)(p + code_bytes + factor_bytes),
            ldx, num_factors, num_sums};
  }
};

template <class T>
void prepare_bytes(const Job& job, int64_t row, char* prepared) {
  ByteRows x = BlockRows<T>(job).at(prepared).from(row);
  round_to_bytes<T>(job.x + row * job.ldx, job.K, (int8_t*)x.codes, (float*)x.factors, (int16_t*)x.sums);
}

template <class T>
void multiply_blocks(team::Member& member, const Job& job, const char* prepared) {
  static thread_local Scratch own;
  float* sums = own.take<float>((MOST_ROWS + PADDING) * PANEL + CHUNKS * EXPANDED / 4);
  char* bytes = (char*)(sums + (MOST_ROWS + PADDING) * PANEL);
  BlockProduct<T> product(job, BlockRows<T>(job).at(prepared), member.size);
  member.stage(product.num_groups, [&](int64_t g, int64_t) {
    for (int64_t p = g * product.group; p < std::min((g + 1) * product.group, product.num_panels); p++)
      product.compute(p, sums, bytes);
  });
}

}  // namespace
