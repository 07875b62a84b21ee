// Products with AMX: tiles of 16 rows of x and 64 bytes of k against 16 columns of a panel.
//
// A product of any number of rows uses whole tiles. The rows beyond it are computed and dropped, so
// a row has the same bits in every batch.
#pragma once
#include "amx.h"
#include "linear_job.h"
#include "linear_rows.h"

#include <optional>

#if defined(ROSE_AMX)

namespace amx {

constexpr int STEPS = 16;
constexpr int64_t WEIGHTS = STEPS * 128;  // bytes of a panel for one tile of k

// Sums are cells of 16 rows and a panel. One or two tiles of x are multiplied at a time: in
// bfloat16 two are those of 32 rows, in int8 the two bytes of 16 rows.
constexpr int64_t CELL = ROWS * PANEL;

struct Operands {
  const char* x;
  int64_t ldx, second;  // bytes from a row to the next, and to the second tile
  const char* w;
};

#define ROSE_TILE_PRODUCT(sums, x, w) \
  do {                                \
    if constexpr (P::SUMMED == ALL)   \
      _tile_dpbf16ps(sums, x, w);     \
    else                              \
      _tile_dpbssd(sums, x, w);       \
  } while (0)

// Add the product of one tile of k to the sums of CELLS cells, and go to the next.
template <class P, int CELLS>
ROSE_INLINE void multiply(Operands& o) {
  _tile_stream_loadd(4, o.x, o.ldx);
  _tile_loadd(6, o.w, 128);
  ROSE_TILE_PRODUCT(0, 4, 6);
  _tile_loadd(7, o.w + 64, 128);
  ROSE_TILE_PRODUCT(1, 4, 7);
  if constexpr (CELLS == 2) {
    _tile_stream_loadd(5, o.x + o.second, o.ldx);
    ROSE_TILE_PRODUCT(2, 5, 6);
    ROSE_TILE_PRODUCT(3, 5, 7);
  }
  o.x += 64 * P::PARTS;
  o.w += WEIGHTS;
}

template <int CELLS>
ROSE_INLINE void clear() {
  _tile_zero(0);
  _tile_zero(1);
  if constexpr (CELLS == 2) {
    _tile_zero(2);
    _tile_zero(3);
  }
}

template <int CELLS>
ROSE_INLINE void load_sums(const void* cells) {
  constexpr int64_t stride = PANEL * 4;
  const char* from = (const char*)cells;
  _tile_loadd(0, from, stride);
  _tile_loadd(1, from + 64, stride);
  if constexpr (CELLS == 2) {
    _tile_loadd(2, from + CELL * 4, stride);
    _tile_loadd(3, from + CELL * 4 + 64, stride);
  }
}

template <int CELLS>
ROSE_INLINE void store_sums(void* cells) {
  constexpr int64_t stride = PANEL * 4;
  char* to = (char*)cells;
  _tile_stored(0, to, stride);
  _tile_stored(1, to + 64, stride);
  if constexpr (CELLS == 2) {
    _tile_stored(2, to + CELL * 4, stride);
    _tile_stored(3, to + CELL * 4 + 64, stride);
  }
}

// Add the products of `count` tiles of k to what `sums` holds, which is nothing before the first.
template <class P, int CELLS>
ROSE_INLINE void add(Operands o, int64_t count, bool is_first, void* sums, Prefetch& ahead) {
  if (is_first)
    clear<CELLS>();
  else
    load_sums<CELLS>(sums);
  for (int64_t t = 0; t < count; t++) {
    ahead.fetch();
    multiply<P, CELLS>(o);
  }
  store_sums<CELLS>(sums);
}

// The same for one of several groups of rows. The prefetches come after the products: before them,
// they take the buffers that loads of tiles from the second-level cache wait for. After the
// products of a tile of k, `beside` computes some vectors: tiles and vectors are different units.
// Not inlined, so that the loop is in registers.
template <class P, int CELLS, class B>
__attribute__((noinline)) void add_one_of_many(Operands o, int64_t count, bool is_first, void* sums,
                                               Prefetch& ahead, B& beside) {
  if (is_first)
    clear<CELLS>();
  else
    load_sums<CELLS>(sums);
  Prefetch own = ahead;
  for (int64_t t = 0; t < count; t++) {
    multiply<P, CELLS>(o);
    own.fetch();
    beside.step();
  }
  ahead = own;
  store_sums<CELLS>(sums);
}

}  // namespace amx

namespace {

// A product by tiles. Tasks are a group of panels and as many rows of x as the second-level cache
// holds beside it.
template <class P>
struct TiledProduct {
  using Session = amx::Tiles;
  static constexpr bool IS_SPLIT = P::PARTS == 2;
  static constexpr int64_t ROWS = IS_SPLIT ? amx::ROWS : 2 * amx::ROWS;  // at a time
  static constexpr int64_t CELLS = 2 * amx::CELL;  // floats or integers of their sums
  static constexpr int64_t RUN_TILES =
      IS_SPLIT ? P::SUMMED / P::K_PER_STEP / amx::STEPS : INT32_MAX;
  static constexpr int64_t CHUNK =
      IS_SPLIT ? 16 : 12;  // tiles of k whose weights the first-level cache keeps
  static constexpr int64_t GROUP_BYTES = 64 << 10, BLOCK_BYTES = 3 << 19;
  static constexpr int64_t NEAR =
      4096;  // from weights to those that are prefetched for few rows, in bytes

  // A result of so many bytes is written past the caches: they would not keep it, and a store would
  // read the line first.
  static constexpr int64_t STREAMED_BYTES = 4 << 20;

  // Complete sums of rows, and where their results go.
  struct Sums {
    int64_t row = 0, rows = 0, tiles = 0;  // tiles of k up to the last one that was added
    const PanelEnd* panel = nullptr;
    const char* cells = nullptr;
    float* folded = nullptr;  // of the runs before, IS_SPLIT only
  };

  // Computes the results of sums in equal parts, one after each tile of k of other rows.
  struct Beside {
    const TiledProduct& product;
    const Sums& sums;
    int64_t each, next = 0;
    ROSE_INLINE_MEMBER void step() {
      if (next >= sums.rows) return;
      int64_t end = std::min(next + each, sums.rows);
      product.finish_rows(sums, next, end);
      next = end;
    }
  };

  Job job;
  Rows<P> all_rows;
  int64_t tiles, chunk, panel_bytes, num_panels, group, groups_of_block, block, num_groups;
  bool is_streamed;

  TiledProduct(const Job& job, const Rows<P>& all_rows, int64_t num_threads)
      : job(job), all_rows(all_rows) {
    tiles = steps_of<P>(job.K) / amx::STEPS;
    int64_t chunks = (tiles + CHUNK - 1) / CHUNK;
    chunk = IS_SPLIT ? CHUNK : (tiles + chunks - 1) / chunks;
    panel_bytes = panel_bytes_of<P>(job.K);
    num_panels = (job.N + PANEL - 1) / PANEL;
    int64_t fair = num_panels / (num_threads * 4);
    group = std::max<int64_t>(std::min(std::max<int64_t>(GROUP_BYTES / panel_bytes, 2), fair), 1);
    groups_of_block = (num_panels + group - 1) / group;
    int64_t most = std::max<int64_t>(BLOCK_BYTES / (all_rows.ldx * 4), ROWS),
            blocks = (job.M + most - 1) / most;
    block = ((job.M + blocks - 1) / blocks + ROWS - 1) / ROWS * ROWS;
    num_groups = (job.M + block - 1) / block * groups_of_block;
    is_streamed = job.M * job.ldy * (int64_t)sizeof(float) >= STREAMED_BYTES && can_stream(job);
  }

  // Multiply up to ROWS rows by tiles `from` to `to` of a panel, and compute the results that wait
  // meanwhile.
  void multiply(int64_t row, int64_t rows, const char* w, int64_t from, int64_t to, void* sums,
                Prefetch& ahead, const Sums& waiting) const {
    int64_t ldx = all_rows.ldx * 4;
    const char* x = (const char*)(all_rows.x + row * all_rows.ldx) + from * 64 * P::PARTS;
    amx::Operands o{x, ldx, IS_SPLIT ? 64 : amx::ROWS * ldx, w + from * amx::WEIGHTS};
    bool is_first = from % RUN_TILES == 0, has_two = IS_SPLIT || rows > amx::ROWS;
    if (ahead.end) {
      if (has_two)
        amx::add<P, 2>(o, to - from, is_first, sums, ahead);
      else
        amx::add<P, 1>(o, to - from, is_first, sums, ahead);
      return;
    }
    Beside beside{*this, waiting, (waiting.rows + to - from - 1) / (to - from)};
    if (has_two)
      amx::add_one_of_many<P, 2>(o, to - from, is_first, sums, ahead, beside);
    else
      amx::add_one_of_many<P, 1>(o, to - from, is_first, sums, ahead, beside);
  }

  // Write the results of rows `r` to `end` of complete sums, or keep them if there are more tiles
  // of k. Not inlined, so that results have the same bits wherever they are computed.
  __attribute__((noinline)) void finish_rows(const Sums& sums, int64_t r, int64_t end) const {
    const PanelEnd& panel = *sums.panel;
    if constexpr (IS_SPLIT) {
      int64_t run = (sums.tiles - 1) / RUN_TILES;
      const float* scales = all_rows.scales + sums.row * all_rows.lds + run;
      float* folded = sums.folded + r * PANEL;
      const int32_t *high = (const int32_t*)sums.cells + r * PANEL, *low = high + amx::CELL;
      for (; r < end; r++, high += PANEL, low += PANEL, folded += PANEL) {
        float scale = scales[r * all_rows.lds];
        vf a = vf{}, b = vf{};
        if (run) a = load(folded), b = load(folded + W);
        a += P::value(*(const vi*)high, *(const vi*)low) * scale;
        b += P::value(*(const vi*)(high + W), *(const vi*)(low + W)) * scale;
        if (sums.tiles == tiles) {
          panel.finish(sums.row + r, a, b);
        } else {
          store(folded, a);
          store(folded + W, b);
        }
      }
    } else {
      const float* from = (const float*)sums.cells + r * PANEL;
      for (; r < end; r++, from += PANEL) panel.finish(sums.row + r, load(from), load(from + W));
    }
  }

  // Rows from `row` to `end`, and a panel. The results of the last rows wait for the products of
  // the next panel.
  void panel(int64_t row, int64_t end, int64_t panel, const PanelEnd& results, Prefetch& ahead,
             char* cells, float* folded, Sums& waiting) const {
    const char* w = job.weight + panel * panel_bytes;
    for (int64_t from = 0, to; from < tiles; from = to) {
      to = end - row <= ROWS ? tiles : from + chunk;
      to = std::min({to, tiles, (from / RUN_TILES + 1) * RUN_TILES});
      bool is_done = to == tiles || to % RUN_TILES == 0;
      char* own = cells;
      float* kept = folded;
      for (int64_t r = row; r < end; r += ROWS, own += CELLS * 4, kept += CELLS) {
        int64_t rows = std::min(ROWS, end - r);
        multiply(r, rows, w, from, to, own, ahead, waiting);
        waiting = {};
        if (is_done) waiting = {r, rows, to, &results, own, kept};
        if (ahead.end) finish_all(waiting);
      }
    }
  }

  void finish_all(Sums& waiting) const {
    if (waiting.rows) finish_rows(waiting, 0, waiting.rows);
    waiting = {};
  }

  // The first row of a task, and the end of its rows.
  std::pair<int64_t, int64_t> rows_of(int64_t g) const {
    int64_t row = g / groups_of_block * block;
    return {row, std::min(row + block, job.M)};
  }

  // Few rows take the time of reading the weights, which are prefetched a little ahead. With more
  // rows a part of the next group is prefetched with each tile, into the second-level cache.
  void compute(int64_t g, int64_t next) const {
    static thread_local Scratch some, more;
    auto [row, end] = rows_of(g);
    int64_t parts = (end - row + ROWS - 1) / ROWS;
    int64_t first = g % groups_of_block * group, last = std::min(first + group, num_panels);
    char* cells = some.take<char>(parts * CELLS * 4);
    float* folded = IS_SPLIT ? more.take<float>(parts * CELLS) : nullptr;
    const char *w = job.weight + first * panel_bytes, *stop = job.weight + last * panel_bytes;
    const char* then = next >= 0 && next < num_groups
                           ? job.weight + next % groups_of_block * group * panel_bytes
                           : w;
    Prefetch ahead{then, (amx::WEIGHTS / 64 + parts - 1) / parts};
    if (parts == 1) ahead = {std::min(w + NEAR, stop), amx::WEIGHTS / 64, stop, then};
    std::optional<PanelEnd> ends[2];
    Sums waiting;
    for (int64_t p = first; p < last; p++)
      panel(row, end, p, ends[p % 2].emplace(job, p, is_streamed), ahead, cells, folded, waiting);
    finish_all(waiting);
    if (is_streamed) _mm_sfence();
  }
};

}  // namespace
#endif
