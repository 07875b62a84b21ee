// y = x @ w.T + bias, with weights packed once at load. See core/kernels/linear.py for contracts.
#include "vec.h"

#include <omp.h>

#include <algorithm>
#include <vector>

namespace {

enum Format { FLOAT32 = 0, BFLOAT16 = 1, INT8 = 2 };
enum Epilogue { NONE = 0, GELU_TANH = 1, SILU = 2, SILU_GATE = 3, GELU_TANH_GATE = 4 };

// A panel is 2 * W columns: for every k one vector of W pairs (column j, column W + j). In a
// pair-wise product (gate and up) the pair is gate j and up j.
constexpr int PANEL = 2 * W;

template <int F>
struct Packed;

template <>
struct Packed<FLOAT32> {
  using T = float;
  static constexpr int64_t bytes_per_k = 2 * W * 4;
  static inline void get(const char* p, vf& a, vf& b) {
    a = load((const float*)p);
    b = load((const float*)p + W);
  }
  static inline void put(char* p, int j, float first, float second) {
    ((float*)p)[j] = first;
    ((float*)p)[W + j] = second;
  }
};

template <>
struct Packed<BFLOAT16> {
  static constexpr int64_t bytes_per_k = 2 * W * 2;
  static inline void get(const char* p, vf& a, vf& b) {
    vu u = *(const vu_u*)p;
    a = (vf)(u << 16);
    b = (vf)(u & 0xffff0000u);
  }
  static inline void put(char* p, int j, float first, float second) {
    ((uint16_t*)p)[2 * j] = narrow(first);
    ((uint16_t*)p)[2 * j + 1] = narrow(second);
  }
};

template <>
struct Packed<INT8> {
  static constexpr int64_t bytes_per_k = 2 * W;
  static inline void get(const char* p, vf& a, vf& b) {
    a = widen_int8(p);
    b = widen_int8(p + W);
  }
};

#if ROSE_WIDTH == 16
constexpr int MAX_ROWS = 6, MAX_VECTORS = 24;
#elif ROSE_WIDTH == 8
constexpr int MAX_ROWS = 6, MAX_VECTORS = 12;
#else
constexpr int MAX_ROWS = 8, MAX_VECTORS = 24;
#endif

constexpr int panels_for(int rows) {
  int p = MAX_VECTORS / (2 * rows);
  return p >= 4 ? 4 : p >= 2 ? 2 : 1;
}

struct Job {
  const float* x;  // [rows, K], row stride ldx, or packed tiles of [K][rows of tile]
  int64_t M, K, N, ldx;
  const char* weight;
  const float* scale;  // [columns], int8 only
  const float* bias;   // [columns] or null
  float* y;
  int64_t ldy;
};

ROSE_INLINE vf tanh_v(vf x) {
  vf e = exp(2.0f * x);
  return 1.0f - 2.0f / (e + 1.0f);
}
ROSE_INLINE vf gelu_tanh(vf x) {
  return 0.5f * x * (1.0f + tanh_v(0.7978845608f * (x + 0.044715f * x * x * x)));
}
ROSE_INLINE vf silu(vf x) { return x / (1.0f + exp(-x)); }

// The share of the next panels that one pass over these asks for, so that they are on their way
// from memory while this is computed.
struct Ahead {
  const char* at;
  int64_t lines;  // a panel
  void fetch() {
    for (int64_t i = 0; i < lines; i++) __builtin_prefetch(at + i * 64, 0, 2);
    at += lines * 64;
  }
};

template <int F, int ROWS, int PANELS>
void tile(const float* x, int64_t K, const char* w, int64_t panel_bytes, vf acc[ROWS][2 * PANELS]) {
  vf a[ROWS][2 * PANELS];
  for (int r = 0; r < ROWS; r++)
    for (int c = 0; c < 2 * PANELS; c++) a[r][c] = vf{};
  for (int64_t k = 0; k < K; k++) {
#pragma GCC unroll 4
    for (int p = 0; p < PANELS; p++) {
      const char* q = w + p * panel_bytes + k * Packed<F>::bytes_per_k;
      if (ROWS <= 2) __builtin_prefetch(q + 1024);
      vf b0, b1;
      Packed<F>::get(q, b0, b1);
#pragma GCC unroll 8
      for (int r = 0; r < ROWS; r++) {
        float xv = x[k * ROWS + r];
        a[r][2 * p] += xv * b0;
        a[r][2 * p + 1] += xv * b1;
      }
    }
  }
  for (int r = 0; r < ROWS; r++)
    for (int c = 0; c < 2 * PANELS; c++) acc[r][c] = a[r][c];
}

ROSE_INLINE void put(float* y, vf v, int64_t count) {
  if (count >= W) {
    store(y, v);
  } else {
    for (int i = 0; i < count; i++) y[i] = v[i];
  }
}

template <int E>
ROSE_INLINE void finish(const Job& job, int64_t row, int64_t panel, vf a, vf b) {
  int64_t column = panel * PANEL;
  if (job.scale) {
    a *= load(job.scale + column);
    b *= load(job.scale + column + W);
  }
  if (job.bias) {
    a += load(job.bias + column);
    b += load(job.bias + column + W);
  }
  if (E == SILU_GATE || E == GELU_TANH_GATE) {
    vf gate = E == SILU_GATE ? silu(a) : gelu_tanh(a);
    put(job.y + row * job.ldy + panel * W, gate * b, job.N / 2 - panel * W);
    return;
  }
  if (E == GELU_TANH) {
    a = gelu_tanh(a);
    b = gelu_tanh(b);
  } else if (E == SILU) {
    a = silu(a);
    b = silu(b);
  }
  float* y = job.y + row * job.ldy + column;
  put(y, a, job.N - column);
  if (job.N > column + W) put(y + W, b, job.N - column - W);
}

template <int F, int E, int ROWS>
void rows_by_panels(const Job& job, const float* x, int64_t row, int64_t first, int64_t last, Ahead ahead) {
  constexpr int P = panels_for(ROWS);
  int64_t panel_bytes = job.K * Packed<F>::bytes_per_k;
  int64_t panel = first;
  for (; panel + P <= last; panel += P) {
    for (int p = 0; p < P; p++) ahead.fetch();
    vf acc[ROWS][2 * P];
    tile<F, ROWS, P>(x, job.K, job.weight + panel * panel_bytes, panel_bytes, acc);
    for (int r = 0; r < ROWS; r++)
      for (int p = 0; p < P; p++)
        finish<E>(job, row + r, panel + p, acc[r][2 * p], acc[r][2 * p + 1]);
  }
  for (; panel < last; panel++) {
    vf acc[ROWS][2];
    tile<F, ROWS, 1>(x, job.K, job.weight + panel * panel_bytes, panel_bytes, acc);
    for (int r = 0; r < ROWS; r++) finish<E>(job, row + r, panel, acc[r][0], acc[r][1]);
  }
}

template <int F, int E>
void some_rows(const Job& job, const float* x, int rows, int64_t row, int64_t first, int64_t last, Ahead ahead) {
  switch (rows) {
    case 1: return rows_by_panels<F, E, 1>(job, x, row, first, last, ahead);
    case 2: return rows_by_panels<F, E, 2>(job, x, row, first, last, ahead);
    case 3: return rows_by_panels<F, E, 3>(job, x, row, first, last, ahead);
    case 4: return rows_by_panels<F, E, 4>(job, x, row, first, last, ahead);
    case 5: return rows_by_panels<F, E, 5>(job, x, row, first, last, ahead);
    case 6: return rows_by_panels<F, E, 6>(job, x, row, first, last, ahead);
  }
}

// Rows of tile i when M rows are cut into tiles as equal as can be.
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

template <int F, int E>
void run(const Job& job) {
  Tiles tiles(job.M);
  int64_t num_panels = (job.N + PANEL - 1) / PANEL;
  static thread_local std::vector<float> scratch;
  if ((int64_t)scratch.size() < job.M * job.K) scratch.resize(job.M * job.K);
  float* packed = scratch.data();
  // panels that stay in the second-level cache while all rows pass over them
  int64_t group = std::max<int64_t>(4, (256 << 10) / (job.K * Packed<F>::bytes_per_k) / 4 * 4);
  // a small product is done before another thread is awake
#pragma omp parallel if (job.M * job.N * job.K > (1 << 18))
  {
    int64_t T = omp_get_num_threads(), t = omp_get_thread_num();
    const float* base = job.x;
    if (job.M > 1) {
      base = packed;
#pragma omp for schedule(static)
      for (int64_t i = 0; i < tiles.count; i++) {
        int64_t row = tiles.start(i);
        int n = tiles.rows(i);
        float* out = packed + row * job.K;
        for (int r = 0; r < n; r++) {
          const float* in = job.x + (row + r) * job.ldx;
          for (int64_t k = 0; k < job.K; k++) out[k * n + r] = in[k];
        }
      }
    }
    int64_t first = num_panels * t / T, last = num_panels * (t + 1) / T;
    int64_t panel_bytes = job.K * Packed<F>::bytes_per_k;
    for (int64_t p = first; p < last; p += group) {
      int64_t next = std::min(p + group, last), lines = panel_bytes / 64 / tiles.count;
      if (next == last) lines = 0;
      for (int64_t i = 0; i < tiles.count; i++) {
        Ahead ahead{job.weight + next * panel_bytes + i * lines * 64 * group, lines};
        some_rows<F, E>(job, base + tiles.start(i) * job.K, tiles.rows(i), tiles.start(i), p, next, ahead);
      }
    }
  }
}

template <int F>
void dispatch(const Job& job, int epilogue) {
  switch (epilogue) {
    case NONE: return run<F, NONE>(job);
    case GELU_TANH: return run<F, GELU_TANH>(job);
    case SILU: return run<F, SILU>(job);
    case SILU_GATE: return run<F, SILU_GATE>(job);
    case GELU_TANH_GATE: return run<F, GELU_TANH_GATE>(job);
  }
}

}  // namespace

// Columns of a panel, and bytes that one k of it takes.
ROSE_EXPORT int64_t rose_panel() { return PANEL; }
ROSE_EXPORT int64_t rose_panel_bytes(int format) {
  return format == FLOAT32    ? Packed<FLOAT32>::bytes_per_k
         : format == BFLOAT16 ? Packed<BFLOAT16>::bytes_per_k
                              : Packed<INT8>::bytes_per_k;
}

// w is [N, K]; out takes whole panels, its last one filled up with zeros. `scale` is written for
// int8 only: the largest magnitude of each row over 127.
ROSE_EXPORT void rose_pack_linear(int format, const float* w, int64_t N, int64_t K, char* out, float* scale) {
  int64_t num_panels = (N + PANEL - 1) / PANEL;
#pragma omp parallel for schedule(static)
  for (int64_t p = 0; p < num_panels; p++) {
    float inverse[PANEL];
    for (int j = 0; j < PANEL && format == INT8; j++) {
      int64_t n = p * PANEL + j;
      float most = 0;
      for (int64_t k = 0; k < K && n < N; k++) most = std::max(most, std::fabs(w[n * K + k]));
      scale[n] = most / 127;
      inverse[j] = most > 0 ? 127 / most : 0;
    }
    for (int j = 0; j < W; j++) {
      int64_t a = p * PANEL + j, b = a + W;
      for (int64_t k = 0; k < K; k++) {
        float first = a < N ? w[a * K + k] : 0, second = b < N ? w[b * K + k] : 0;
        int64_t line = p * K + k;
        if (format == FLOAT32) {
          Packed<FLOAT32>::put(out + line * Packed<FLOAT32>::bytes_per_k, j, first, second);
        } else if (format == BFLOAT16) {
          Packed<BFLOAT16>::put(out + line * Packed<BFLOAT16>::bytes_per_k, j, first, second);
        } else {
          int8_t* q = (int8_t*)(out + line * Packed<INT8>::bytes_per_k);
          q[j] = (int8_t)std::lrintf(first * inverse[j]);
          q[W + j] = (int8_t)std::lrintf(second * inverse[W + j]);
        }
      }
    }
  }
}

// Row ids[i] of w, as float32: an embedding that shares its weights with the output layer.
ROSE_EXPORT void rose_unpack_rows(int format, const char* weight, const float* scale, const int64_t* ids,
                                  int64_t count, int64_t K, float* y) {
  for (int64_t i = 0; i < count; i++) {
    int64_t panel = ids[i] / PANEL, j = ids[i] % PANEL;
    for (int64_t k = 0; k < K; k++) {
      int64_t line = panel * K + k;
      if (format == FLOAT32)
        y[i * K + k] = ((const float*)(weight + line * Packed<FLOAT32>::bytes_per_k))[j];
      else if (format == BFLOAT16)
        y[i * K + k] = widen(((const uint16_t*)(weight + line * Packed<BFLOAT16>::bytes_per_k))[j % W * 2 + j / W]);
      else
        y[i * K + k] = ((const int8_t*)(weight + line * Packed<INT8>::bytes_per_k))[j] * scale[ids[i]];
    }
  }
}

// y = epilogue(x @ w.T * scale + bias). x is [M, K] with rows ldx apart, y [M, N] with rows ldy
// apart, or [M, N / 2] for the gated epilogues, whose weight rows alternate in runs of half a panel
// (W of the gate, W of the rest). scale (int8) and bias hold whole panels.
ROSE_EXPORT void rose_linear(int format, int epilogue, const float* x, int64_t ldx, int64_t M, int64_t K, int64_t N,
                             const char* weight, const float* scale, const float* bias, float* y, int64_t ldy) {
  Job job{x, M, K, N, ldx, weight, scale, bias, y, ldy};
  if (format == FLOAT32) dispatch<FLOAT32>(job, epilogue);
  else if (format == BFLOAT16) dispatch<BFLOAT16>(job, epilogue);
  else dispatch<INT8>(job, epilogue);
}
