// Which experts of a mixture compute a token, and with what weights. router.cpp has it.
#pragma once
#include "layer.h"

// The chosen experts of a token, [per_token], in falling order of what they are chosen by, the
// first of equal ones first, and their weights. `logits`, of all experts, are overwritten. With a
// softmax NaN makes all weights NaN; chosen experts exist in any case.
void choose_experts(const Mixture& mixture, float* logits, int64_t* chosen, float* weights);
