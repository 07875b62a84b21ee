// Tiles of AMX: whether this process may use them, and their configuration.
#pragma once
#include "vec.h"

#if defined(ROSE_AMX)
#include <sys/syscall.h>
#include <unistd.h>

namespace amx {

constexpr int ROWS = 16;  // of a tile

// Whether the kernel lets this process use tiles. Asks once.
inline bool is_permitted() {
  constexpr long REQUEST = 0x1023, TILE_DATA = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
#if defined(ROSE_REFUSE_TILES)                      // for tests
  return false;
#endif
  static const bool is_permitted = syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
  return is_permitted;
}

// The configuration of tiles while it exists. Tiles 0 to 3 are sums, 4 and 5 hold x, 6 and 7
// weights. Other libraries use the tiles of these threads too, so they are configured for every
// product. With fewer than 16 rows of x, tiles 0 to 5 have only these. A row of x in tile 4 has 4 *
// first_quads bytes and is multiplied by tile 6, one in tile 5 has 4 * second_quads bytes and is
// multiplied by tile 7; products that mix them have the same in both.
class Tiles {
 public:
  explicit Tiles(int num_rows = ROWS, int first_quads = ROWS, int second_quads = ROWS) {
    struct alignas(64) {
      uint8_t palette = 1, rest[15] = {};
      uint16_t row_bytes[16] = {};
      uint8_t rows[16] = {};
    } config;
    for (int i = 0; i < 8; i++) {
      config.row_bytes[i] = 64;
      config.rows[i] = (uint8_t)num_rows;
    }
    config.row_bytes[4] = (uint16_t)(4 * first_quads);
    config.row_bytes[5] = (uint16_t)(4 * second_quads);
    config.rows[6] = (uint8_t)first_quads;
    config.rows[7] = (uint8_t)second_quads;
    // GCC 12 believes that the next instruction reads only the first 8 bytes, and may drop the
    // others (PR 114098)
    __asm__ volatile("" : : "r"(&config) : "memory");
    _tile_loadconfig(&config);
  }
  Tiles(const Tiles&) = delete;
  ~Tiles() { _tile_release(); }
};

// What was stored before is in memory when a tile is loaded: compilers do not know that tile loads
// read memory.
ROSE_INLINE void stores_before_loads() { __asm__ volatile("" : : : "memory"); }

}  // namespace amx
#endif
