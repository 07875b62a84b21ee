// What the packing of matrices and that of blocks share, and what pack.cpp passes on for weights in
// blocks.
#pragma once
#include "vec.h"

constexpr int64_t MIN_PARALLEL = 1 << 14;  // values; below, waking threads costs more than it saves

ROSE_EXPORT int64_t rose_block_panel_bytes(int format, int64_t K);
ROSE_EXPORT void rose_unpack_blocks(int format, const char* weight, const int64_t* ids,
                                    int64_t count, int64_t K, float* y);
