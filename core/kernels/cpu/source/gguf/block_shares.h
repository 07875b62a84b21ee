// Rows of x with shares: bytes of runs of 256 values with one scale, of which each 32 have an
// integer share (see ByteRows).
#pragma once
#include "block_rows.h"

namespace {

// A run consists of parts, with a share each.
constexpr int64_t PARTS = TILE / CHUNK;

// Where quad `i` of a run goes: to where products read it.
template <class T>
constexpr int64_t turn_of(int64_t i) {
  constexpr int64_t G = group_quads<T>();
  return i / (2 * G) * (2 * G) + i % G * 2 + i / G % 2;
}

#if defined(__AVX512BW__) && ROSE_WIDTH == 16
// The largest magnitudes of the parts of a run, and NaN or zero: whether a value is not finite (see
// Range).
ROSE_INLINE float highest_of(const float* x, float highest[PARTS]) {
  __m512 most[PARTS];
  vf none = vf{};
  for (int64_t i = 0; i < PARTS; i++) {
    vf a = load(x + i * CHUNK), b = load(x + i * CHUNK + W);
    none += a * 0;
    none += b * 0;
    most[i] = _mm512_max_ps(_mm512_abs_ps((__m512)a), _mm512_abs_ps((__m512)b));
  }
  // Halve the lanes of each part, and join two parts: then each 64 bits have one.
  for (int i = 0; i < 4; i++)
    most[i] = _mm512_max_ps(_mm512_shuffle_f32x4(most[i], most[i + 4], 0x44),
                            _mm512_shuffle_f32x4(most[i], most[i + 4], 0xee));
  for (int i = 0; i < 2; i++)
    most[i] = _mm512_max_ps(_mm512_shuffle_f32x4(most[i], most[i + 2], 0x88),
                            _mm512_shuffle_f32x4(most[i], most[i + 2], 0xdd));
  __m512 pairs =
      _mm512_max_ps(_mm512_unpacklo_ps(most[0], most[1]), _mm512_unpackhi_ps(most[0], most[1]));
  // 128 bits have two parts in turn: 0 and 1, 4 and 5, 2 and 3, 6 and 7
  pairs = _mm512_max_ps(pairs, _mm512_permute_ps(pairs, 0x4e));
  const __m512i order = _mm512_setr_epi32(0, 1, 8, 9, 4, 5, 12, 13, 0, 0, 0, 0, 0, 0, 0, 0);
  _mm256_storeu_ps(highest, _mm512_castps512_ps256(_mm512_permutexvar_ps(order, pairs)));
  return any(none != none) ? std::numeric_limits<float>::quiet_NaN() : 0;
}

// Round a run: part i times factors[i]. Its sums are multiplied by times[i], and most[i] is what
// products of a code can add up to (see Totals). Bytes of a run with NaN or infinity may be -128;
// its scale is NaN.
template <class T>
ROSE_INLINE void round_parts(const float* x, const float* factors, const int32_t* times,
                             int8_t* codes, int16_t* sums, int32_t* most) {
  // what packing two times leaves: lane 4 * i + n has quad i of vector n
  alignas(64) int32_t places[W];
  for (int i = 0; i < W; i++) places[turn_of<T>(i)] = i % 4 * 4 + i / 4;
  __m512i order = _mm512_load_si512(places);
  vu ones = vu{} + 0x01010101u;
  constexpr int GROUPS = 64 / T::SUM_RUN;  // of two parts
  for (int64_t part = 0; part < PARTS; part += 2, x += 64, codes += 64) {
    __m512i v[4];
    for (int n = 0; n < 4; n++) v[n] = (__m512i)nearest(load(x + n * W) * factors[part + n / 2]);
    __m512i packed =
        _mm512_packs_epi16(_mm512_packs_epi32(v[0], v[1]), _mm512_packs_epi32(v[2], v[3]));
    packed = _mm512_permutexvar_epi32(order, packed);
    _mm512_storeu_si512(codes, packed);
    vi magnitudes = dot_small_bytes(vi{}, (vu)_mm512_abs_epi8(packed), ones);
    vi both = dot_small_bytes(magnitudes << 16, ones, (vu)packed);
    if (GROUPS == 2) both += (vi)::rotate<8>((vf)both);
    both += (vi)::rotate<4>((vf)both);
    both += (vi)::rotate<2>(
        (vf)both);  // lanes 0 and 1 have the groups, and lanes 8 and 9 the other two of four
    for (int i = 0; i < GROUPS; i++) {
      int32_t own = both[i / 2 * 8 + i % 2], sum = (int16_t)own;
      int64_t at = part + i * 2 / GROUPS;
      *sums++ = (int16_t)(sum * times[at]);
      int32_t limit = limit_of<T>(sum, (own - sum) >> 16);
      most[at] = i % (GROUPS / 2) ? std::max(most[at], limit) : limit;
    }
  }
}
#else
ROSE_INLINE float highest_of(const float* x, float highest[PARTS]) {
  float odd = 0;
  for (int64_t i = 0; i < PARTS; i++) {
    Range part(x, i * CHUNK, (i + 1) * CHUNK);
    highest[i] = part.highest;
    odd += part.odd;
  }
  return odd;
}

template <class T>
ROSE_INLINE void round_parts(const float* x, const float* factors, const int32_t* times,
                             int8_t* codes, int16_t* sums, int32_t* most) {
  uint32_t from[TILE / 4], to[TILE / 4];
  for (int64_t i = 0; i < PARTS; i++, sums += CHUNK / T::SUM_RUN)
    most[i] =
        round_values<T>(x + i * CHUNK, CHUNK, factors[i], times[i], (int8_t*)from + i * CHUNK, sums)
            .most;
  for (int64_t i = 0; i < TILE / 4; i++) to[turn_of<T>(i)] = from[i];
  memcpy(codes, to, TILE);
}
#endif

// x[k] is close to codes[k] * factors[k / T::X_RUN * 2] * shares[k / CHUNK], but for the order of
// quads in codes (turn_of). K is a multiple of T::X_RUN.
template <class T>
void round_to_shares(const float* x, int64_t K, int8_t* codes, float* factors, int16_t* sums,
                     int32_t* shares) {
  static_assert(T::X_RUN == TILE);
  for (int64_t first = 0; first < K;
       first += TILE, factors += 2, shares += PARTS, sums += TILE / T::SUM_RUN) {
    float highest[PARTS], parts[PARTS];
    int32_t times[PARTS], most[PARTS];
    Range range{0, highest_of(x + first, highest)};
    for (int64_t i = 0; i < PARTS; i++) range.highest = std::max(range.highest, highest[i]);
    float factor = range.template factor<127>(), shares_of_one = SHARES / range.highest;
    int squares = 0;
    for (int64_t i = 0; i < PARTS; i++) {  // the least share with room for all
      float share = std::ceil(highest[i] * shares_of_one);
      shares[i] = share > 1 ? (int)std::min(share, (float)SHARES) : 1;
      squares += shares[i] * shares[i];
    }
    // errors of a chunk are in proportion to its share: products with shares take longer, and have
    // to be worth it
    bool has_parts = range.highest > 0 && squares * 3 < PARTS * SHARES * SHARES;
    if (!has_parts) std::fill_n(shares, PARTS, SHARES);
    factors[0] = range.template scale<127>() / SHARES;
    auto round = [&] {
      for (int64_t i = 0; i < PARTS; i++) {
        parts[i] = factor * ((float)SHARES / (float)shares[i]);
        times[i] = T::HAS_MIN ? shares[i] : 1;
      }
      round_parts<T>(x + first, parts, times, codes + first, sums, most);
    };
    round();
    // A larger share makes smaller bytes. Where all of the scale is too little for a part, no share
    // is raised for nothing.
    int32_t least[PARTS];
    std::copy_n(shares, PARTS, least);
    float needs = has_parts ? Needs::SHARES : Needs::NOTHING;
    for (bool is_again = true; is_again;) {
      is_again = false;
      for (int64_t i = 0; i < PARTS && needs != Needs::BITS; i++) {
        if (!is_large<T>(most[i])) continue;
        is_again = true;
        if (shares[i] < SHARES) {
          shares[i]++;
          continue;
        }
        needs = Needs::BITS;
        std::copy_n(least, PARTS, shares);
      }
      if (is_again) round();
    }
    factors[1] = needs;
  }
}

}  // namespace
