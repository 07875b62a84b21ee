// How long the threads of a team take for the kinds of stages of a step, if anybody asks.
#pragma once
#include <chrono>
#include <cstdint>

namespace stage {

enum Kind {
  TEAM,  // threads that start and end, or have nothing to do in a small step
  EMBEDDING,
  NORM,
  PROJECTIONS,
  KEYS,
  ATTEND_ONE,
  ATTEND_MANY,
  FOLD,
  ROUND,
  OUTPUT,
  UP,
  DOWN,
  ROUTE,
  SHARED,
  ADD_EXPERTS,
  LAST_NORM,
  HEAD,
  BEST,
  NUM_KINDS
};

}  // namespace stage

// What a team has measured: two numbers for each kind. Part 0 has the multiplications and the bytes
// of weights or of keys and values that all stages of the kind had, as far as they are known
// before; the others have the nanoseconds in which a thread computed, and those in which it waited
// for the others. Null pointers: nothing is measured.
struct StageTimes {
  int64_t* parts = nullptr;  // [1 + threads, stage::NUM_KINDS, 2]

  explicit operator bool() const { return parts; }
  int64_t* of_thread(int index) const {
    return parts ? parts + (1 + index) * 2 * stage::NUM_KINDS : nullptr;
  }
  // The first `count` threads have waited until now, each since it left: see Laps.
  void end(int count) const;
  void count(stage::Kind kind, int64_t multiplications, int64_t bytes) const {
    parts[2 * kind] += multiplications;
    parts[2 * kind + 1] += bytes;
  }
};

inline int64_t nanoseconds_now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

inline void StageTimes::end(int count) const {
  if (!parts) return;
  int64_t now = nanoseconds_now();
  for (int i = 0; i < count; i++) of_thread(i)[2 * stage::TEAM + 1] += now;
}

// The clock of a thread. Every moment between its start and its end belongs to the kind of a stage,
// as the time before the end of its tiles or as that in which it waited for those of others.
class Laps {
 public:
  Laps() = default;
  Laps(int64_t* sums, int64_t start) : sums_(sums), last_(start) {}

  // What comes next is of this kind.
  void begin(stage::Kind kind) { kind_ = kind; }
  void computed() { lap(kind_, 0); }
  void computed(stage::Kind kind) { lap(kind, 0); }
  void waited() { lap(kind_, 1); }

  // This thread has nothing more to do. StageTimes::end adds the time of the end.
  void leave() {
    if (sums_) sums_[2 * stage::TEAM + 1] -= last_;
  }

 private:
  int64_t* sums_ = nullptr;
  int64_t last_ = 0;
  stage::Kind kind_ = stage::TEAM;

  void lap(stage::Kind kind, int is_wait) {
    if (__builtin_expect(!sums_, 1)) return;
    int64_t now = nanoseconds_now();
    sums_[2 * kind + is_wait] += now - last_;
    last_ = now;
  }
};
