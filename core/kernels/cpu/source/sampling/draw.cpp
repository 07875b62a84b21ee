// One token per row of logits: the best, or one drawn from what min_p, top_k and top_p leave over.
// No row is sorted.
//
// Without filters a draw inverts the distribution function in the order of ids: sums of blocks
// first, then one block. With filters the order is that of rank: higher logit first, lower id first
// among equals. Masses at a few depths below the best token tell how far down top_p reaches. A
// histogram of the tokens above has the mass of each bin. So a rank or a mass is found in one bin,
// and only its tokens are put in order.
//
// A row's token depends only on its logits, filters and bits: one thread computes it, and sums have
// one order.
#include "largest.h"
#include "scratch.h"

#include <omp.h>

#include <vector>

namespace {

constexpr float DEEPEST =
    87;  // tokens with less than exp(-87) of the best one's weight are not drawn
constexpr int BINS = 2048;
constexpr int LEFT_OUT = BINS;  // the bin of tokens that are not ranked
constexpr int COPIES = 4;  // of the histogram, so that an addition need not wait for the one before
constexpr int64_t FEW = 32;    // tokens that are sorted
constexpr int64_t CHUNK = 32;  // blocks whose masses are summed in float32
constexpr int DEPTHS = 6;
constexpr float DEPTH[DEPTHS] = {2, 4, 6, 8, 11, 15};  // in units of the temperature

struct Filters {
  double temperature, min_p, top_p;
  int64_t top_k;
};

// The weight of a token is exp((x - best) / temperature), and 0 below `lowest`.
struct Weights {
  float best, lowest;
  // The parts of 1 / temperature: rounding it would move all weights to one side.
  float inverse, rest;
  Weights(float best, float lowest, double temperature)
      : best(best), lowest(lowest), inverse(1 / temperature),
        rest(1 / temperature - (double)inverse) {}
  ROSE_INLINE_MEMBER vf operator()(vf x) const {
    vf distance = max(x - best, splat(lowest - best));
    return x >= lowest ? exp(distance * inverse + distance * rest) : vf{};
  }
};

struct Token {
  float x, weight;
  int64_t id;
  bool operator<(const Token& other) const {
    return x > other.x || (x == other.x && id < other.id);
  }
};

// Memory of a thread.
struct Memory {
  Scratch maxima, sorted, sums, weights, bins;
  double copies[COPIES]
               [BINS + 1];  // float32 sums of many equal masses would all round the same way
  double mass[BINS];
  int64_t count[BINS + 1];
  std::vector<int64_t> blocks;
  std::vector<Token> tokens;
};

// Not inlined: a compiler would look the address up again in every loop.
__attribute__((noinline)) Memory& memory_of_thread() {
  static thread_local Memory memory;
  return memory;
}

int64_t draw_unfiltered(const float* x, int64_t n, const Weights& weights, double u,
                        Memory& memory) {
  double* sums = memory.sums.take<double>(num_blocks(n));
  alignas(64) float block[BLOCK];
  auto weigh = [&](int64_t b) {  // writes the weights of a block, returns their sum
    vf total = vf{};
    for (int64_t i = 0; i < BLOCK; i += W) {
      vf w = weights(load_until(x + b * BLOCK + i, n - b * BLOCK - i));
      store(block + i, w);
      total += w;
    }
    return (double)sum(total);
  };
  double mass = 0;
  for (int64_t b = 0; b < num_blocks(n); b++) sums[b] = mass += weigh(b);
  double target = u * mass;
  int64_t b = std::upper_bound(sums, sums + num_blocks(n), target) - sums;
  double before = b ? sums[b - 1] : 0, size = weigh(b), inside = 0, passed = 0;
  for (float w : block) inside += w;
  double place = (target - before) / size * inside;
  int64_t token = 0;  // the last one that can be drawn, if rounding leaves none beyond the target
  for (int64_t i = 0; i < BLOCK; i++) {
    if (block[i] > 0) token = i;
    if ((passed += block[i]) > place) break;
  }
  return b * BLOCK + token;
}

struct Masses {
  double total,
      above[DEPTHS];  // above[d]: of the tokens at most DEPTH[d] temperatures below the best one
};

// Write the weights of the blocks that have a token to draw, and sum them.
Masses weigh(const float* x, int64_t n, const Weights& weight, float temperature,
             const float* maxima, float* weights) {
  Masses masses{};
  vf total = vf{}, above[DEPTHS] = {}, bound[DEPTHS];
  for (int d = 0; d < DEPTHS; d++) bound[d] = splat(weight.best - DEPTH[d] * temperature);
  auto flush = [&] {
    masses.total += sum(total);
    total = vf{};
    for (int d = 0; d < DEPTHS; d++) {
      masses.above[d] += sum(above[d]);
      above[d] = vf{};
    }
  };
  for (int64_t b = 0; b < num_blocks(n); b++) {
    if (maxima[b] < weight.lowest) continue;
    for (int64_t i = b * BLOCK; i < (b + 1) * BLOCK; i += W) {
      vf v = load_until(x + i, n - i), w = weight(v);
      store(weights + i, w);
      total += w;
      for (int d = 0; d < DEPTHS; d++) above[d] += v >= bound[d] ? w : vf{};
    }
    if (b % CHUNK == CHUNK - 1) flush();
  }
  flush();
  return masses;
}

// A token, and the mass and number of those up to and with it in the order of rank.
struct Found {
  Token token;
  double mass;
  int64_t count;
};

// The tokens of a row from `bound` up, in bins of equal width. Bin 0 has the highest logits.
class Ranking {
 public:
  // `weights` are those of the blocks whose maximum reaches the bound.
  Ranking(const float* x, int64_t n, float best, float bound, const float* maxima,
          const float* weights, Memory& memory)
      : x(x), weights(weights), memory(memory),
        bins(memory.bins.take<uint16_t>(num_blocks(n) * BLOCK)) {
    float scale = (BINS - 1) / (best - bound);
    if (!(scale < 1e30f)) scale = 0;  // all logits are about equal
    memory.blocks.clear();
    std::fill_n(memory.copies[0], COPIES * (BINS + 1), 0.0);
    for (int64_t b = 0; b < num_blocks(n); b++) {
      if (maxima[b] < bound) continue;
      memory.blocks.push_back(b);
      bool has_ranked[BLOCK / W];
      for (int v = 0; v < BLOCK / W; v++) {
        int64_t i = b * BLOCK + v * W;
        has_ranked[v] = place(load_until(x + i, n - i), i, best, bound, scale);
      }
      for (int v = 0; v < BLOCK / W; v++)
        if (has_ranked[v]) add(b * BLOCK + v * W);
    }
    for (int bin = 0; bin < BINS; bin++) {
      double mass = 0;
      for (int copy = 0; copy < COPIES; copy++) mass += memory.copies[copy][bin];
      memory.mass[bin] = mass;
      if (mass > 0) last_bin = bin;
    }
  }

  // Count the tokens of each bin, for `find`.
  void count() {
    has_counts = true;
    std::fill_n(memory.count, BINS + 1, 0);
    for (int64_t b : memory.blocks)
      for (int64_t i = b * BLOCK; i < (b + 1) * BLOCK; i++) memory.count[bins[i]]++;
  }

  // The first token in the order of rank for which reached(mass, count) up to and with it is true.
  // The last token if there is none. Without `count` before, counts start at 0 in each bin.
  template <class Reached>
  Found find(Reached reached) {
    Found before{};
    for (int bin = 0;; bin++) {
      if (memory.mass[bin] == 0) continue;
      Found after{
          {}, before.mass + memory.mass[bin], before.count + (has_counts ? memory.count[bin] : 0)};
      if (bin == last_bin || reached(after.mass, after.count))
        return find_inside(bin, before, reached);
      before = after;
    }
  }

 private:
  const float *x, *weights;
  Memory& memory;
  uint16_t* bins;
  int last_bin = 0, collected = -1;
  bool has_counts = false;

  // Write the bins of a vector; return whether there is a ranked token.
  ROSE_INLINE_MEMBER bool place(vf v, int64_t i, float best, float bound, float scale) {
    vi is_ranked = v >= bound;
    vf bin = (best - v) * scale, last = splat(BINS - 1);
    bin = is_ranked ? (bin < last ? bin : last) : splat(LEFT_OUT);
    *(vh_u*)(bins + i) = __builtin_convertvector((vu) __builtin_convertvector(bin, vi), vh_u);
    return any(is_ranked);
  }

  ROSE_INLINE_MEMBER void add(int64_t i) {
    for (int lane = 0; lane < W; lane++)
      memory.copies[lane % COPIES][bins[i + lane]] += weights[i + lane];
  }

  void collect(uint16_t bin) {
    memory.tokens.clear();
    for (int64_t b : memory.blocks) {
      const uint16_t* block = bins + b * BLOCK;
      uint16_t hits = 0;
      for (int64_t i = 0; i < BLOCK; i++) hits |= block[i] == bin;
      if (!hits) continue;
      for (int64_t i = 0; i < BLOCK; i++)
        if (block[i] == bin)
          memory.tokens.push_back({x[b * BLOCK + i], weights[b * BLOCK + i], b * BLOCK + i});
    }
    collected = bin;
  }

  template <class Reached>
  Found find_inside(int bin, Found before, Reached reached) {
    if (bin != collected) collect(bin);
    Token *from = memory.tokens.data(), *to = from + memory.tokens.size();
    while (to - from > FEW) {
      Token* middle = from + (to - from) / 2;
      std::nth_element(from, middle, to);
      Found half = before;
      for (Token* token = from; token < middle; token++) half.mass += token->weight;
      half.count += middle - from;
      if (reached(half.mass, half.count)) {
        to = middle;
      } else {
        before = half;
        from = middle;
      }
    }
    std::sort(from, to);
    for (; from < to; from++) {
      before = {*from, before.mass + from->weight, before.count + 1};
      if (reached(before.mass, before.count)) break;
    }
    return before;
  }
};

int64_t draw_ranked(Ranking& ranking, int64_t n, const Filters& filters, double mass, double u) {
  auto earlier = [](const Found& a, const Found& b) { return b.token < a.token ? b : a; };
  bool is_cut = false;
  Found last{};
  if (filters.top_k < n) {
    ranking.count();
    last = ranking.find([&](double, int64_t count) { return count >= filters.top_k; });
    mass = last.mass;
    is_cut = true;
  }
  if (filters.top_p < 1) {
    double limit = filters.top_p * mass;
    Found found = ranking.find([&](double reached, int64_t) { return reached >= limit; });
    last = is_cut ? earlier(last, found) : found;
    mass = last.mass;
    is_cut = true;
  }
  double target = u * mass;
  Found found = ranking.find([&](double reached, int64_t) { return reached > target; });
  return (is_cut ? earlier(last, found) : found).token.id;
}

// A draw limited by filters. `lowest` is the smallest logit that may be drawn without them.
int64_t draw_filtered(const float* x, int64_t n, const Filters& filters, float best, float lowest,
                      const float* maxima, double u, Memory& memory) {
  double temperature = filters.temperature;
  bool has_top_k = filters.top_k < n;
  if (filters.min_p > 0)
    lowest = std::max(lowest, (float)(best + temperature * std::log(filters.min_p)));
  if (has_top_k) {
    float* sorted = memory.sorted.take<float>(num_blocks(n));
    std::copy_n(maxima, num_blocks(n), sorted);
    lowest = std::max(lowest, bound_of_top(filters.top_k, sorted, num_blocks(n)));
  }
  float* weights = memory.weights.take<float>(num_blocks(n) * BLOCK);
  Masses masses = weigh(x, n, {best, lowest, temperature}, temperature, maxima, weights);
  float bound = lowest;
  if (filters.top_p < 1 && !has_top_k)
    for (int d = DEPTHS - 1; d >= 0 && masses.above[d] > filters.top_p * masses.total * (1 + 1e-5);
         d--)
      bound = std::max(lowest, best - DEPTH[d] * (float)temperature);
  Ranking ranking(x, n, best, bound, maxima, weights, memory);
  return draw_ranked(ranking, n, filters, masses.total, u);
}

int64_t draw(const float* x, int64_t n, const Filters& filters, uint64_t bits, Memory& memory) {
  float* maxima = memory.maxima.take<float>(num_blocks(n));
  Extent extent = block_maxima(x, n, maxima);
  float best = extent.highest;
  if (extent.has_nan || best == std::numeric_limits<float>::infinity()) return FAILED;
  if (best == -std::numeric_limits<float>::infinity()) return MASKED;
  if (filters.temperature <= 0) return first_of_highest(x, n, maxima, best);
  double u = (bits >> 12) * 0x1p-52;
  float lowest = std::max(extent.lowest, (float)(best - DEEPEST * filters.temperature));
  if (filters.min_p <= 0 && filters.top_k >= n && filters.top_p >= 1)
    return draw_unfiltered(x, n, {best, lowest, filters.temperature}, u, memory);
  return draw_filtered(x, n, filters, best, lowest, maxima, u, memory);
}

}  // namespace

// The best token of each row of n logits: the first one on ties. FAILED for a row with NaN or
// infinity, MASKED for one of only -inf. x has row stride `stride`.
ROSE_EXPORT void rose_best(const float* x, int64_t count, int64_t stride, int64_t n,
                           int64_t* tokens) {
#pragma omp parallel for schedule(static) if (count > 1)
  for (int64_t row = 0; row < count; row++) tokens[row] = token_of(best_of(x + row * stride, n, 0));
}

// A token for each row of n logits; x has row stride `stride`. FAILED for a row with NaN or
// infinity, MASKED for one of only -inf. filters is [4, count]: temperature (0: the best token),
// min_p (0: off, below 1), top_k (n: off), top_p (1: off, above 0). Draws use the upper 52 of 64
// random bits per row.
ROSE_EXPORT void rose_draw(const float* x, int64_t count, int64_t stride, int64_t n,
                           const double* filters, const uint64_t* bits, int64_t* tokens) {
#pragma omp parallel for schedule(dynamic) if (count > 1)
  for (int64_t row = 0; row < count; row++) {
    Memory& memory = memory_of_thread();
    Filters own{filters[row], filters[count + row], filters[3 * count + row],
                (int64_t)filters[2 * count + row]};
    tokens[row] = draw(x + row * stride, n, own, bits[row], memory);
  }
}
