/* How far the two processors are apart: the time that a cache line takes from one to the other. No MPI.
 *
 *     hop
 *
 * Prints nanoseconds one way: the lowest quarter of groups of round trips between two
 * threads, since other work on the machine makes it longer only. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { GROUPS = 201, ROUND_TRIPS = 64 };

static _Alignas(128) atomic_uint ball;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

static void await(unsigned value) {
    for (unsigned looks = 0; atomic_load_explicit(&ball, memory_order_acquire) != value; looks++)
        if (looks > 4096) sched_yield();
}

static void *partner(void *unused) {
    for (unsigned i = 0; i < GROUPS * ROUND_TRIPS; i++) {
        await(2 * i + 1);
        atomic_store_explicit(&ball, 2 * i + 2, memory_order_release);
    }
    return unused;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(void) {
    pthread_t thread;
    double times[GROUPS];
    if (pthread_create(&thread, NULL, partner, NULL) != 0) return 1;
    for (unsigned group = 0, i = 0; group < GROUPS; group++) {
        double from = now();
        for (unsigned end = i + ROUND_TRIPS; i < end; i++) {
            atomic_store_explicit(&ball, 2 * i + 1, memory_order_release);
            await(2 * i + 2);
        }
        times[group] = (now() - from) / ROUND_TRIPS / 2;
    }
    pthread_join(thread, NULL);
    qsort(times, GROUPS, sizeof(double), ascending);
    printf("{\"program\":\"hop\",\"hop_ns\":%.1f}\n", times[GROUPS / 4]);
    return 0;
}
