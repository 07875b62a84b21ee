// Lay blocks out anew in panels, and read their values. block_formats.h defines types and layouts.
#include "block_pack.h"

#include "block_formats.h"

#include <omp.h>

namespace {

ROSE_INLINE void put_half(char* p, int column, uint16_t bits) { memcpy(p + column * 2, &bits, 2); }
ROSE_INLINE uint16_t get_half(const char* p, int column) {
  return half_at((const uint8_t*)p + column * 2);
}

// Write the numbers of a block of a column, given where its tile (wide) or block (narrow) starts in
// the panel.
template <class T>
void put_head(const uint8_t* block, int column, char* to) {
  put_half(to, column, T::scale(block));
  if (T::HAS_MIN) put_half(to + HALVES, column, T::minimum(block));
  if constexpr (T::IS_WIDE) {
    int8_t scales[T::GROUPS], minimums[T::GROUPS];
    T::read_groups(block, scales, minimums);
    for (int64_t g = 0; g < T::GROUPS; g++) to[T::SCALES + g * PANEL + column] = (char)scales[g];
    if constexpr (T::HAS_MIN)
      for (int64_t g = 0; g < T::GROUPS; g++)
        to[T::MINIMUMS + (g / 2 * PANEL + column) * 2 + g % 2] = (char)minimums[g];
  }
}

// Write a block of each column, which starts at `offset` of its row.
template <class T>
void put_blocks(const uint8_t* const* rows, int64_t offset, int columns, char* to) {
  for (int c = 0; c < columns; c++) put_head<T>(rows[c] + offset, c, to);
  alignas(64) uint32_t quads[QUADS][PANEL] = {};
  for (int64_t chunk = 0; chunk < T::BLOCK / CHUNK; chunk++) {
    for (int c = 0; c < columns; c++) {
      alignas(32) uint8_t codes[CHUNK];
      T::read(rows[c] + offset, chunk, codes);
      for (int i = 0; i < QUADS; i++) memcpy(&quads[i][c], codes + 4 * i, 4);
    }
    Codes<T::BITS>::put(to + T::codes_at(chunk), quads);
  }
}

// Values of a chunk with a scale (times that of the group) and a minimum (times that of the group).
template <class T>
ROSE_INLINE void put_values(uint8_t codes[CHUNK], const float* scales, float minimum, float* y) {
  if (T::IS_LOOKED_UP)
    for (int64_t j = 0; j < CHUNK; j++) codes[j] = (uint8_t)(NON_LINEAR[codes[j]] + T::OFFSET);
  for (int64_t j = 0; j < CHUNK; j += W) {
    vi whole = (load_bytes((const char*)codes + j) & 0xff) - T::OFFSET;
    vf values = __builtin_convertvector(whole, vf) * scales[j / T::SUM_RUN];
    if constexpr (T::HAS_MIN) values += T::IS_WIDE ? -minimum : minimum;
    store(y + j, values);
  }
}

// The values of a chunk of a column of a panel.
template <class T>
void get_chunk(const char* panel, int column, int64_t chunk, float* y) {
  constexpr int64_t CHUNKS_OF_BLOCK = T::BLOCK / CHUNK,
                    BYTES = T::IS_WIDE ? T::TILE_BYTES : T::codes_at(1) - T::codes_at(0);
  const char* block = panel + chunk / CHUNKS_OF_BLOCK * BYTES;
  int64_t inside = chunk % CHUNKS_OF_BLOCK;
  float scales[2], minimum = T::HAS_MIN ? widen_half(get_half(block + HALVES, column)) : 0;
  scales[0] = scales[1] = widen_half(get_half(block, column));
  if constexpr (T::IS_WIDE) {
    constexpr int64_t GROUPS_OF_CHUNK = CHUNK / T::GROUP;
    for (int64_t g = 0; g < GROUPS_OF_CHUNK; g++)
      scales[g] *= (int8_t)block[T::SCALES + (inside * GROUPS_OF_CHUNK + g) * PANEL + column];
    if constexpr (T::HAS_MIN)
      minimum *= (int8_t)block[T::MINIMUMS + (inside / 2 * PANEL + column) * 2 + inside % 2];
  }
  uint32_t quads[QUADS];
  uint8_t codes[CHUNK];
  Codes<T::BITS>::get(block + T::codes_at(inside), column, quads);
  memcpy(codes, quads, CHUNK);
  put_values<T>(codes, scales, minimum, y);
}

// The values of a block as it is in a file.
template <class T>
void get_block(const uint8_t* block, float* y) {
  float scale = widen_half(T::scale(block)), minimum = widen_half(T::minimum(block));
  int8_t group_scales[16] = {}, group_minimums[16] = {};
  if constexpr (T::IS_WIDE) T::read_groups(block, group_scales, group_minimums);
  for (int64_t chunk = 0; chunk < T::BLOCK / CHUNK; chunk++, y += CHUNK) {
    uint8_t codes[CHUNK];
    float scales[2] = {scale, scale}, own = minimum;
    if constexpr (T::IS_WIDE) {
      for (int64_t g = 0; g < CHUNK / T::GROUP; g++)
        scales[g] *= group_scales[chunk * (CHUNK / T::GROUP) + g];
      own *= group_minimums[chunk];
    }
    T::read(block, chunk, codes);
    put_values<T>(codes, scales, own, y);
  }
}

}  // namespace

// Values of a block, and its bytes in a file.
ROSE_EXPORT int64_t rose_block_values(int format) {
  return with_block_type(format, [](auto type) -> int64_t { return decltype(type)::BLOCK; });
}
ROSE_EXPORT int64_t rose_block_bytes(int format) {
  return with_block_type(format, [](auto type) -> int64_t { return decltype(type)::FILE_BYTES; });
}

// Bytes of a panel; K is a multiple of the block.
ROSE_EXPORT int64_t rose_block_panel_bytes(int format, int64_t K) {
  return with_block_type(format,
                         [&](auto type) { return block_panel_bytes<decltype(type)>(K / CHUNK); });
}

// Lay out N rows of K values, which are as in a file. out has room for whole panels and is zero.
ROSE_EXPORT void rose_pack_blocks(int format, const uint8_t* const* rows, int64_t N, int64_t K,
                                  char* out) {
  with_block_type(format, [&](auto type) {
    using T = decltype(type);
    int64_t count = K / T::BLOCK, bytes = block_panel_bytes<T>(K / CHUNK);
#pragma omp parallel for schedule(static)
    for (int64_t p = 0; p < (N + PANEL - 1) / PANEL; p++) {
      int64_t first = p * PANEL, columns = std::min<int64_t>(PANEL, N - first);
      for (int64_t b = 0; b < count; b++)
        put_blocks<T>(rows + first, b * T::FILE_BYTES, (int)columns,
                      out + p * bytes + b * (bytes / count));
    }
  });
}

// y[i] = row ids[i] of packed blocks in float32, exactly.
ROSE_EXPORT void rose_unpack_blocks(int format, const char* weight, const int64_t* ids,
                                    int64_t count, int64_t K, float* y) {
  with_block_type(format, [&](auto type) {
    using T = decltype(type);
#pragma omp parallel for schedule(static) if (count * K >= MIN_PARALLEL)
    for (int64_t i = 0; i < count; i++) {
      const char* panel = weight + ids[i] / PANEL * block_panel_bytes<T>(K / CHUNK);
      for (int64_t chunk = 0; chunk < K / CHUNK; chunk++)
        get_chunk<T>(panel, (int)(ids[i] % PANEL), chunk, y + i * K + chunk * CHUNK);
    }
  });
}

// The values of `count` blocks as they are in a file, in float32, exactly.
ROSE_EXPORT void rose_dequantise_blocks(int format, const uint8_t* blocks, int64_t count,
                                        float* y) {
  with_block_type(format, [&](auto type) {
    using T = decltype(type);
#pragma omp parallel for schedule(static) if (count * T::BLOCK >= MIN_PARALLEL)
    for (int64_t i = 0; i < count; i++) get_block<T>(blocks + i * T::FILE_BYTES, y + i * T::BLOCK);
  });
}
