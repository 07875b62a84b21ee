// Products in vector registers: tiles of a few rows of x and a few panels.
#pragma once
#include "linear_job.h"
#include "linear_rows.h"

namespace {

// Maximum rows of a tile, and maximum vectors of sums of a tile that is several panels wide. The other
// registers hold weights and x.
#if ROSE_WIDTH == 16
constexpr int MAX_ROWS = 6, MAX_VECTORS = 24;
#elif ROSE_WIDTH == 8
constexpr int MAX_ROWS = 6, MAX_VECTORS = 10;
#else
constexpr int MAX_ROWS = 8, MAX_VECTORS = 24;
#endif

constexpr int64_t GROUP_BYTES = 64 << 10;
constexpr int64_t UNROLL = 8;  // steps between two prefetches
constexpr int STREAMED = 2;    // up to so many rows the hardware prefetcher is better

constexpr int panels_for(int rows) {
  int p = MAX_VECTORS / (2 * rows);
  return p >= 4 ? 4 : p >= 2 ? 2 : 1;
}

// sums[r][c] = x[r] . w[c] for the columns c of PANELS panels.
template <class P, int ROWS, int PANELS>
ROSE_INLINE void tile(const Rows<P>& rows, int64_t steps, const char* w, int64_t panel_bytes, Prefetch ahead,
                      vf sums[ROWS][2 * PANELS]) {
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
      for (int c = 0; c < 2 * PANELS; c++) a[r][c] = typename P::Sum{};
    auto step = [&](int64_t s) __attribute__((always_inline)) {
#pragma GCC unroll 4
      for (int p = 0; p < PANELS; p++) {
        typename P::Vector w0, w1;
        P::read(w + p * panel_bytes + s * P::BYTES, w0, w1);
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; r++) {
          auto xv = P::activation(x + r * ldx, s);
          a[r][2 * p] = P::add(a[r][2 * p], xv, w0);
          a[r][2 * p + 1] = P::add(a[r][2 * p + 1], xv, w1);
        }
      }
    };
    for (; s + UNROLL <= end; s += UNROLL) {
      ahead.fetch();
      for (int64_t i = 0; i < UNROLL; i++) step(s + i);
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
  explicit Tiles(int64_t M) {
    count = (M + MAX_ROWS - 1) / MAX_ROWS;
    small = M / count;
    extra = M % count;
  }
  int64_t start(int64_t i) const { return i * small + std::min(i, extra); }
  int rows(int64_t i) const { return (int)(small + (i < extra)); }
};

template <class P>
struct Product {
  struct Session {};  // what a thread sets up before it computes groups
  Job job;
  Rows<P> all_rows;
  int64_t steps, panel_bytes, num_panels, group, num_groups;
  Tiles tiles;

  Product(const Job& job, const Rows<P>& all_rows, int64_t num_threads) : job(job), all_rows(all_rows), tiles(job.M) {
    steps = steps_of<P>(job.K);
    panel_bytes = panel_bytes_of<P>(job.K);
    num_panels = (job.N + PANEL - 1) / PANEL;
    int64_t together = panels_for(tiles.rows(0)), fair = num_panels / (num_threads * 4);
    group = std::min(std::max(GROUP_BYTES / panel_bytes, together), std::max<int64_t>(fair, 1));
    if (group > together) group = group / together * together;
    num_groups = (num_panels + group - 1) / group;
  }

  bool is_panel(int64_t panel) const { return panel >= 0 && panel < num_panels; }

  // The part of panel + distance that tile i prefetches while it is multiplied with `panel`.
  Prefetch prefetch(int64_t panel, int64_t distance, int64_t i) const {
    if (job.M <= STREAMED || !is_panel(panel + distance)) return {};
    int64_t lines = (UNROLL * P::BYTES + 64 * tiles.count - 1) / (64 * tiles.count);
    return {job.weight + (panel + distance) * panel_bytes + i * (panel_bytes / tiles.count), lines};
  }

  template <int ROWS, int PANELS>
  void panels(int64_t i, int64_t panel, int64_t distance) const {
    int64_t row = tiles.start(i);
    Prefetch wanted = prefetch(panel, distance, i);
    wanted.lines *= PANELS;
    vf sums[ROWS][2 * PANELS];
    tile<P, ROWS, PANELS>(all_rows.from(row), steps, job.weight + panel * panel_bytes, panel_bytes, wanted, sums);
    for (int p = 0; p < PANELS; p++) {
      PanelEnd results(job, panel + p);
      for (int r = 0; r < ROWS; r++) results.finish(row + r, sums[r][2 * p], sums[r][2 * p + 1]);
    }
  }

  template <int ROWS>
  void rows(int64_t i, int64_t first, int64_t last, int64_t distance) const {
    constexpr int MANY = panels_for(ROWS);
    for (; first + MANY <= last; first += MANY) panels<ROWS, MANY>(i, first, distance);
    for (; first < last; first++) panels<ROWS, 1>(i, first, distance);
  }

  // Compute group g; group `next` follows, if there is such a group.
  void compute(int64_t g, int64_t next) const {
    int64_t first = g * group, last = std::min(first + group, num_panels), distance = (next - g) * group;
    for (int64_t i = 0; i < tiles.count; i++) switch (tiles.rows(i)) {
        case 1: rows<1>(i, first, last, distance); break;
        case 2: rows<2>(i, first, last, distance); break;
        case 3: rows<3>(i, first, last, distance); break;
        case 4: rows<4>(i, first, last, distance); break;
        case 5: rows<5>(i, first, last, distance); break;
        case 6: rows<6>(i, first, last, distance); break;
#if ROSE_WIDTH == 4
        case 7: rows<7>(i, first, last, distance); break;
        case 8: rows<8>(i, first, last, distance); break;
#endif
      }
  }
};

}  // namespace
