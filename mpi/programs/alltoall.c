/* Messages of all ranks to all ranks, checked.
 *
 *     alltoall [--sizes 8,64K] [--seconds 0.5]
 *
 * A size is that of the message to each rank. A time is that until all ranks have theirs, with one barrier. */
#include "common.h"

static uint64_t measure(size_t bytes, double seconds) {
    unsigned char *out = memory(bytes * ranks, 0), *in = memory(bytes * ranks, 0);
    struct times times = {0};
    uint64_t wrong = 0, done = 0;
    double began = MPI_Wtime();
    for (int round = 0;; round++) {
        int goes_on = round < 10 || MPI_Wtime() - began < seconds;
        MPI_Bcast(&goes_on, 1, MPI_INT, 0, MPI_COMM_WORLD);
        if (!goes_on) break;
        uint64_t seed = (uint64_t)round * ranks * ranks;
        for (int to = 0; to < ranks; to++) fill(out + to * bytes, bytes, seed + (uint64_t)rank * ranks + to);
        MPI_Barrier(MPI_COMM_WORLD);
        double from = MPI_Wtime();
        MPI_Alltoall(out, (int)bytes, MPI_BYTE, in, (int)bytes, MPI_BYTE, MPI_COMM_WORLD);
        /* Over when all ranks have their messages: one rank may find all of its own there at once. */
        MPI_Barrier(MPI_COMM_WORLD);
        if (round >= 3) add(&times, MPI_Wtime() - from);
        done++;
        for (int source = 0; source < ranks; source++)
            wrong += wrong_in(in + source * bytes, bytes, seed + (uint64_t)source * ranks + rank);
    }
    uint64_t all = over_ranks(wrong), messages = done * ranks * (ranks - 1);
    if (rank == 0) {
        printf("{\"program\":\"alltoall\",\"size\":%zu,\"ranks\":%d,", bytes, ranks);
        print_times(&times);
        printf(",\"messages\":%llu,\"bytes\":%llu,\"wrong\":%llu}\n", (unsigned long long)messages,
               (unsigned long long)messages * bytes, (unsigned long long)all);
        fflush(stdout);
    }
    free(times.all);
    free(out);
    free(in);
    return wrong;
}

int main(int argc, char **argv) {
    begin(&argc, &argv);
    size_t sizes[SIZES_MAX];
    int count = sizes_of(option(argc, argv, "--sizes", "8,64K"), sizes);
    double seconds = atof(option(argc, argv, "--seconds", "0.5"));
    uint64_t wrong = 0;
    for (int i = 0; i < count; i++) wrong += measure(sizes[i], seconds);
    return end(wrong);
}
