// Kernels that other kernels call. Their sources state the contracts.
#pragma once
#include "vec.h"

ROSE_EXPORT void rose_linear(int format, int epilogue, const float* x, int64_t ldx, int64_t M, int64_t K, int64_t N,
                             const char* weight, const float* scale, const float* bias, float* y, int64_t ldy,
                             const float* residual);
ROSE_EXPORT void rose_norm(const float* x, int64_t count, int64_t heads, int64_t outer, int64_t inner, int64_t n,
                           int64_t center, double eps, const float* weight, const float* bias, float* y);
ROSE_EXPORT void rose_rotary(const float* x, int64_t tokens, int64_t heads, int64_t token, int64_t head, int64_t n,
                             int64_t rotated, const float* cos, const float* sin, float* y);
