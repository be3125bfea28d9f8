/* Integer sort after NAS IS: keys are random, a bucket of values belongs to each rank, and ten times all ranks count
 * their keys, exchange the counts and then the keys.
 *
 *     sort [--keys 21] [--iterations 10]
 *
 * 2^21 keys in all. At the end the keys are in order within each rank and from rank to rank, none is lost and none new:
 * count, sum and sum of squares are those of the keys made. */
#include "common.h"

enum { VALUE_BITS = 19 };

static uint64_t state;

static uint32_t random_key(void) {
    /* The sum of four, as in IS: values in the middle are the most frequent, so buckets differ in size. */
    uint32_t sum = 0;
    for (int i = 0; i < 4; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        sum += (uint32_t)(state >> (64 - VALUE_BITS + 2));
    }
    return sum;
}

static int owner(uint32_t key) { return (int)((uint64_t)key * ranks >> VALUE_BITS); }

static int by_value(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void sums(const uint32_t *keys, size_t count, uint64_t *found) {
    uint64_t own[3] = {count, 0, 0};
    for (size_t i = 0; i < count; i++) own[1] += keys[i], own[2] += (uint64_t)keys[i] * keys[i];
    MPI_Allreduce(own, found, 3, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
}

int main(int argc, char **argv) {
    begin(&argc, &argv);
    int bits = atoi(option(argc, argv, "--keys", "21")), iterations = atoi(option(argc, argv, "--iterations", "10"));
    if (bits < 10 || bits > 30 || iterations < 1) fail("2^10 to 2^30 keys, one iteration or more");
    size_t own = ((size_t)1 << bits) / ranks, got = 0, room = 0;
    uint32_t *keys = malloc(own * 4), *sorted = malloc(own * 4), *arrived = NULL;
    int *counts = calloc(4 * ranks, sizeof(int));
    if (!keys || !sorted || !counts) fail("no memory");
    int *starts = counts + ranks, *theirs = counts + 2 * ranks, *places = counts + 3 * ranks;
    state = 314159265u + 0x9e3779b97f4a7c15u * rank;
    for (size_t i = 0; i < own; i++) keys[i] = random_key();

    double communicating = 0, began = 0;
    uint64_t bytes = 0, wrong = 0;
    for (int iteration = 0; iteration <= iterations; iteration++) {
        /* The first is not timed. */
        if (iteration == 1) {
            MPI_Barrier(MPI_COMM_WORLD);
            began = MPI_Wtime(), communicating = 0;
        }
        keys[iteration] = iteration, keys[iteration + iterations] = (1u << VALUE_BITS) - 1 - iteration;
        memset(counts, 0, ranks * sizeof(int));
        for (size_t i = 0; i < own; i++) counts[owner(keys[i])]++;
        for (int i = 0, at = 0; i < ranks; at += counts[i++]) starts[i] = places[i] = at;
        for (size_t i = 0; i < own; i++) sorted[places[owner(keys[i])]++] = keys[i];

        double from = MPI_Wtime();
        MPI_Alltoall(counts, 1, MPI_INT, theirs, 1, MPI_INT, MPI_COMM_WORLD);
        communicating += MPI_Wtime() - from;
        got = 0;
        for (int i = 0; i < ranks; i++) places[i] = (int)got, got += theirs[i];
        if (got > room) {
            free(arrived);
            arrived = malloc((room = got + got / 8) * 4);
            if (!arrived) fail("no memory");
        }
        from = MPI_Wtime();
        MPI_Alltoallv(sorted, counts, starts, MPI_UINT32_T, arrived, theirs, places, MPI_UINT32_T, MPI_COMM_WORLD);
        communicating += MPI_Wtime() - from;
        bytes += (own - counts[rank]) * 4;
        for (size_t i = 0; i < got; i++) wrong += owner(arrived[i]) != rank;
    }
    double took = MPI_Wtime() - began;

    uint64_t made[3], found[3];
    sums(keys, own, made);
    sums(arrived, got, found);
    wrong += memcmp(made, found, sizeof made) != 0;
    qsort(arrived, got, 4, by_value);
    uint32_t largest = got ? arrived[got - 1] : 0, before = 0;
    MPI_Exscan(&largest, &before, 1, MPI_UINT32_T, MPI_MAX, MPI_COMM_WORLD);
    wrong += rank > 0 && got && arrived[0] < before;

    double slowest[2] = {took, communicating};
    MPI_Allreduce(MPI_IN_PLACE, slowest, 2, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    uint64_t all_bytes = over_ranks(bytes), all_wrong = over_ranks(wrong);
    if (rank == 0)
        printf("{\"program\":\"sort\",\"keys\":%llu,\"ranks\":%d,\"iterations\":%d,\"seconds\":%.6f,\"communicating\":%.6f,"
               "\"mop_s\":%.3f,\"bytes\":%llu,\"checksum\":\"%llx\",\"wrong\":%llu}\n",
               (unsigned long long)own * ranks, ranks, iterations, slowest[0], slowest[1],
               own * ranks * (double)iterations / slowest[0] / 1e6, (unsigned long long)all_bytes,
               (unsigned long long)(found[1] ^ found[2]), (unsigned long long)all_wrong);
    free(keys), free(sorted), free(arrived), free(counts);
    return end(wrong);
}
