// The kinds of stages by name. See bench/in_process/stage_times.py.
#include "laps.h"
#include "vec.h"

// Null behind the last one.
ROSE_EXPORT const char* rose_stage_name(int64_t kind) {
  switch ((stage::Kind)kind) {
    case stage::TEAM:
      return "start and end of threads";
    case stage::EMBEDDING:
      return "embedding";
    case stage::NORM:
      return "norms, rounding of their result";
    case stage::PROJECTIONS:
      return "queries, keys and values";
    case stage::KEYS:
      return "RoPE, writing keys and values";
    case stage::ATTEND_ONE:
      return "attention of one token";
    case stage::ATTEND_MANY:
      return "attention of several tokens";
    case stage::FOLD:
      return "folding parts of attention";
    case stage::ROUND:
      return "rounding";
    case stage::OUTPUT:
      return "output projection";
    case stage::UP:
      return "gate, up, activation";
    case stage::DOWN:
      return "down";
    case stage::ROUTE:
      return "router";
    case stage::SHARED:
      return "shared expert";
    case stage::ADD_EXPERTS:
      return "sum of experts";
    case stage::LAST_NORM:
      return "last norm";
    case stage::HEAD:
      return "output layer";
    case stage::BEST:
      return "best tokens";
    case stage::NUM_KINDS:
      break;
  }
  return nullptr;
}
