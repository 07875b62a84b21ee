// Sizes of the structures that Python mirrors, which it compares when it loads the library: see
// core/kernels/cpu/library.py.
#include "attention.h"
#include "model.h"

#include <cstddef>

namespace {

struct Layout {
  const char* name;
  int64_t size, last;  // bytes; offset of the last field
};

#define LAYOUT(type, field) {#type, sizeof(type), offsetof(type, field)}
constexpr Layout LAYOUTS[] = {
    LAYOUT(Norm, eps),
    LAYOUT(Matrix, slopes),
    LAYOUT(Matrices, columns),
    LAYOUT(Mixture, weighs_input),
    LAYOUT(Latent, kv_up),
    LAYOUT(LayerStep, input_columns),
    LAYOUT(LayerCall, gate),
    LAYOUT(AttentionStep, run_length),
    LAYOUT(AttentionCall, rounded_token),
    LAYOUT(Table, factor),
    LAYOUT(Angles, sin),
    LAYOUT(ModelCall, logit_cap),
};

}  // namespace

// The name of structure `index`, or null if there is none; its size, and the offset of its last
// field.
ROSE_EXPORT const char* rose_layout(int64_t index, int64_t* size, int64_t* last) {
  if (index >= (int64_t)(sizeof(LAYOUTS) / sizeof(*LAYOUTS))) return nullptr;
  *size = LAYOUTS[index].size;
  *last = LAYOUTS[index].last;
  return LAYOUTS[index].name;
}
