// Products of a tile of blocks with tiles of AMX: 16 rows of x at a time.
//
// What a product leaves are integers, as in block_product.h, and floats are added in the same
// order: a row has the same bits as there.
#pragma once
#include "block_expand.h"
#include "linear_rows.h"

#if defined(ROSE_AMX)
namespace {

template <class T>
class WideTiles {
 public:
  static constexpr int QUADS_OF_STEP = 16, STEPS = TILE / (4 * QUADS_OF_STEP);
  // 32-bit numbers of a row: high digits in both vectors of columns, low ones, products with
  // minimums
  static constexpr int64_t CELL_ROW = (T::HAS_MIN ? 6 : 4) * W;
  static constexpr int64_t BYTES = 2 * PLANE + MINIMUM_BYTES + amx::ROWS * CELL_ROW * 4;

  static amx::Tiles configure(int num_rows) {
    return amx::Tiles(num_rows, QUADS_OF_STEP, SUM_DIGITS / 2);
  }

  // `memory` has BYTES bytes and is aligned to a cache line.
  explicit WideTiles(char* memory)
      : planes_(memory), minimums_(memory + 2 * PLANE),
        cells_((int32_t*)(minimums_ + MINIMUM_BYTES)) {}

  void expand(const char* tile, int64_t) {
    expand_wide<T>(tile, planes_);
    if constexpr (T::HAS_MIN) expand_minimums<T>(tile, minimums_);
    load_scales<T>(tile, d_, m_);
    amx::stores_before_loads();
  }

  // Add the products of `count` rows of x and the expanded tile t to sums.
  void multiply(const ByteRows& x, int64_t, int64_t t, int64_t count, float* sums,
                Prefetch& ahead) const {
    if constexpr (T::HAS_MIN) multiply_minimums(x.digits + t * SUM_DIGITS, x.num_digits * 2);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    const int8_t* codes = x.codes + t * TILE;
    const char *high = planes_, *low = planes_ + PLANE;
    for (int step = 0; step < STEPS;
         step++, codes += 4 * QUADS_OF_STEP, high += 2 * EXPANDED, low += 2 * EXPANDED) {
      ahead.fetch();
      _tile_loadd(4, codes, x.ldx);
      _tile_loadd(6, high, 2 * VECTOR);
      if constexpr (Digits<T>::HAS_SIGN)
        _tile_dpbssd(0, 4, 6);
      else
        _tile_dpbsud(0, 4, 6);
      _tile_loadd(6, high + VECTOR, 2 * VECTOR);
      if constexpr (Digits<T>::HAS_SIGN)
        _tile_dpbssd(1, 4, 6);
      else
        _tile_dpbsud(1, 4, 6);
      _tile_loadd(6, low, 2 * VECTOR);
      _tile_dpbsud(2, 4, 6);
      _tile_loadd(6, low + VECTOR, 2 * VECTOR);
      _tile_dpbsud(3, 4, 6);
    }
    _tile_stored(0, cells_, CELL_ROW * 4);
    _tile_stored(1, cells_ + W, CELL_ROW * 4);
    _tile_stored(2, cells_ + 2 * W, CELL_ROW * 4);
    _tile_stored(3, cells_ + 3 * W, CELL_ROW * 4);
    add(count, x.factors + t * 2, x.num_factors, sums);
  }

 private:
  char *planes_, *minimums_;
  int32_t* cells_;
  vf d_[2], m_[2];

  // The tiles of sums are used twice.
  void multiply_minimums(const uint16_t* digits, int64_t stride) const {
    _tile_zero(0);
    _tile_zero(1);
    _tile_loadd(5, digits, stride);
    _tile_loadd(7, minimums_, 2 * VECTOR);
    _tile_dpbf16ps(0, 5, 7);
    _tile_loadd(7, minimums_ + VECTOR, 2 * VECTOR);
    _tile_dpbf16ps(1, 5, 7);
    _tile_stored(0, cells_ + 4 * W, CELL_ROW * 4);
    _tile_stored(1, cells_ + 5 * W, CELL_ROW * 4);
  }

  void add(int64_t count, const float* factors, int64_t num_factors, float* sums) const {
    const vf d[2] = {d_[0], d_[1]}, m[2] = {m_[0], m_[1]};
    const int32_t* cells = cells_;
    for (int64_t r = 0; r < count; r++, cells += CELL_ROW, factors += num_factors, sums += PANEL) {
      const vi* cell = (const vi*)cells;
      vf dots[2], minimums[2];
      for (int h = 0; h < 2; h++) {
        dots[h] = to_float(cell[h] * Digits<T>::BASE + cell[2 + h]);
        if constexpr (T::HAS_MIN) minimums[h] = *(const vf*)&cell[4 + h];
      }
      fold_wide<T>(d, m, *factors, dots, minimums, sums);
    }
  }
};

template <class T>
class NarrowTiles {
 public:
  static constexpr int64_t CELL_ROW = 2 * W, CELL = amx::ROWS * CELL_ROW;  // of a block
  static constexpr int64_t BYTES = PLANE + CHUNKS * CELL * 4;

  static amx::Tiles configure(int num_rows) { return amx::Tiles(num_rows, QUADS, QUADS); }

  explicit NarrowTiles(char* memory) : plane_(memory), cells_((int32_t*)(memory + PLANE)) {}

  void expand(const char* tile, int64_t chunks) {
    expand_narrow<T>(tile, chunks, plane_);
    for (int64_t chunk = 0; chunk < chunks; chunk++)
      load_scales<T>(tile + chunk * T::BLOCK_BYTES, d_[chunk], m_[chunk]);
    amx::stores_before_loads();
  }

  // The same as for wide types; the tile has `chunks` blocks.
  void multiply(const ByteRows& x, int64_t chunks, int64_t t, int64_t count, float* sums,
                Prefetch& ahead) const {
    const int8_t* codes = x.codes + t * TILE;
    for (int64_t chunk = 0; chunk < chunks; chunk += 2) {
      ahead.fetch();
      first_product(codes + chunk * CHUNK, x.ldx, plane_ + chunk * EXPANDED, cells_ + chunk * CELL);
      if (chunk + 1 == chunks) break;
      second_product(codes + (chunk + 1) * CHUNK, x.ldx, plane_ + (chunk + 1) * EXPANDED,
                     cells_ + (chunk + 1) * CELL);
    }
    const float* factors = x.factors + t * CHUNKS * 2;
    for (int64_t r = 0; r < count; r++, factors += x.num_factors, sums += PANEL) {
      vf own[2] = {load(sums), load(sums + W)};
      for (int64_t chunk = 0; chunk < chunks; chunk++) {
        const vi* cell = (const vi*)(cells_ + chunk * CELL + r * CELL_ROW);
        add_narrow<T>(d_[chunk], m_[chunk], factors + chunk * 2, cell, own);
      }
      store(sums, own[0]);
      store(sums + W, own[1]);
    }
  }

 private:
  char* plane_;
  int32_t* cells_;
  vf d_[CHUNKS][2], m_[CHUNKS][2];

  static void first_product(const int8_t* x, int64_t ldx, const char* w, int32_t* cells) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_loadd(4, x, ldx);
    _tile_loadd(6, w, 2 * VECTOR);
    _tile_dpbssd(0, 4, 6);
    _tile_loadd(6, w + VECTOR, 2 * VECTOR);
    _tile_dpbssd(1, 4, 6);
    _tile_stored(0, cells, CELL_ROW * 4);
    _tile_stored(1, cells + W, CELL_ROW * 4);
  }

  // With other tiles, so that neither waits for the other. They cannot be a parameter: GCC's
  // intrinsics are macros that take a tile as a literal number.
  static void second_product(const int8_t* x, int64_t ldx, const char* w, int32_t* cells) {
    _tile_zero(2);
    _tile_zero(3);
    _tile_loadd(5, x, ldx);
    _tile_loadd(7, w, 2 * VECTOR);
    _tile_dpbssd(2, 5, 7);
    _tile_loadd(7, w + VECTOR, 2 * VECTOR);
    _tile_dpbssd(3, 5, 7);
    _tile_stored(2, cells, CELL_ROW * 4);
    _tile_stored(3, cells + W, CELL_ROW * 4);
  }
};

template <class T>
using BlockTiles = std::conditional_t<T::IS_WIDE, WideTiles<T>, NarrowTiles<T>>;

}  // namespace
#endif
