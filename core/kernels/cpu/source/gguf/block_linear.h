// y = x @ w.T + bias, with weights in blocks. A tile of the team is a group of panels.
//
// Rows read the codes where they lie. For many, a tile of a panel may be expanded once, in the L1
// cache, for all of them: to bytes that vectors multiply (block_multiply.h, block_pairs.h), or to
// what tiles of AMX do (block_tiles.h).
#pragma once
#include "block_outliers.h"
#include "block_pairs.h"
#include "block_shares.h"
#include "block_stages.h"
#include "block_tiles.h"
#include "linear_groups.h"
#include "linear_job.h"
#include "linear_tasks.h"

namespace {

// Rows that are multiplied together, so that their sums stay in registers. Products of fewer rows
// compute padding, and drop the results. With sums of 16 bits there are more: where vectors have 16
// registers, scaled sums are in memory (store_sum).
#if defined(ROSE_WORDS)
constexpr int FEW = 4, MANY = 6;
#else
constexpr int FEW = W == 16 ? 4 : 2, MANY = W == 16 ? 6 : 3;
#endif
constexpr int64_t MOST_ROWS =
    MANY * 11;  // for which a tile is read once: x and sums stay in the L1 cache
constexpr int64_t MOST_TILED_ROWS = 256;  // the same for AMX: they stay in the L2 cache
constexpr int64_t EXPANDED_BYTES =
    CHUNKS * EXPANDED + TILE / 16 * VECTOR;  // of a tile, with scales of pairs of groups
constexpr int64_t PADDING = 16;              // rows behind the last one that may be read
constexpr int64_t BLOCK_GROUP_BYTES = 64 << 10, BLOCK_X_BYTES = 1 << 20;
// The same for few rows, whose step takes 6 % longer with tasks of 64 KiB (one stream on Zen 4): a
// claim delays the reading of weights.
constexpr int64_t FEW_GROUP_BYTES = 512 << 10;

// The most rows for which codes are multiplied as they lie; for more, a tile is expanded to bytes
// first. Codes of 4 and 8 bits that are no indices of a table are never expanded where vectors have
// 512 bits.
template <class T>
constexpr int64_t unexpanded_rows() {
  if (W != 16) return 2;
  return (T::BITS == 4 && !T::IS_LOOKED_UP) || T::BITS == 8 ? MOST_ROWS : T::IS_WIDE ? 8 : 16;
}

// Whether FEW rows ask for the codes in ascending order, so that the CPU fetches memory ahead of
// them. More rows prefetch.
template <class T>
constexpr bool is_read_in_order() {
  return W == 16 && T::BITS != 5;
}

// Rows as tiles of MANY ones, and at most two of FEW ones, so that less than two of them are
// padding.
struct Split {
  int64_t large, small;
  explicit Split(int64_t count) {
    constexpr int64_t STEP = FEW / 2;  // MANY are three steps
    int64_t steps = (count + STEP - 1) / STEP;
    small = (3 - steps % 3) % 3;
    large = (steps - 2 * small) / 3;
  }
};

// Tasks are a group of panels and as many rows of x as the second-level cache holds beside it.
template <class T>
struct BlockProduct {
  struct Session {};  // tiles of AMX are configured for each group
  Job job;
  ByteRows rows;
  bool is_tiled = false;
  int64_t chunks, panel_bytes, num_panels, group, groups_of_block, block, num_groups;

  BlockProduct(const Job& job, const ByteRows& rows, int64_t num_threads) : job(job), rows(rows) {
#if defined(ROSE_AMX)
    is_tiled = job.M > FEW && amx::is_permitted();
#endif
    chunks = job.K / CHUNK;
    panel_bytes = block_panel_bytes<T>(chunks);
    num_panels = (job.N + PANEL - 1) / PANEL;
    int64_t fair = num_panels / (num_threads * 4);
    int64_t most_bytes = job.M <= FEW_ROWS ? FEW_GROUP_BYTES : BLOCK_GROUP_BYTES;
    group = std::max<int64_t>(std::min(most_bytes / panel_bytes, fair), 1);
    groups_of_block = (num_panels + group - 1) / group;
    int64_t most =
        std::max(BLOCK_X_BYTES / rows.ldx / MOST_TILED_ROWS, (int64_t)1) * MOST_TILED_ROWS;
    block = std::min(job.M, most);
    num_groups = (job.M + block - 1) / block * groups_of_block;
  }

  // Add the products of `count` rows and tile t, which has `own` chunks. Functions of their own, so
  // that registers of one are not kept for the other.
  __attribute__((noinline)) void multiply_few(const char* tile, int64_t own, int64_t t,
                                              const ByteRows& x, int64_t count, float* sums) const {
    Packed<T> from{tile};
    if (count == 1) return multiply_tile<T, 1>(tile, from, own, t, x, sums);
    if (count == 2) return multiply_tile<T, 2>(tile, from, own, t, x, sums);
    if constexpr (is_read_in_order<T>()) multiply_tile<T, FEW>(tile, from, own, t, x, sums);
  }

  // Where the sums of the last tile go: those of so many rows from `first` on.
  struct End {
    const PanelEnd& results;
    int64_t first, count;
    __attribute__((noinline)) void finish(int64_t row, int64_t end, const float* sums) const {
      for (end = std::min(end, count); row < end; row++)
        results.finish(first + row, load(sums + row * PANEL), load(sums + row * PANEL + W));
    }
  };

  // Rows are finished beside the products of others: a burst of results would wait for their cache
  // lines.
  template <class From>
  static void multiply_rows(const char* tile, const From& from, int64_t own, int64_t t,
                            const ByteRows& x, Split rows, float* sums, const End* end) {
    int64_t row = 0;
    for (int64_t i = 0; i < rows.large; i++, row += MANY) {
      multiply_tile<T, MANY>(tile, from, own, t, x.from(row), sums + row * PANEL);
      if (end) end->finish(row, row + MANY, sums);
    }
    for (int64_t i = 0; i < rows.small; i++, row += FEW) {
      multiply_tile<T, FEW>(tile, from, own, t, x.from(row), sums + row * PANEL);
      if (end) end->finish(row, row + FEW, sums);
    }
  }

#if defined(ROSE_PACKED_PAIRS)
  static void multiply_expanded_rows(const Pairs<T>& from, int64_t t, const ByteRows& x,
                                     int64_t count, float* sums, const End* end) {
    for (int64_t row = 0; row < count; row += PAIR_ROWS) {
      float* own = sums + row * PANEL;
      if (count - row > PAIR_ROWS / 2)
        multiply_expanded<T, PAIR_ROWS>(from, t, x.from(row), own);
      else
        multiply_expanded<T, PAIR_ROWS / 2>(from, t, x.from(row), own);
      if (end) end->finish(row, row + PAIR_ROWS, sums);
    }
  }
#endif

  // The same for many; the next tile is prefetched meanwhile. `bytes` has room for an expanded
  // tile.
  __attribute__((noinline)) void multiply_many(const char* tile, int64_t own, int64_t t,
                                               const ByteRows& x, int64_t count, float* sums,
                                               char* bytes, const End* end) const {
    Split rows(count);
    const char* next = tile + block_panel_bytes<T>(own);
    auto ahead_of = [&](int64_t tiles_of_rows) {
      int64_t fetches = tiles_of_rows * own;
      return Ahead{next, next + T::TILE_BYTES, 1, (T::TILE_BYTES / 64 + fetches - 1) / fetches};
    };
    if constexpr (unexpanded_rows<T>() < MOST_ROWS) {
      if (count > unexpanded_rows<T>()) {
#if defined(ROSE_PACKED_PAIRS)
        if constexpr (T::IS_WIDE) {
          Ahead ahead = ahead_of((count + PAIR_ROWS - 1) / PAIR_ROWS);
          expand_pairs<T>(tile, bytes);
          return multiply_expanded_rows({bytes, tile, &ahead}, t, x, count, sums, end);
        }
#endif
        Ahead ahead = ahead_of(rows.large + rows.small);
        expand<T>(tile, own, bytes);
        return multiply_rows(tile, Bytes{bytes, &ahead}, own, t, x, rows, sums, end);
      }
    }
    if constexpr (unexpanded_rows<T>() > 2) {
      Ahead ahead = ahead_of(rows.large + rows.small);
      multiply_rows(tile, Near<T>{tile, &ahead}, own, t, x, rows, sums, end);
    }
  }

  // y[r] = x[r] . the panel at `weight` for the rows of `end`. `bytes` has room for an expanded
  // tile.
  void multiply_vectors(const char* weight, const ByteRows& x, const End& end, float* sums,
                        char* bytes) const {
    bool is_few = end.count <= (is_read_in_order<T>() ? FEW : 2);
    for (int64_t t = 0; t * CHUNKS < chunks; t++) {
      const char* tile = weight + t * T::TILE_BYTES;
      int64_t own = std::min(CHUNKS, chunks - t * CHUNKS);
      const End* finishes = !has_outliers<T>() && (t + 1) * CHUNKS >= chunks ? &end : nullptr;
      if (is_few)
        multiply_few(tile, own, t, x, end.count, sums);
      else
        multiply_many(tile, own, t, x, end.count, sums, bytes, finishes);
      if constexpr (has_outliers<T>()) add_outliers<T>(tile, t, x, end.count, sums);
    }
    if (is_few || has_outliers<T>()) end.finish(0, end.count, sums);
  }

#if defined(ROSE_AMX)
  // While rows are multiplied by a tile, the next one is prefetched.
  void multiply_tiled(const char* weight, const ByteRows& x, const End& end, float* sums,
                      char* bytes) const {
    constexpr int64_t FETCHES = 4;  // of a multiplication
    int64_t count = end.count;
    int64_t lines = (T::TILE_BYTES / 64 + 1) / ((count + amx::ROWS - 1) / amx::ROWS * FETCHES) + 1;
    BlockTiles<T> tiles(bytes);
    for (int64_t t = 0; t * CHUNKS < chunks; t++) {
      const char* tile = weight + t * T::TILE_BYTES;
      int64_t own = std::min(CHUNKS, chunks - t * CHUNKS);
      Prefetch ahead{tile + T::TILE_BYTES, lines};
      tiles.expand(tile, own);
      for (int64_t r = 0; r < count; r += amx::ROWS)
        tiles.multiply(x.from(r), own, t, std::min<int64_t>(amx::ROWS, count - r), sums + r * PANEL,
                       ahead);
    }
    end.finish(0, count, sums);
  }
#endif

  // The panels from `first` to before `last`, and the rows from `row` to `end`.
  template <class F>
  void panels(int64_t first, int64_t last, int64_t row, int64_t end, int64_t most, float* sums,
              F multiply) const {
    for (int64_t panel = first; panel < last; panel++) {
      PanelEnd results(job, panel);
      for (int64_t from = row; from < end; from += most) {
        int64_t count = std::min(most, end - from);
        std::fill_n(sums, (count + MANY) * PANEL, 0.0f);
        multiply(job.weight + panel * panel_bytes, rows.from(from), End{results, from, count});
      }
    }
  }

  // The first row of a task, and the end of its rows.
  std::pair<int64_t, int64_t> rows_of(int64_t g) const {
    int64_t row = g / groups_of_block * block;
    return {row, std::min(row + block, job.M)};
  }

  void compute(int64_t g, int64_t) const {
    static thread_local Scratch own, more;
    auto [row, end] = rows_of(g);
    int64_t first = g % groups_of_block * group, last = std::min(first + group, num_panels);
    float* sums = own.take<float>((MOST_TILED_ROWS + MANY) * PANEL);
#if defined(ROSE_AMX)
    if (is_tiled) {
      char* bytes = more.take<char>(BlockTiles<T>::BYTES);
      auto configured = BlockTiles<T>::configure((int)std::min<int64_t>(end - row, amx::ROWS));
      return panels(first, last, row, end, MOST_TILED_ROWS, sums,
                    [&](const char* w, const ByteRows& x, const End& end) {
                      multiply_tiled(w, x, end, sums, bytes);
                    });
    }
#endif
    char* bytes = more.take<char>(EXPANDED_BYTES);
    panels(first, last, row, end, MOST_ROWS, sums,
           [&](const char* w, const ByteRows& x, const End& end) {
             multiply_vectors(w, x, end, sums, bytes);
           });
  }
};

// Where the rows of x are in prepared memory.
template <class T>
struct BlockRows {
  int64_t ldx, num_factors, num_sums, num_digits, num_shares, num_outliers, num_flags;
  int64_t factors, sums, digits, shares, outliers, flags, size;
  explicit BlockRows(const Job& job) {
    int64_t capacity = job.M + PADDING;
    auto after = [&](int64_t start, int64_t bytes_of_row) {
      return (start + capacity * bytes_of_row + 63) / 64 * 64;
    };
    ldx = job.K + 64;
    num_factors = (job.K + T::X_RUN - 1) / T::X_RUN * 2;
    num_sums = job.K / T::SUM_RUN + 1;
    num_digits = has_digits<T>() ? job.K / TILE * SUM_DIGITS : 0;
    num_shares = has_shares<T>() ? job.K / CHUNK : 0;
    num_outliers = has_outliers<T>() ? job.K / CHUNK : 0;
    num_flags = has_outliers<T>() ? (job.K + TILE - 1) / TILE : 0;
    factors = after(0, ldx);
    sums = after(factors, num_factors * 4);
    digits = after(sums, num_sums * 2);
    shares = after(digits, num_digits * 2);
    outliers = after(shares, num_shares * 4);
    flags = after(outliers, num_outliers * (int64_t)sizeof(Outlier));
    size = after(flags, num_flags);
  }
  int64_t bytes() const { return size; }
  ByteRows at(const char* p) const {
    return {(const int8_t*)p,
            (const float*)(p + factors),
            (const int16_t*)(p + sums),
            (const uint16_t*)(p + digits),
            (const int32_t*)(p + shares),
            (const Outlier*)(p + outliers),
            (const uint8_t*)(p + flags),
            ldx,
            num_factors,
            num_sums,
            num_digits,
            num_shares,
            num_outliers,
            num_flags};
  }
};

// Rows behind the last one have no parts of scales: a tile of 3 rows or more reads them, and would
// take the longer way.
inline void clear_padding(float* last_row, int64_t runs, int64_t num_factors) {
  for (int64_t r = 1; r < PADDING; r++)
    for (int64_t i = 0; i < runs; i++) last_row[r * num_factors + i * 2 + 1] = 0;
}

// Round whole tiles of a row: those of `part` of `parts`.
template <class T>
void prepare_bytes(const Job& job, int64_t row, char* prepared, int64_t part, int64_t parts) {
  ByteRows x = BlockRows<T>(job).at(prepared).from(row);
  int64_t tiles = (job.K + TILE - 1) / TILE;
  int64_t first = tiles * part / parts * TILE,
          last = std::min(tiles * (part + 1) / parts * TILE, job.K);
  const float* from = job.x + row * job.ldx + first;
  int8_t* codes = (int8_t*)x.codes + first;
  float* factors = (float*)x.factors + first / T::X_RUN * 2;
  int16_t* sums = (int16_t*)x.sums + first / T::SUM_RUN;
  if constexpr (has_shares<T>()) {
    round_to_shares<T>(from, last - first, codes, factors, sums,
                       (int32_t*)x.shares + first / CHUNK);
    if (row + 1 == job.M && row >= 2)
      clear_padding(factors, (last - first + T::X_RUN - 1) / T::X_RUN, x.num_factors);
  } else if constexpr (has_outliers<T>()) {
    Outlier* outliers = (Outlier*)x.outliers + first / CHUNK;
    uint8_t* flags = (uint8_t*)x.flags + first / TILE;
    for (int64_t k = 0; k < last - first; k += TILE)
      *flags++ =
          round_with_outliers<T>(from + k, std::min(TILE, last - first - k), codes + k,
                                 factors + k / CHUNK * 2, sums + k / CHUNK, outliers + k / CHUNK);
  } else {
    round_to_bytes<T>(from, last - first, codes, factors, sums);
  }
  if constexpr (has_digits<T>())
    split_sums(sums, (last - first) / T::SUM_RUN, (uint16_t*)x.digits + first / TILE * SUM_DIGITS);
}

template <class T>
void multiply_blocks(team::Member& member, const Job& job, const Groups* groups,
                     const char* prepared) {
  ByteRows rows = BlockRows<T>(job).at(prepared);
  if (groups) return multiply_groups<BlockProduct<T>>(member, job, *groups, rows);
  BlockProduct<T> product(job, rows, member.size);
  compute_tasks(member, product);
}

}  // namespace
