// Products in vector registers: tiles of a few rows of x and a few panels.
#pragma once
#include "linear_job.h"
#include "linear_rows.h"

namespace {

// Maximum rows of a tile, and maximum vectors of sums of a tile that is several panels wide. The
// other registers hold weights and x.
#if ROSE_WIDTH == 16
constexpr int MAX_ROWS = 6, MAX_VECTORS = 24;
#elif ROSE_WIDTH == 8
constexpr int MAX_ROWS = 6, MAX_VECTORS = 10;
#else
constexpr int MAX_ROWS = 8, MAX_VECTORS = 24;
#endif

constexpr int64_t GROUP_BYTES = 64 << 10;
constexpr int64_t X_BYTES =
    512 << 10;  // of the rows that a group is multiplied with: they stay in the L2 cache

// The maximum for a layout. Tiles of twice the rows and one panel read half of the weights from the
// L2 cache, and groups are half as large. Their rows of x must be in different cache sets, as only
// converted ones are sure to be (see Prepared).
template <class P>
constexpr int max_rows() {
  return W == 16 && P::K_PER_STEP == 2 && P::STEPS == 1 && P::SUMMED == ALL ? 2 * MAX_ROWS
                                                                            : MAX_ROWS;
}

// Whether so few rows are all there are: then no other tile reads the same weights. See Tiles.
template <class P, int ROWS>
constexpr bool is_only_tile() {
  return 2 * ROWS < max_rows<P>();
}

constexpr int panels_for(int rows) {
  int p = MAX_VECTORS / (2 * rows);
  return p >= 4 ? 4 : p >= 2 ? 2 : 1;
}

// sums[r][c] = x[r] . w[c] for the columns c of PANELS panels.
template <class P, int ROWS, int PANELS>
ROSE_INLINE void tile(const Rows<P>& rows, int64_t steps, const char* w, int64_t panel_bytes,
                      Ahead ahead, vf sums[ROWS][2 * PANELS]) {
  constexpr int64_t TOGETHER = P::SUMMED / P::K_PER_STEP;
  constexpr bool is_scaled = P::SUMMED != ALL;
  const typename P::Activation* x = rows.x;
  int64_t ldx = rows.ldx;
  if (is_scaled)
    for (int r = 0; r < ROWS; r++)
      for (int c = 0; c < 2 * PANELS; c++) sums[r][c] = vf{};
  for (int64_t s = 0, run = 0; run == 0 || s < steps; run++) {
    int64_t end = is_scaled ? std::min(s + TOGETHER, steps) : steps;
    typename P::Sum a[ROWS][2 * PANELS];
    for (int r = 0; r < ROWS; r++)
      for (int c = 0; c < 2 * PANELS; c++) {
        a[r][c] = typename P::Sum{};
        if constexpr (IS_ROTATED<P>) a[r][c] += rows.start(r, run);
      }
    auto step = [&](int64_t s) __attribute__((always_inline)) {
#pragma GCC unroll 4
      for (int p = 0; p < PANELS; p++) {
        typename P::Vector w0, w1;
        const char* own = w + p * panel_bytes + s * P::BYTES;
        if constexpr (is_only_tile<P, ROWS>() && READS_PAST_L2)  // the next step's
          for (int64_t i = 0; i < P::BYTES; i += 64) fetch_once(own + P::BYTES + i);
        P::read(own, w0, w1);
#pragma GCC unroll 12
        for (int r = 0; r < ROWS; r++) {
          auto xv = P::activation(x + r * ldx, s);
          a[r][2 * p] = P::add(a[r][2 * p], xv, w0);
          a[r][2 * p + 1] = P::add(a[r][2 * p + 1], xv, w1);
        }
      }
    };
    for (const int64_t gap = ahead.gap; s + gap <= end; s += gap) {
      ahead.fetch();
      for (int64_t i = 0; i < gap; i++) step(s + i);
    }
    for (; s < end; s++) step(s);
    for (int r = 0; r < ROWS; r++)
      for (int c = 0; c < 2 * PANELS; c++) {
        if constexpr (is_scaled)
          sums[r][c] += P::value(a[r][c]) * rows.scales[r * rows.lds + run];
        else
          sums[r][c] = P::value(a[r][c]);
      }
  }
}

// M rows in tiles of nearly equal size.
struct Tiles {
  int64_t count, small, extra;
  Tiles(int64_t M, int64_t most) {
    count = (M + most - 1) / most;
    small = M / count;
    extra = M % count;
  }
  int64_t start(int64_t i) const { return i * small + std::min(i, extra); }
  int rows(int64_t i) const { return (int)(small + (i < extra)); }
};

// Tasks are a group of panels and a block of tiles.
template <class P>
struct Product {
  struct Session {};  // what a thread sets up before it computes groups
  Job job;
  Rows<P> all_rows;
  // Up to so many rows the hardware prefetcher is better: while reading weights takes longer than
  // multiplying them. It is always better with int8, which has half of the bytes.
  static constexpr int64_t FEW_ROWS = P::SUMMED == ALL ? 24 : INT64_MAX;
  int64_t steps, panel_bytes, num_panels, group, groups_of_block, block, num_groups;
  Tiles tiles;

  Product(const Job& job, const Rows<P>& all_rows, int64_t num_threads)
      : job(job), all_rows(all_rows), tiles(job.M, max_rows<P>()) {
    steps = steps_of<P>(job.K);
    panel_bytes = panel_bytes_of<P>(job.K);
    num_panels = (job.N + PANEL - 1) / PANEL;
    int64_t together = panels_for(tiles.rows(0)), fair = num_panels / (num_threads * 4);
    group = std::min(std::max(GROUP_BYTES / panel_bytes, together), std::max<int64_t>(fair, 1));
    if (group > together) group = group / together * together;
    groups_of_block = (num_panels + group - 1) / group;
    int64_t blocks = (job.M * all_rows.ldx * (int64_t)sizeof(*all_rows.x) + X_BYTES - 1) / X_BYTES;
    block = (tiles.count + blocks - 1) / blocks;
    num_groups = (tiles.count + block - 1) / block * groups_of_block;
  }

  // A task: tiles from `tile` to before `end`, panels from `first` to before `last`, and the first
  // panel of the task that follows it, or -1.
  struct Task {
    int64_t tile, end, first, last, next;
  };

  // The part of the next task's panels that tile i prefetches while it is multiplied with as many
  // from `panel` on.
  Ahead ahead(const Task& task, int64_t i, int64_t panel, int64_t panels) const {
    int64_t from = task.next + panel - task.first, parts = task.end - task.tile;
    if (job.M <= FEW_ROWS || task.next < 0 || from >= num_panels) return {};
    int64_t bytes = panels * panel_bytes, lines = (bytes / 64 + parts - 1) / parts;
    int64_t gap = std::max<int64_t>(steps / lines, 1), part = i - task.tile;
    const char* w = job.weight + from * panel_bytes;
    return {w + bytes * part / parts, w + bytes * (part + 1) / parts, gap,
            (lines * gap + steps - 1) / steps};
  }

  template <int ROWS, int PANELS>
  void panels(const Task& task, int64_t i, int64_t panel) const {
    int64_t row = tiles.start(i);
    vf sums[ROWS][2 * PANELS];
    tile<P, ROWS, PANELS>(all_rows.from(row), steps, job.weight + panel * panel_bytes, panel_bytes,
                          ahead(task, i, panel, PANELS), sums);
    for (int p = 0; p < PANELS; p++) {
      PanelEnd results(job, panel + p);
      for (int r = 0; r < ROWS; r++) results.finish(row + r, sums[r][2 * p], sums[r][2 * p + 1]);
    }
  }

  template <int ROWS = max_rows<P>()>
  void rows(const Task& task, int64_t i) const {
    if constexpr (ROWS > 1)
      if (tiles.rows(i) < ROWS) return rows<ROWS - 1>(task, i);
    constexpr int MANY = panels_for(ROWS);
    int64_t panel = task.first;
    for (; panel + MANY <= task.last; panel += MANY) panels<ROWS, MANY>(task, i, panel);
    for (; panel < task.last; panel++) panels<ROWS, 1>(task, i, panel);
  }

  // The first row of a task, and the end of its rows.
  std::pair<int64_t, int64_t> rows_of(int64_t g) const {
    int64_t tile = g / groups_of_block * block;
    return {tiles.start(tile), tiles.start(std::min(tile + block, tiles.count))};
  }

  // Compute task g; task `next` follows, if there is such a task.
  void compute(int64_t g, int64_t next) const {
    int64_t tile = g / groups_of_block * block, first = g % groups_of_block * group;
    Task task{tile, std::min(tile + block, tiles.count), first, std::min(first + group, num_panels),
              next >= 0 && next < num_groups ? next % groups_of_block * group : -1};
    for (int64_t i = task.tile; i < task.end; i++) rows(task, i);
  }
};

}  // namespace
