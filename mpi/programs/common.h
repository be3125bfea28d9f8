/* What the MPI programs share: arguments, contents that are written and checked, times, one JSON line a result. */
#ifndef PINFOLD_COMMON_H
#define PINFOLD_COMMON_H

#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZES_MAX = 32 };

static int rank, ranks;

/* Ends all ranks; for errors that MPI does not report itself. */
static inline void fail(const char *why) {
    fprintf(stderr, "rank %d: %s\n", rank, why);
    MPI_Abort(MPI_COMM_WORLD, 3);
}

static inline void begin(int *argc, char ***argv) {
    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
}

/* The word behind an option, or `otherwise`. */
static inline const char *option(int argc, char **argv, const char *name, const char *otherwise) {
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], name) == 0) return argv[i + 1];
    return otherwise;
}

/* A number of bytes such as 8, 64K or 4M; the text moves on behind it. */
static inline size_t bytes_of(const char **text) {
    char *end;
    size_t bytes = strtoull(*text, &end, 10);
    if (end == *text) fail("a size is a number, perhaps with K or M behind it");
    if (*end == 'K' || *end == 'M') bytes <<= *end++ == 'K' ? 10 : 20;
    *text = end;
    return bytes;
}

/* A list of sizes, as 8,64K,4M. */
static inline int sizes_of(const char *text, size_t *sizes) {
    int count = 0;
    for (;;) {
        if (count == SIZES_MAX) fail("too many sizes");
        sizes[count++] = bytes_of(&text);
        if (*text == 0) return count;
        if (*text++ != ',') fail("sizes are separated by commas");
    }
}

/* Zeroed memory for messages: from the heap, or from MPI_Alloc_mem. */
static inline unsigned char *memory(size_t bytes, int from_mpi) {
    unsigned char *at = NULL;
    if (from_mpi)
        MPI_Alloc_mem((MPI_Aint)bytes + 8, MPI_INFO_NULL, &at);
    else
        at = aligned_alloc(4096, (bytes + 8 + 4095) / 4096 * 4096);
    if (at == NULL) fail("no memory");
    memset(at, 0, bytes);
    return at;
}

static inline uint64_t word_of(uint64_t seed, size_t index) {
    return (seed + 1) * 0x9e3779b97f4a7c15u + index * 0xd1342543de82ef95u;
}

/* Writes contents that differ for each seed. */
static inline void fill(unsigned char *at, size_t bytes, uint64_t seed) {
    size_t i = 0;
    for (; (i + 1) * 8 <= bytes; i++) {
        uint64_t word = word_of(seed, i);
        memcpy(at + i * 8, &word, 8);
    }
    uint64_t last = word_of(seed, i);
    memcpy(at + i * 8, &last, bytes - i * 8);
}

/* Counts the words that are not what `fill` has written. */
static inline uint64_t wrong_in(const unsigned char *at, size_t bytes, uint64_t seed) {
    uint64_t wrong = 0;
    size_t i = 0;
    for (; (i + 1) * 8 <= bytes; i++) {
        uint64_t word = word_of(seed, i);
        wrong += memcmp(at + i * 8, &word, 8) != 0;
    }
    uint64_t last = word_of(seed, i);
    return wrong + (memcmp(at + i * 8, &last, bytes - i * 8) != 0);
}

static inline int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Times of one measurement, seconds. */
struct times {
    double *all;
    size_t count, room;
};

static inline void add(struct times *times, double seconds) {
    if (times->count == times->room) {
        times->room = times->room ? times->room * 2 : 1024;
        times->all = realloc(times->all, times->room * sizeof(double));
        if (times->all == NULL) fail("no memory");
    }
    times->all[times->count++] = seconds;
}

/* Sorts the times and prints their mean, median and 99th percentile as fields of an object, nanoseconds. */
static inline void print_times(struct times *times) {
    double sum = 0;
    qsort(times->all, times->count, sizeof(double), ascending);
    for (size_t i = 0; i < times->count; i++) sum += times->all[i];
    printf("\"times\":%zu,\"mean_ns\":%.1f,\"median_ns\":%.1f,\"p99_ns\":%.1f", times->count,
           sum / times->count * 1e9, times->all[times->count / 2] * 1e9, times->all[times->count * 99 / 100] * 1e9);
}

static inline double median(const struct times *sorted) { return sorted->all[sorted->count / 2]; }

/* The sum of a count over all ranks. */
static inline uint64_t over_ranks(uint64_t count) {
    uint64_t sum = 0;
    MPI_Allreduce(&count, &sum, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    return sum;
}

/* Exchanges in rounds at each size, each rank that many messages a round, with a JSON line of each size. */
static inline uint64_t in_rounds(int argc, char **argv, const char *program, const char *rounds_otherwise,
                                 uint64_t (*exchange)(size_t bytes, int rounds), int messages) {
    size_t sizes[SIZES_MAX];
    int count = sizes_of(option(argc, argv, "--sizes", "8,4K,64K,1M"), sizes);
    int rounds = atoi(option(argc, argv, "--rounds", rounds_otherwise));
    uint64_t wrong = 0;
    for (int i = 0; i < count; i++) {
        uint64_t here = exchange(sizes[i], rounds), all = over_ranks(here);
        unsigned long long sent = (unsigned long long)rounds * messages * ranks;
        wrong += here;
        if (rank != 0) continue;
        printf("{\"program\":\"%s\",\"size\":%zu,\"ranks\":%d,\"messages\":%llu,\"bytes\":%llu,\"wrong\":%llu}\n", program,
               sizes[i], ranks, sent, sent * sizes[i], (unsigned long long)all);
        fflush(stdout);
    }
    return wrong;
}

/* Ends the program: with 1 if anything was wrong, on all ranks alike. */
static inline int end(uint64_t wrong) {
    wrong = over_ranks(wrong);
    MPI_Finalize();
    return wrong != 0;
}

#endif
