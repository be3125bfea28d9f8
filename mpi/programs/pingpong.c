/* Latency and bandwidth between ranks 0 and 1: messages go there and back, written anew before each one and checked
 * after each.
 *
 *     pingpong [--sizes 8,64K,4M] [--seconds 0.3] [--memory heap|mpi]
 *
 * Short messages are timed in groups, contents included; of longer ones only the way there and back is timed: writing
 * and checking lie between two times. */
#include "common.h"

enum { SHORT = 256, GROUP = 64, DATA = 1, TURN = 2 };

/* Round trips that one time covers. */
static int group_of(size_t bytes) { return bytes <= SHORT ? GROUP : 1; }

/* Tells rank 1 whether it goes on, and waits until it is ready. */
static int turn(int goes_on) {
    if (rank == 0) {
        MPI_Send(&goes_on, 1, MPI_INT, 1, TURN, MPI_COMM_WORLD);
        MPI_Recv(&goes_on, 1, MPI_INT, 1, TURN, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        MPI_Recv(&goes_on, 1, MPI_INT, 0, TURN, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(&goes_on, 1, MPI_INT, 0, TURN, MPI_COMM_WORLD);
    }
    return goes_on;
}

static uint64_t measure(size_t bytes, double seconds, int from_mpi) {
    unsigned char *out = memory(bytes, from_mpi), *in = memory(bytes, from_mpi);
    int group = group_of(bytes), other = 1 - rank;
    uint64_t wrong = 0, seed = 0;
    struct times times = {0};
    double began = 0;
    for (int round = 0;; round++) {
        /* The first rounds are not counted: pages come in, caches fill. */
        if (round == 5) began = MPI_Wtime();
        fill(out, bytes, seed * 2 + rank);
        if (!turn(round < 15 || MPI_Wtime() - began < seconds)) break;
        double from = MPI_Wtime();
        for (int i = 0; i < group; i++, seed++) {
            if (i > 0) fill(out, bytes, seed * 2 + rank);
            if (rank == 0) MPI_Send(out, (int)bytes, MPI_BYTE, other, DATA, MPI_COMM_WORLD);
            MPI_Recv(in, (int)bytes, MPI_BYTE, other, DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (rank == 1) MPI_Send(out, (int)bytes, MPI_BYTE, other, DATA, MPI_COMM_WORLD);
            if (group > 1) wrong += wrong_in(in, bytes, seed * 2 + other);
        }
        double took = MPI_Wtime() - from;
        if (round >= 5) add(&times, took / group / 2);
        if (group == 1) wrong += wrong_in(in, bytes, seed * 2 - 2 + other);
    }
    uint64_t both = wrong;
    if (rank == 0) {
        MPI_Recv(&both, 1, MPI_UINT64_T, 1, TURN, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        both += wrong;
        printf("{\"program\":\"pingpong\",\"size\":%zu,", bytes);
        print_times(&times);
        printf(",\"mb_s\":%.1f,\"messages\":%llu,\"bytes\":%llu,\"wrong\":%llu}\n", bytes / median(&times) / 1e6,
               (unsigned long long)seed * 2, (unsigned long long)seed * 2 * bytes, (unsigned long long)both);
        fflush(stdout);
    } else {
        MPI_Send(&both, 1, MPI_UINT64_T, 0, TURN, MPI_COMM_WORLD);
    }
    free(times.all);
    from_mpi ? (MPI_Free_mem(out), MPI_Free_mem(in)) : (free(out), free(in), 0);
    return wrong;
}

int main(int argc, char **argv) {
    begin(&argc, &argv);
    if (ranks < 2) fail("it takes two ranks");
    size_t sizes[SIZES_MAX];
    int count = sizes_of(option(argc, argv, "--sizes", "8,64K,1M,4M"), sizes);
    double seconds = atof(option(argc, argv, "--seconds", "0.3"));
    int from_mpi = strcmp(option(argc, argv, "--memory", "heap"), "mpi") == 0;
    uint64_t wrong = 0;
    for (int i = 0; i < count && rank < 2; i++) wrong += measure(sizes[i], seconds, from_mpi);
    return end(wrong);
}
