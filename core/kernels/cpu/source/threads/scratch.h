// Memory that a thread keeps between calls.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

struct Scratch {
  std::vector<char> memory;
  // `n` values, aligned to a cache line. Their content is undefined.
  template <class T>
  T* take(size_t n) {
    size_t bytes = n * sizeof(T) + 64;
    if (memory.size() < bytes) memory.resize(bytes);
    return (T*)(((uintptr_t)memory.data() + 63) & ~(uintptr_t)63);
  }
};
