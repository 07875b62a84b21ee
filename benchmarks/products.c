/* Measures the rates of products in registers: products THREADS
 *
 * Prints three numbers, in 10^9 operations per second of THREADS threads together (a multiply-add is two): those of
 * float32, bfloat16 and int8, by the fastest instruction that this CPU has for each. Without one for bfloat16 that is
 * the float32 multiply-add; without one for bytes, that of pairs of int16. The fastest of nine passes counts.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif
#if defined(__AMX_BF16__) && defined(__AMX_INT8__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#define TILES
#endif

#include "vectors.h"

typedef int32_t ints __attribute__((vector_size(WIDTH)));

#define PASSES 9
#define ROUNDS 200000L
#define ONE_BYTE 0x3d /* floats of these bytes, and their products, are far from denormal and from infinity */

static int threads;
static pthread_barrier_t barrier;
static volatile double sink;

/* Runs `product` ROUNDS times on CHAINS vectors of sums. `product` may use s, a, b and i. The loops over them are unrolled,
 * and whole vectors are added: otherwise GCC keeps the sums in memory, and measures its stores. Each product reads an `a` that
 * may have changed: otherwise the compiler multiplies once before the loop, and measures additions. */
#define EACH_CHAIN _Pragma("GCC unroll 12") for (int i = 0; i < CHAINS; i++)
#define CHAIN(type, product)                           \
    type s[CHAINS], a, b, all = {0};                   \
    memset(&a, ONE_BYTE, sizeof a);                    \
    memset(&b, ONE_BYTE, sizeof b);                    \
    EACH_CHAIN s[i] = (type){0};                       \
    for (long r = 0; r < ROUNDS; r++) {                \
        EACH_CHAIN {                                   \
            __asm__ volatile("" : "+x"(a));            \
            s[i] = product;                            \
            __asm__ volatile("" : "+x"(s[i]));         \
        }                                              \
    }                                                  \
    EACH_CHAIN all += s[i];                 \
    total += all[0];

/* Each returns the operations of a pass on one thread. */
static double float32_pass(double *sum) {
    double total = 0;
    CHAIN(floats, s[i] + a * b)
    *sum += total;
    return 2.0 * ROUNDS * CHAINS * (WIDTH / 4);
}

#if defined(TILES)
static int are_tiles_permitted(void) { return syscall(SYS_arch_prctl, 0x1023, 18) == 0; }

static void configure(void) {
    struct __attribute__((aligned(64))) {
        uint8_t palette, rest[15];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } config = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        config.row_bytes[i] = 64;
        config.rows[i] = 16;
    }
    __asm__ volatile("" : : "r"(&config) : "memory");
    _tile_loadconfig(&config);
}

/* If tiles are permitted, end the pass with ROUNDS products of two tiles with `depth` values of k. */
#define TRY_TILES(product, depth)               \
    if (are_tiles_permitted()) {                \
        configure();                            \
        for (long r = 0; r < ROUNDS / 4; r++) { \
            product(0, 4, 6);                   \
            product(1, 4, 7);                   \
            product(2, 5, 6);                   \
            product(3, 5, 7);                   \
        }                                       \
        _tile_release();                        \
        return 2.0 * ROUNDS * 16 * 16 * depth;  \
    }
#else
#define TRY_TILES(product, depth)
#endif

static double bfloat16_pass(double *sum) {
    TRY_TILES(_tile_dpbf16ps, 32)
#if defined(__AVX512BF16__)
    double total = 0;
    CHAIN(floats, (floats)_mm512_dpbf16_ps((__m512)s[i], (__m512bh)a, (__m512bh)b))
    *sum += total;
    return 2.0 * ROUNDS * CHAINS * (WIDTH / 2);
#else
    return float32_pass(sum);
#endif
}

static double int8_pass(double *sum) {
    TRY_TILES(_tile_dpbssd, 64)
    double total = 0, rate = 0;
#if defined(__AVX512VNNI__)
    CHAIN(ints, (ints)_mm512_dpbusd_epi32((__m512i)s[i], (__m512i)a, (__m512i)b))
    rate = 2.0 * ROUNDS * CHAINS * WIDTH;
#elif defined(__AVXVNNI__)
    CHAIN(ints, (ints)_mm256_dpbusd_avx_epi32((__m256i)s[i], (__m256i)a, (__m256i)b))
    rate = 2.0 * ROUNDS * CHAINS * WIDTH;
#elif defined(__AVX2__)
    CHAIN(ints, s[i] + (ints)_mm256_madd_epi16((__m256i)a, (__m256i)b))
    rate = 2.0 * ROUNDS * CHAINS * (WIDTH / 2);
#else
    rate = float32_pass(&total);
#endif
    *sum += total;
    return rate;
}

static double (*const PASS[3])(double *) = {float32_pass, bfloat16_pass, int8_pass};
static double rates[3]; /* written by thread 0 only */

static void *work(void *argument) {
    double total = 0;
    for (int kind = 0; kind < 3; kind++)
        for (int pass = 0; pass < PASSES; pass++) {
            pthread_barrier_wait(&barrier);
            double start = now(), operations = PASS[kind](&total);
            pthread_barrier_wait(&barrier);
            double rate = operations * threads / (now() - start) / 1e9;
            if (argument == NULL && rate > rates[kind])
                rates[kind] = rate;
        }
    sink = total;
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 2 || (threads = atoi(argv[1])) < 1 || threads > 256)
        return 2;
    pthread_barrier_init(&barrier, NULL, threads);
    pthread_t ids[256];
    for (int i = 1; i < threads; i++)
        if (pthread_create(&ids[i], NULL, work, (void *)(size_t)i))
            return 1;
    work(NULL);
    for (int i = 1; i < threads; i++)
        pthread_join(ids[i], NULL);
    printf("%.2f %.2f %.2f\n", rates[0], rates[1], rates[2]);
    return 0;
}
