// A team: the threads of one parallel region, which compute many stages of tiles.
//
// All threads run the same code, so they pass the same stages in the same order. A tile is computed
// by the thread that claims it. A stage ends when its tiles are complete, whichever threads have
// arrived: a thread that loses its core between two tiles delays nobody, and finds the stages that
// it missed complete. So the number of tiles of a stage must not depend on what a later stage of
// the region overwrites.
//
// Each thread owns a run of neighbouring tiles and claims from its front. A thread without tiles of
// its own steals from the end of another's run, first from those of its NUMA node. So a thread
// reads the same part of a matrix in every step, in order.
#pragma once
#include <linux/futex.h>
#include <omp.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <memory>
#include <vector>

#include "laps.h"

namespace team {

// Microseconds that a waiting thread spins before it sleeps. Then the system may give its core to
// the thread that it waits for.
constexpr int SPIN_MICROSECONDS = 50;
constexpr int PAUSES = 16;  // between two looks at the clock

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

// Memory that a thread reads into its second-level cache while it waits for others: memory would be
// idle.
class Ahead {
 public:
  void set(const char* at, int64_t bytes) {
    if (at == start_) return;  // known already: go on where it stopped
    start_ = at_ = at;
    end_ = at + bytes;
  }

  // Load some cache lines; returns whether there were any left. Prefetches would not do: Zen 4
  // drops most of those that come faster than memory answers.
  bool load() {
    for (int i = 0; i < LINES && at_ < end_; i++, at_ += 64) (void)*(const volatile char*)at_;
    return at_ < end_;
  }

 private:
  static constexpr int LINES = 8;  // as many as a core gets in a fraction of a microsecond
  const char *start_ = nullptr, *at_ = nullptr, *end_ = nullptr;
};

// Bytes that a thread reads ahead at most, with a second-level cache of so many: half of them. 0 or
// less is unknown.
inline int64_t most_ahead(int64_t cache) {
  constexpr int64_t MOST = 512 << 10;
  return cache > 0 ? std::min(MOST, cache / 2) : MOST;
}

// What the threads share. Nobody reads it outside of a region.
class Shared {
 public:
  // Start a region of `size` threads.
  void begin(int size) {
    if (size > capacity_) {
      claims_.reset(new Claims[size]);
      capacity_ = size;
    }
    for (int i = 0; i < size; i++) claims_[i].word.store(0, std::memory_order_relaxed);
    complete_.store(0, std::memory_order_relaxed);
  }

  bool is_reached(uint32_t target) const {
    return (int32_t)(complete_.load(std::memory_order_acquire) - target) >= 0;
  }

  // Count complete tiles. The thread that reaches the end of the stage wakes those that sleep.
  void add(uint32_t count, uint32_t target) {
    if (complete_.fetch_add(count) + count == target && sleepers_.load() > 0)
      syscall(SYS_futex, &complete_, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
  }

  void wait(uint32_t target, Ahead& ahead) {
    using Clock = std::chrono::steady_clock;
    while (!is_reached(target) && ahead.load()) {}
    for (auto start = Clock::now();
         Clock::now() - start < std::chrono::microseconds(SPIN_MICROSECONDS);)
      for (int i = 0; i < PAUSES; i++) {
        if (is_reached(target)) return;
        pause();
      }
    sleepers_.fetch_add(1);
    for (uint32_t seen; (int32_t)((seen = complete_.load()) - target) < 0;)
      syscall(SYS_futex, &complete_, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
    sleepers_.fetch_sub(1);
  }

  // Claim a tile of a run of `length`, from its front or its end. Returns its index in the run, or
  // -1 if none is left; `has_next` says whether there was another one. `stage` is the number of the
  // stage that ends at `target`.
  int64_t claim(int run, int64_t length, bool is_front, uint64_t stage, uint32_t target,
                bool& has_next) {
    std::atomic<uint64_t>& word = claims_[run].word;
    for (uint64_t seen = word.load(std::memory_order_acquire);;) {
      // a word of another stage is older, unless this stage is over; nobody claims in a later one
      // before that
      bool is_current = seen >> 40 == stage;
      if (!is_current && is_reached(target)) return -1;
      int64_t front = is_current ? seen & LIMIT : 0, back = is_current ? seen >> 20 & LIMIT : 0;
      if (front + back >= length) return -1;
      uint64_t claimed =
          stage << 40 | (uint64_t)(back + !is_front) << 20 | (uint64_t)(front + is_front);
      if (!word.compare_exchange_weak(seen, claimed, std::memory_order_acq_rel,
                                      std::memory_order_acquire))
        continue;
      has_next = front + back + 1 < length;
      return is_front ? front : length - 1 - back;
    }
  }

  static constexpr int64_t LIMIT = (1 << 20) - 1;  // tiles of a run

 private:
  struct alignas(64) Claims {
    std::atomic<uint64_t> word{
        0};  // stage, tiles claimed from the end, tiles claimed from the front
  };
  std::unique_ptr<Claims[]> claims_;
  int capacity_ = 0;
  alignas(64) std::atomic<uint32_t> complete_{0};  // tiles of all stages of this region
  alignas(64) std::atomic<int> sleepers_{0};
};

// The threads of NUMA node n end before node_ends()[n]. Empty if there is one node.
inline std::vector<int>& node_ends() {
  static std::vector<int> ends;
  return ends;
}

// The k-th thread whose run thread `index` of `size` takes tiles from: itself, those of its node,
// the others.
inline int victim(int index, int size, int k) {
  const std::vector<int>& ends = node_ends();
  int first = 0, last = size;
  if (!ends.empty() && ends.back() == size)
    for (int end : ends) {
      if (index < end) {
        last = end;
        break;
      }
      first = end;
    }
  int near = last - first;
  return k < near ? first + (index - first + k) % near : (last + k - near) % size;
}

// A core that the last thread of a team leaves to another thread of this process. The word is 1
// while it is lent; whoever returns it sets 0 and wakes the thread. So the other thread, which
// needs it for a short time and at once, takes it from nobody who computes a tile. The team
// computes meanwhile: it steals the tiles of the thread that has not come.
constexpr int LENT_MICROSECONDS = 4000;  // at most; then the thread computes in any case

inline void await_core(const int32_t* word, int64_t microseconds = LENT_MICROSECONDS) {
  using Clock = std::chrono::steady_clock;
  auto end = Clock::now() + std::chrono::microseconds(microseconds);
  while (__atomic_load_n(word, __ATOMIC_ACQUIRE)) {
    auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(end - Clock::now()).count();
    if (left <= 0) return;
    timespec timeout{left / 1000000000, left % 1000000000};
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, 1, &timeout, nullptr, 0);
  }
}

inline void return_core(int32_t* word) {
  if (__atomic_exchange_n(word, 0, __ATOMIC_ACQ_REL))
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

// How the tiles of a stage are shared out.
enum Order {
  RUNS,      // each thread has a run of its own
  IN_ORDER,  // a free thread takes the first one that is left
};

// A thread of a team, which has `size` threads.
class Member {
 public:
  Member() : shared_(nullptr), index(0), size(1) {}
  Member(Shared& shared, int index, int size) : shared_(&shared), index(index), size(size) {}

  Laps laps;

  // While this thread waits, from now on, it reads ahead: `bytes` from `at` on, in order.
  void read_while_waiting(const char* at, int64_t bytes) { ahead_.set(at, bytes); }

  // The first tile of the run of this thread, or of a later one.
  int64_t first_tile(int64_t count, int later = 0) const { return start_of(index + later, count); }

  // Compute a stage: tile(i, next) for each i < count by one of the threads. `next` is the tile
  // that this thread will probably compute after it, or -1. Afterwards all results are visible to
  // this thread.
  template <class F>
  void stage(int64_t count, F tile, Order order = RUNS) {
    if (size == 1) {
      for (int64_t i = 0; i < count; i++) tile(i, i + 1 < count ? i + 1 : -1);
      if (count) laps.computed();
      return;
    }
    for (int64_t first = 0; first < count; first += Shared::LIMIT)
      part_of_stage(first, std::min(count - first, Shared::LIMIT), tile, order);
  }

 private:
  Shared* shared_;

 public:
  const int index, size;

 private:
  uint64_t stage_ = 0;   // number of the current stage, from 1 on
  uint32_t target_ = 0;  // tiles of all stages up to the current one
  Ahead ahead_;

  // The first tile of a run.
  int64_t start_of(int run, int64_t count) const { return (count * run + size - 1) / size; }

  template <class F>
  void part_of_stage(int64_t first, int64_t count, F& tile, Order order) {
    stage_++;
    target_ += (uint32_t)count;
    uint32_t num_computed = 0;
    for (int k = 0; k < (order == RUNS ? size : 1); k++) {
      int run = order == RUNS ? victim(index, size, k) : 0;
      int64_t start = order == RUNS ? start_of(run, count) : 0,
              end = order == RUNS ? start_of(run + 1, count) : count;
      bool is_front = order == IN_ORDER || k == 0, has_next = false;
      for (int64_t i;
           (i = shared_->claim(run, end - start, is_front, stage_, target_, has_next)) >= 0;
           num_computed++) {
        int64_t at = first + start + i;
        tile(at, has_next && order == RUNS ? at + (is_front ? 1 : -1) : -1);
      }
    }
    if (num_computed) shared_->add(num_computed, target_);
    laps.computed();
    if (shared_->is_reached(target_)) return;
    shared_->wait(target_, ahead_);
    laps.waited();
  }
};

// Run body(member) on all threads, or on this one if `is_small`: then waking threads costs more
// than it saves. `lent` is the word of a core that the last thread leaves to another one, or null.
// `times` has room for omp_get_max_threads().
template <class F>
void run(bool is_small, F body, int32_t* lent = nullptr, StageTimes times = {}) {
  static thread_local Shared shared;
  int size = omp_get_max_threads(), num_started = 1;
  int64_t start = times ? nanoseconds_now() : 0;
  if (is_small || size == 1) {
    Member alone;
    alone.laps = Laps(times.of_thread(0), start);
    body(alone);
    alone.laps.leave();
    for (int i = 1; times && i < size; i++) Laps(times.of_thread(i), start).leave();
    return times.end(size);
  }
  Shared& ours = shared;
  ours.begin(size);
#pragma omp parallel num_threads(size)
  {
    Member member(ours, omp_get_thread_num(), omp_get_num_threads());
    member.laps = Laps(times.of_thread(member.index), start);
    if (member.index == 0) num_started = member.size;
    if (lent && member.index == member.size - 1) await_core(lent);
    member.laps.waited();
    body(member);
    member.laps.leave();
    if (lent && member.index == 0) return_core(lent);  // there is nothing left to compute
  }
  times.end(num_started);
}

}  // namespace team
