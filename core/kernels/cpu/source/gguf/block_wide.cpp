// Products with wide blocks, and the choice between the two.
#include "block_linear.h"

void multiply_narrow_blocks(team::Member& member, const Job& job, const Groups* groups,
                            const char* prepared);

namespace {

void multiply(team::Member& member, const Job& job, const Groups* groups, const char* prepared) {
  if (!is_wide(job.format)) return multiply_narrow_blocks(member, job, groups, prepared);
  with_wide_type(job.format, [&](auto type) {
    multiply_blocks<decltype(type)>(member, job, groups, prepared);
  });
}

}  // namespace

int64_t prepared_block_bytes(const Job& job) {
  return with_block_type(job.format,
                         [&](auto type) { return BlockRows<decltype(type)>(job).bytes(); });
}

void prepare_block_row(const Job& job, int64_t row, char* prepared, int64_t part, int64_t parts) {
  with_block_type(job.format, [&](auto type) {
    prepare_bytes<decltype(type)>(job, row, prepared, part, parts);
  });
}

void block_product_stage(team::Member& member, const Job& job, const char* prepared) {
  multiply(member, job, nullptr, prepared);
}

void expect_block_product(team::Member& member, const Job& job, const char* prepared) {
  with_block_type(job.format, [&](auto type) {
    using T = decltype(type);
    read_own_weights(member, BlockProduct<T>(job, BlockRows<T>(job).at(prepared), member.size));
  });
}

void grouped_block_stage(team::Member& member, const Job& all, const Groups& groups,
                         const char* prepared) {
  multiply(member, all, &groups, prepared);
}
