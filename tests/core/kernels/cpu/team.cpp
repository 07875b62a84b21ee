// Teams of threads that come when they like. See test_team.py.
#include "team.h"

#include <sys/mman.h>

#include <thread>
#include <vector>

// Run body(member) on `size` threads.
template <class F>
void on_threads(team::Shared& shared, int size, F body) {
  shared.begin(size);
  std::vector<std::thread> threads;
  for (int i = 0; i < size; i++)
    threads.emplace_back([&, i] {
      team::Member member(shared, i, size);
      body(member);
    });
  for (std::thread& thread : threads) thread.join();
}

#define EXPORT extern "C" __attribute__((visibility("default")))

// Stages of many sizes; some tiles take long. Returns the number of tiles that were not computed once, or that
// began before all tiles of the stage before were complete.
EXPORT int64_t wrong_tiles(int size, int num_stages, int order) {
  static const int64_t COUNTS[] = {1, 0, 2, 7, 64, 1, 3, 500};
  team::Shared shared;
  std::atomic<int64_t> complete{0}, early{0};
  std::vector<std::vector<std::atomic<int>>> computed;
  for (int s = 0; s < num_stages; s++) computed.emplace_back(COUNTS[s % 8]);
  on_threads(shared, size, [&](team::Member& member) {
    int64_t before = 0;
    for (int s = 0; s < num_stages; s++) {
      member.stage(
          COUNTS[s % 8],
          [&](int64_t i, int64_t) {
            early += complete < before;
            computed[s][i]++;
            if ((i * 7 + s * 13) % 97 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
            complete++;
          },
          (team::Order)order);
      before += COUNTS[s % 8];
      early += complete < before;
    }
  });
  int64_t wrong = early;
  for (auto& stage : computed)
    for (auto& count : stage) wrong += count != 1;
  return wrong;
}

// The last thread arrives when the others have left. Returns the number of tiles that it computed.
EXPORT int64_t tiles_of_a_late_thread(int size, int num_stages) {
  team::Shared shared;
  std::atomic<int> left{0};
  std::atomic<int64_t> late{0};
  on_threads(shared, size, [&](team::Member& member) {
    bool is_late = member.index == size - 1;
    while (is_late && left < size - 1) std::this_thread::yield();
    for (int s = 0; s < num_stages; s++) member.stage(40, [&](int64_t, int64_t) { late += is_late; });
    left++;
  });
  return late;
}

// Whether each thread computes its run of neighbours from front to back, and is told which one is next.
EXPORT bool keeps_runs(int size, int64_t count) {
  team::Shared shared;
  std::atomic<int> ready{0};
  std::atomic<bool> is_kept{true};
  on_threads(shared, size, [&](team::Member& member) {
    int64_t expected = (count * member.index + size - 1) / size, end = (count * (member.index + 1) + size - 1) / size;
    ready++;
    while (ready < size) std::this_thread::yield();
    member.stage(count, [&](int64_t i, int64_t next) {
      bool is_mine = i >= (count * member.index + size - 1) / size && i < end;
      if (!is_mine) return;
      is_kept = is_kept && i == expected && (next == i + 1 || next == -1);
      expected = i + 1;
    });
  });
  return is_kept;
}

EXPORT int64_t most_ahead(int64_t cache) { return team::most_ahead(cache); }

// One of two threads waits for a tile, which ends when the other has read `count` pages ahead. Returns how many of these
// and of the page behind them were read; count - 1 at most if it took too long.
EXPORT int64_t pages_read_while_waiting(int64_t count) {
  using Clock = std::chrono::steady_clock;
  int64_t page = sysconf(_SC_PAGESIZE), size = (count + 1) * page;
  char* memory = (char*)mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  madvise(memory, size, MADV_NOHUGEPAGE);
  auto num_read = [&](int64_t pages) {
    std::vector<unsigned char> is_there(pages);
    mincore(memory, pages * page, is_there.data());
    return std::count_if(is_there.begin(), is_there.end(), [](unsigned char c) { return c & 1; });
  };
  team::Shared shared;
  auto end = Clock::now() + std::chrono::seconds(60);
  on_threads(shared, 2, [&](team::Member& member) {
    member.read_while_waiting(memory, count * page);
    member.stage(1, [&](int64_t, int64_t) {
      while (num_read(count) < count && Clock::now() < end) std::this_thread::yield();
    });
  });
  int64_t found = num_read(count + 1);
  munmap(memory, size);
  return found;
}

// Writes the order in which a thread takes from others, with nodes whose threads end at `ends`.
EXPORT void victims(int index, int size, const int64_t* ends, int num_nodes, int64_t* order) {
  team::node_ends().assign(ends, ends + num_nodes);
  for (int k = 0; k < size; k++) order[k] = team::victim(index, size, k);
  team::node_ends().clear();
}

// Wait for a core; another thread returns it after `microseconds_lent`, or never if that is negative. Returns the
// microseconds of the wait.
EXPORT int64_t microseconds_without_core(int64_t microseconds_lent, int64_t most) {
  using Clock = std::chrono::steady_clock;
  int32_t word = 1;
  auto start = Clock::now();
  std::thread other([&] {
    if (microseconds_lent < 0) return;
    std::this_thread::sleep_for(std::chrono::microseconds(microseconds_lent));
    team::return_core(&word);
  });
  team::await_core(&word, most);
  auto end = Clock::now();
  other.join();
  return std::chrono::duration_cast<std::chrono::microseconds>(end - start).count();
}

// A team of two, whose first thread computes for longer than the second may wait for its core. Returns the microseconds
// after which the second began, or -1 if the core is still lent at the end.
EXPORT int64_t microseconds_until_the_last_thread() {
  using Clock = std::chrono::steady_clock;
  int threads = omp_get_max_threads();
  omp_set_num_threads(2);
  int32_t word = 1;
  int64_t waited = 0;
  auto start = Clock::now();
  auto body = [&](team::Member& member) {
    if (member.index == 0) std::this_thread::sleep_for(std::chrono::microseconds(2 * team::LENT_MICROSECONDS));
    else waited = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start).count();
  };
  team::run(false, body, &word);
  omp_set_num_threads(threads);
  return word ? -1 : waited;
}
