/* Measures the limits of this machine: probe THREADS MEGABYTES SECONDS
 *
 * Prints two numbers. The first is the rate, in 10^9 bytes per second, at which THREADS threads
 * together read a buffer of MEGABYTES (10^6 bytes; use far more than the last-level cache): the
 * fastest pass within SECONDS, of three loops in turn: without prefetches, with near ones and with
 * far ones. Which one is fastest depends on the CPU and on the state of its memory. The second is their rate of float32
 * multiply-adds in registers, in 10^9 floating point operations per second (a multiply-add is two): the fastest of five
 * passes.
 *
 * Vectors are those of GCC, as wide as the compiler's target, so that one source serves AVX2,
 * AVX-512 and ARM. A pass of all threads takes as long as the slowest thread.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "vectors.h"

typedef long long ints __attribute__((vector_size(WIDTH)));

#define HUGE_PAGE ((size_t)2 << 20)
#define MAX_THREADS 256
#define ROUNDS 4000000L
#define LINE 64

static int threads;
static size_t bytes; /* of one thread */
static double seconds;
static char *buffer;
static atomic_int arrived, generation;
static double read_rate, fma_rate; /* written by thread 0 only */
static volatile double sink;

/* Spins: a barrier that sleeps would cost more than a pass over a small buffer. */
static void barrier(void) {
    int mine = atomic_load(&generation);
    if (atomic_fetch_add(&arrived, 1) == threads - 1) {
        atomic_store(&arrived, 0);
        atomic_fetch_add(&generation, 1);
    } else {
        while (atomic_load(&generation) == mine) {
        }
    }
}

#define EACH_VECTOR(prefetch)                                     \
    for (size_t i = 0; i + 4 * WIDTH <= bytes; i += 4 * WIDTH) {  \
        const ints *v = (const ints *)(p + i);                    \
        for (size_t line = 0; line < 4 * WIDTH; line += LINE) {   \
            prefetch;                                             \
        }                                                         \
        a += v[0];                                                \
        b += v[1];                                                \
        c += v[2];                                                \
        d += v[3];                                                \
    }

static double read_pass(const char *p, int kind) {
    ints a = {0}, b = a, c = a, d = a;
    if (kind == 0) {
        EACH_VECTOR()
    } else if (kind == 1) {
        EACH_VECTOR(__builtin_prefetch(p + i + 4096 + line))
    } else {
        EACH_VECTOR(__builtin_prefetch(p + i + 16384 + line, 0, 2))
    }
    a += b + c + d;
    return (double)a[0];
}

static double fma_pass(void) {
    floats x[CHAINS], m = {0}, n = {0};
    m += 0.999f;
    n += 0.001f;
    for (int i = 0; i < CHAINS; i++)
        x[i] = n + (float)i;
    for (long r = 0; r < ROUNDS / CHAINS; r++) {
#pragma GCC unroll 12
        for (int i = 0; i < CHAINS; i++)
            x[i] = x[i] * m + n;
    }
    for (int i = 1; i < CHAINS; i++)
        x[0] += x[i];
    return x[0][0];
}

static void *work(void *argument) {
    int self = (int)(size_t)argument;
    char *mine = buffer + self * bytes;
    memset(mine, self + 1, bytes); /* first touch: on a NUMA machine the pages are local to the thread */
    double total = 0, start, took;
    double end = now() + seconds;
    int go_on = 1;
    static atomic_int more;
    for (int pass = 0; go_on; pass++) {
        barrier();
        start = now();
        total += read_pass(mine, pass % 3);
        barrier();
        took = now() - start;
        if (self == 0) {
            double rate = (double)bytes * threads / took / 1e9;
            if (rate > read_rate)
                read_rate = rate;
            atomic_store(&more, now() < end);
        }
        barrier();
        go_on = atomic_load(&more);
    }
    for (int pass = 0; pass < 5; pass++) {
        barrier();
        start = now();
        total += fma_pass();
        barrier();
        took = now() - start;
        double flops = 2.0 * (ROUNDS / CHAINS) * CHAINS * (WIDTH / sizeof(float)) * threads;
        if (self == 0 && flops / took / 1e9 > fma_rate)
            fma_rate = flops / took / 1e9;
    }
    sink = total;
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 4)
        return 2;
    threads = atoi(argv[1]);
    if (threads < 1 || threads > MAX_THREADS)
        return 2;
    bytes = (size_t)(atof(argv[2]) * 1e6) / threads / 4096 * 4096;
    seconds = atof(argv[3]);
    buffer = aligned_alloc(HUGE_PAGE, (bytes * threads + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
    if (!buffer)
        return 1;
#ifdef MADV_HUGEPAGE
    madvise(buffer, bytes * threads, MADV_HUGEPAGE); /* the limit is that of memory, not of page tables */
#endif
    pthread_t ids[MAX_THREADS];
    for (int i = 1; i < threads; i++)
        if (pthread_create(&ids[i], NULL, work, (void *)(size_t)i))
            return 1;
    work((void *)0);
    for (int i = 1; i < threads; i++)
        pthread_join(ids[i], NULL);
    printf("%.2f %.2f\n", read_rate, fma_rate);
    return 0;
}
