// Products with narrow blocks.
#include "block_linear.h"

void multiply_narrow_blocks(team::Member& member, const Job& job, const Groups* groups,
                            const char* prepared) {
  with_narrow_type(job.format, [&](auto type) {
    multiply_blocks<decltype(type)>(member, job, groups, prepared);
  });
}
