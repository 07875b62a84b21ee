// Products of bfloat16 tiles with AMX: 16 rows of x and 32 values of k against 16 columns of a panel.
//
// A product of any number of rows uses whole tiles. The rows beyond it are computed and dropped, so a row has
// the same bits in every batch.
#pragma once
#include "linear_rows.h"

#if defined(ROSE_AMX)
#include <sys/syscall.h>
#include <unistd.h>

namespace amx {

constexpr int ROWS = 16, STEPS = 16, COLUMNS = 2 * PANEL;  // COLUMNS of the sums, which are two panels wide

// Whether the kernel lets this process use tiles. Asks once.
inline bool is_permitted() {
  constexpr long REQUEST = 0x1023, TILE_DATA = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  static const bool is_permitted = syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
  return is_permitted;
}

// Tiles 0 to 3 are sums, the others hold x and weights. Other libraries use the tiles of these threads too, so
// they are configured for every product. With fewer than 16 rows of x, tiles 0 to 5 have only these.
class Tiles {
 public:
  explicit Tiles(int num_rows = ROWS) {
    struct alignas(64) {
      uint8_t palette = 1, rest[15] = {};
      uint16_t row_bytes[16] = {};
      uint8_t rows[16] = {};
    } config;
    for (int i = 0; i < 8; i++) {
      config.row_bytes[i] = 64;
      config.rows[i] = (uint8_t)(i < 6 ? num_rows : ROWS);
    }
    // GCC 12 believes that the next instruction reads only the first 8 bytes, and may drop the others (PR 114098)
    __asm__ volatile("" : : "r"(&config) : "memory");
    _tile_loadconfig(&config);
  }
  ~Tiles() { _tile_release(); }
};

// Bytes from a tile to the one of the same panel that is prefetched. The loads of tiles are strided, which the
// hardware prefetcher follows badly.
constexpr int64_t NEAR = 4096;

// sums[r][c] for 16 rows and one or two panels. x has a row stride of ldx bytes. The time is that of reading w.
template <int PANELS>
inline void few_rows(const char* x, int64_t ldx, const char* w, int64_t panel_bytes, int64_t steps, float* sums) {
  _tile_zero(0);
  _tile_zero(1);
  if (PANELS == 2) {
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t s = 0; s < steps; s += STEPS, w += STEPS * 128, x += STEPS * 4) {
    for (int64_t p = 0; p < PANELS; p++)
      for (int64_t i = 0; i < STEPS * 128; i += 64) __builtin_prefetch(w + p * panel_bytes + NEAR + i);
    _tile_loadd(4, x, ldx);
    _tile_loadd(5, w, 128);
    _tile_dpbf16ps(0, 4, 5);
    _tile_loadd(6, w + 64, 128);
    _tile_dpbf16ps(1, 4, 6);
    if (PANELS == 2) {
      _tile_loadd(7, w + panel_bytes, 128);
      _tile_dpbf16ps(2, 4, 7);
      _tile_loadd(5, w + panel_bytes + 64, 128);
      _tile_dpbf16ps(3, 4, 5);
    }
  }
  constexpr int64_t stride = COLUMNS * sizeof(float);
  _tile_stored(0, sums, stride);
  _tile_stored(1, sums + 16, stride);
  if (PANELS == 2) {
    _tile_stored(2, sums + 32, stride);
    _tile_stored(3, sums + 48, stride);
  }
}

// sums[r][c] for 32 rows and one panel.
inline void many_rows(const char* x, int64_t ldx, const char* w, int64_t steps, Prefetch ahead, float* sums) {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t s = 0; s < steps; s += STEPS, w += STEPS * 128, x += STEPS * 4) {
    ahead.fetch();
    _tile_loadd(4, x, ldx);
    _tile_loadd(6, w, 128);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, w + 64, 128);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, x + ROWS * ldx, ldx);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  constexpr int64_t stride = COLUMNS * sizeof(float);
  _tile_stored(0, sums, stride);
  _tile_stored(1, sums + 16, stride);
  _tile_stored(2, sums + ROWS * COLUMNS, stride);
  _tile_stored(3, sums + ROWS * COLUMNS + 16, stride);
}

}  // namespace amx
#endif
