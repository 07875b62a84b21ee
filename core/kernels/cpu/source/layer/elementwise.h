// Norms, sums and RoPE of one row. There is one compiled copy, so that a row has the same bits
// wherever it is computed.
#pragma once
#include "vec.h"

// y = (x - mean) / sqrt(variance + eps) * weight + bias over n values. Without `center` the mean is
// 0 (RMSNorm). bias may be null. y may be x.
void norm_row(const float* x, int64_t n, bool center, float eps, const float* weight,
              const float* bias, float* y);

// y = base + x * scale over n values, rounded once. y may be x or base.
void add_row(const float* base, const float* x, int64_t n, float scale, float* y);

// y = the gated epilogue of the halves of x, n values each. y may be x.
void gate_row(int epilogue, const float* x, int64_t n, float* y);

// RoPE of the first `rotated` values of a head of n: y = x * cos + rotate_half(x) * sin (RoFormer,
// in the layout of GPT-NeoX). y may be x.
void rotate_head(const float* x, int64_t n, int64_t rotated, const float* cos, const float* sin,
                 float* y);
