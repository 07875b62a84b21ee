// Products with weights in blocks, as linear.h has them for other formats.
#pragma once
#include "linear.h"

int64_t prepared_block_bytes(const Job& job);
void prepare_block_row(const Job& job, int64_t row, char* prepared, int64_t part, int64_t parts);
void block_product_stage(team::Member& member, const Job& job, const char* prepared);
void grouped_block_stage(team::Member& member, const Job& all, const Groups& groups,
                         const char* prepared);
void expect_block_product(team::Member& member, const Job& job, const char* prepared);
