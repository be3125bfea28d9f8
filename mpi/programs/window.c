/* Streams from rank 0 to rank 1: a window of messages at a time, answered by one.
 *
 *     window [--sizes 8,64K,1M] [--window 64] [--seconds 0.3]
 *
 * Each message of a window has its own memory, written anew before the window and checked after it; neither is timed. */
#include "common.h"

enum { WINDOW_MAX = 256, BYTES_MAX = 64 << 20, DATA = 1, TURN = 2 };

static uint64_t measure(size_t bytes, int window, double seconds) {
    while (window > 1 && bytes * window > BYTES_MAX) window /= 2;
    unsigned char *all = memory(bytes * window, 0);
    MPI_Request requests[WINDOW_MAX];
    struct times times = {0};
    uint64_t wrong = 0, sent = 0;
    double began = 0;
    for (int round = 0;; round++) {
        if (round == 3) began = MPI_Wtime();
        int goes_on = round < 10 || MPI_Wtime() - began < seconds;
        uint64_t seed = (uint64_t)round * WINDOW_MAX;
        if (rank == 0) {
            for (int i = 0; i < window; i++) fill(all + i * bytes, bytes, seed + i);
            MPI_Send(&goes_on, 1, MPI_INT, 1, TURN, MPI_COMM_WORLD);
            if (!goes_on) break;
            MPI_Recv(&goes_on, 1, MPI_INT, 1, TURN, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            double from = MPI_Wtime();
            for (int i = 0; i < window; i++)
                MPI_Isend(all + i * bytes, (int)bytes, MPI_BYTE, 1, DATA, MPI_COMM_WORLD, &requests[i]);
            MPI_Waitall(window, requests, MPI_STATUSES_IGNORE);
            MPI_Recv(&goes_on, 1, MPI_INT, 1, TURN, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (round >= 3) add(&times, (MPI_Wtime() - from) / window);
            sent += window;
        } else {
            MPI_Recv(&goes_on, 1, MPI_INT, 0, TURN, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (!goes_on) break;
            for (int i = 0; i < window; i++)
                MPI_Irecv(all + i * bytes, (int)bytes, MPI_BYTE, 0, DATA, MPI_COMM_WORLD, &requests[i]);
            MPI_Send(&goes_on, 1, MPI_INT, 0, TURN, MPI_COMM_WORLD);
            MPI_Waitall(window, requests, MPI_STATUSES_IGNORE);
            MPI_Send(&goes_on, 1, MPI_INT, 0, TURN, MPI_COMM_WORLD);
            for (int i = 0; i < window; i++) wrong += wrong_in(all + i * bytes, bytes, seed + i);
        }
    }
    if (rank == 0) {
        MPI_Recv(&wrong, 1, MPI_UINT64_T, 1, TURN, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        printf("{\"program\":\"window\",\"size\":%zu,\"window\":%d,", bytes, window);
        print_times(&times);
        printf(",\"mb_s\":%.1f,\"messages\":%llu,\"bytes\":%llu,\"wrong\":%llu}\n", bytes / median(&times) / 1e6,
               (unsigned long long)sent, (unsigned long long)sent * bytes, (unsigned long long)wrong);
        fflush(stdout);
    } else {
        MPI_Send(&wrong, 1, MPI_UINT64_T, 0, TURN, MPI_COMM_WORLD);
    }
    free(times.all);
    free(all);
    return wrong;
}

int main(int argc, char **argv) {
    begin(&argc, &argv);
    if (ranks < 2) fail("it takes two ranks");
    size_t sizes[SIZES_MAX];
    int count = sizes_of(option(argc, argv, "--sizes", "8,64K,1M"), sizes);
    int window = atoi(option(argc, argv, "--window", "64"));
    if (window < 1 || window > WINDOW_MAX) fail("a window has 1 to 256 messages");
    double seconds = atof(option(argc, argv, "--seconds", "0.3"));
    uint64_t wrong = 0;
    for (int i = 0; i < count && rank < 2; i++) wrong += measure(sizes[i], window, seconds);
    return end(wrong);
}
