// y = x @ w.T + bias, with weights packed once at load. See core/kernels/cpu/linear.py.
//
// A tile of the team is a group of panels. All rows of x are multiplied with a group while the L2 cache holds
// it, and the next group is prefetched meanwhile. The sum of an output runs over k in order for any number of
// rows, so a row's result does not depend on its batch.
#include "linear.h"

#include "epilogue.h"
#include "linear_amx.h"
#include "linear_rows.h"

#include <algorithm>
#include <type_traits>
#include <vector>

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
          auto xv = x[r * ldx + s];
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
          sums[r][c] += __builtin_convertvector(a[r][c], vf) * rows.scales[r * rows.lds + run];
        else
          sums[r][c] = a[r][c];
      }
  }
}

ROSE_INLINE void put(float* y, vf v, int64_t count) {
  if (count >= W) {
    store(y, v);
  } else {
    for (int i = 0; i < count; i++) y[i] = v[i];
  }
}

ROSE_INLINE vf get(const float* x, int64_t count) {
  if (count >= W) return load(x);
  vf v = vf{};
  for (int i = 0; i < count; i++) v[i] = x[i];
  return v;
}

void finish(const Job& job, int64_t row, int64_t panel, vf a, vf b) {
  int64_t column = panel * PANEL;
  if (job.scale) {
    a *= load(job.scale + column);
    b *= load(job.scale + column + W);
  }
  if (job.bias) {
    a += load(job.bias + column);
    b += load(job.bias + column + W);
  }
  a = activate(job.epilogue, a);
  if (is_gated(job.epilogue)) {
    put(job.y + row * job.ldy + panel * W, a * b, job.N / 2 - panel * W);
    return;
  }
  int64_t at = row * job.ldy + column, left = job.N - column;
  b = activate(job.epilogue, b);
  if (job.residual) {
    a += get(job.residual + at, left);
    b += get(job.residual + at + W, left - W);
  }
  put(job.y + at, a, left);
  put(job.y + at + W, b, left - W);
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
    for (int r = 0; r < ROWS; r++)
      for (int p = 0; p < PANELS; p++) finish(job, row + r, panel + p, sums[r][2 * p], sums[r][2 * p + 1]);
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

#if defined(ROSE_AMX)
// The same for products of tiles.
struct TiledProduct : Product<PackedBFloat16> {
  using Session = amx::Tiles;
  static constexpr int64_t ROWS = 2 * amx::ROWS;
  int64_t num_blocks;

  TiledProduct(const Job& job, const Rows<PackedBFloat16>& all_rows, int64_t num_threads)
      : Product(job, all_rows, num_threads), num_blocks((job.M + ROWS - 1) / ROWS) {}

  // What row block i prefetches while it multiplies `panel`.
  Prefetch ahead(int64_t panel, int64_t distance, int64_t i) const {
    if (!is_panel(panel + distance)) return {};
    int64_t lines = amx::STEPS * PackedBFloat16::BYTES / 64, part = panel_bytes / num_blocks;
    return {job.weight + (panel + distance) * panel_bytes + i * part, (lines + num_blocks - 1) / num_blocks};
  }

  void put(const float* sums, int64_t row, int64_t count, int64_t panel, int64_t panels) const {
    for (int64_t r = 0; r < count; r++, sums += amx::COLUMNS)
      for (int64_t p = 0; p < panels; p++) finish(job, row + r, panel + p, load(sums + p * PANEL), load(sums + p * PANEL + W));
  }

  void compute(int64_t g, int64_t next) const {
    alignas(64) float sums[ROWS * amx::COLUMNS];
    int64_t first = g * group, last = std::min(first + group, num_panels), distance = (next - g) * group;
    for (int64_t i = 0, row = 0; row < job.M; i++, row += ROWS) {
      const char* x = (const char*)(all_rows.x + row * all_rows.ldx);
      int64_t ldx = all_rows.ldx * 4, count = std::min(ROWS, job.M - row);
      for (int64_t p = first; p < last;) {
        const char* w = job.weight + p * panel_bytes;
        bool is_few = count <= amx::ROWS;
        int64_t panels = is_few && p + 2 <= last ? 2 : 1;
        if (!is_few) amx::many_rows(x, ldx, w, steps, ahead(p, distance, i), sums);
        else if (panels == 2) amx::few_rows<2>(x, ldx, w, panel_bytes, steps, sums);
        else amx::few_rows<1>(x, ldx, w, panel_bytes, steps, sums);
        put(sums, row, count, p, panels);
        p += panels;
      }
    }
  }
};
#endif

// Matrices that follow each other in memory. Each is multiplied with its own rows of x, which are sorted by
// matrix: those of matrix i end before ends[i].
struct Matrices {
  int64_t count;
  const int64_t* ends;
  int64_t bytes, columns;  // of a matrix; columns of whole panels

  // The product of matrix i, if all rows of x were `all`.
  Job of(const Job& all, int64_t i) const {
    int64_t start = i ? ends[i - 1] : 0;
    Job job = all;
    job.M = ends[i] - start;
    job.weight += i * bytes;
    if (job.scale) job.scale += i * columns;
    if (job.bias) job.bias += i * columns;
    job.y += start * job.ldy;
    return job;
  }
};

constexpr int64_t MORE_ROWS = 32;  // tiles read rows beyond the last one

// The form in which rows of x are multiplied: steps and scales of a row, and where they are.
template <class P>
struct Prepared {
  static constexpr bool IS_X = P::K_PER_STEP == 1;  // they are multiplied as they are
  using Value = typename P::Activation;
  int64_t steps, num_scales, M;
  explicit Prepared(const Job& job)
      : steps(steps_of<P>(job.K)), num_scales(P::SUMMED == ALL ? 0 : (job.K + P::SUMMED - 1) / P::SUMMED), M(job.M) {}
  int64_t values_bytes() const { return ((M + MORE_ROWS) * steps * sizeof(Value) + 63) / 64 * 64; }
  int64_t bytes() const { return IS_X ? 0 : values_bytes() + M * num_scales * sizeof(float); }
  Value* values(char* at) const { return (Value*)at; }
  float* scales(char* at) const { return (float*)(at + values_bytes()); }

  Rows<P> rows(const Job& job, const char* at) const {
    if constexpr (IS_X) return {job.x, job.ldx, nullptr, 0};
    else return {values((char*)at), steps, scales((char*)at), num_scales};
  }
};

// Call f with the type of the product that this CPU computes fastest.
template <class P, class F>
void with_product(F f) {
#if defined(ROSE_AMX)
  if constexpr (std::is_same_v<P, PackedBFloat16>) {
    if (amx::is_permitted()) return f((TiledProduct*)nullptr);
  }
#endif
  f((Product<P>*)nullptr);
}

// Compute products one after the other, as one stage.
template <class T>
void compute_all(team::Member& member, const std::vector<T>& products, const std::vector<int64_t>& starts) {
  typename T::Session session;
  (void)session;
  member.stage(starts.back(), [&](int64_t i, int64_t next) {
    int64_t m = std::upper_bound(starts.begin(), starts.end(), i) - starts.begin() - 1;
    products[m].compute(i - starts[m], next < 0 ? next : next - starts[m]);
  });
}

template <class P>
void run_all(const Job& all, const Matrices& matrices) {
  static thread_local Scratch scratch;
  Prepared<P> form(all);
  char* prepared = scratch.take<char>(form.bytes());
  Rows<P> rows = form.rows(all, prepared);
  int64_t num_used = 0;
  for (int64_t i = 0; i < matrices.count; i++) num_used += matrices.of(all, i).M > 0;
  if (num_used == 0) return;
  with_product<P>([&](auto* kind) {
    using T = std::remove_pointer_t<decltype(kind)>;
    int64_t share = (omp_get_max_threads() + num_used - 1) / num_used, start = 0;
    std::vector<T> products;
    std::vector<int64_t> starts{0};
    for (int64_t i = 0; i < matrices.count; start = matrices.ends[i++]) {
      Job job = matrices.of(all, i);
      if (job.M == 0) continue;
      products.emplace_back(job, rows.from(start), share);
      starts.push_back(starts.back() + products.back().num_groups);
    }
    team::run(all.M * all.N * all.K <= SMALL_PRODUCT, [&](team::Member& member) {
      if (!Prepared<P>::IS_X) member.stage(all.M, [&](int64_t r, int64_t) { prepare_row(all, r, prepared); });
      compute_all(member, products, starts);
    });
  });
}

}  // namespace

int64_t prepared_bytes(const Job& job) {
  return with_layout(job.format, [&](auto layout) { return Prepared<decltype(layout)>(job).bytes(); });
}

void prepare_row(const Job& job, int64_t row, char* prepared) {
  with_layout(job.format, [&](auto layout) {
    using P = decltype(layout);
    if constexpr (!Prepared<P>::IS_X) {
      Prepared<P> form(job);
      prepare(layout, job.x + row * job.ldx, job.K, form.values(prepared) + row * form.steps,
              form.scales(prepared) + row * form.num_scales);
    }
  });
}

void product_stage(team::Member& member, const Job& job, const char* prepared) {
  with_layout(job.format, [&](auto layout) {
    using P = decltype(layout);
    with_product<P>([&](auto* kind) {
      using T = std::remove_pointer_t<decltype(kind)>;
      T product(job, Prepared<P>(job).rows(job, prepared), member.size);
      typename T::Session session;
      (void)session;
      member.stage(product.num_groups, [&](int64_t g, int64_t next) { product.compute(g, next); });
    });
  });
}

// Whether x is rounded to bfloat16 before the product.
ROSE_EXPORT int64_t rose_rounds_activations(int format) {
  return with_layout(format, [](auto layout) -> int64_t {
    return decltype(layout)::K_PER_STEP == 2 && decltype(layout)::SUMMED == ALL;
  });
}

// y = epilogue(x @ w.T * scale + bias) + residual. x is [M, K] with row stride ldx. y is [M, N] with row
// stride ldy, or [M, N / 2] for gated epilogues, whose weight rows alternate in runs of half a panel: W
// rows of gate, W rows of up. scale (int8 only) and bias are padded to whole panels; bias may be null.
// residual may be null; it has the layout of y and may be y. Gated epilogues ignore it.
ROSE_EXPORT void rose_linear(int format, int epilogue, const float* x, int64_t ldx, int64_t M, int64_t K, int64_t N,
                             const char* weight, const float* scale, const float* bias, float* y, int64_t ldy,
                             const float* residual) {
  Job job{format, epilogue, x, ldx, M, K, N, weight, scale, bias, y, ldy, residual};
  static thread_local Scratch scratch;
  int64_t bytes = prepared_bytes(job);
  char* prepared = scratch.take<char>(bytes);
  team::run(M * N * K <= SMALL_PRODUCT, [&](team::Member& member) {
    if (bytes) member.stage(M, [&](int64_t r, int64_t) { prepare_row(job, r, prepared); });
    product_stage(member, job, prepared);
  });
}

// The same for `count` matrices of one shape, each with its own rows of x, which are contiguous and sorted by
// matrix: those of matrix i end before ends[i]. The matrices are `bytes` apart, and their scale and bias
// `columns` values. Rows of y that belong to no matrix are not written.
ROSE_EXPORT void rose_grouped_linear(int format, int epilogue, const float* x, const int64_t* ends, int64_t count,
                                     int64_t K, int64_t N, const char* weight, int64_t bytes, const float* scale,
                                     const float* bias, int64_t columns, float* y, int64_t ldy) {
  if (ends[count - 1] == 0) return;
  Job all{format, epilogue, x, K, ends[count - 1], K, N, weight, scale, bias, y, ldy, nullptr};
  with_layout(format, [&](auto layout) { run_all<decltype(layout)>(all, {count, ends, bytes, columns}); });
}
