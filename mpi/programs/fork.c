/* Processes that fork between and during operations; checked on both sides of the fork.
 *
 *     fork [--sizes 8,4K,64K,1M] [--rounds 6]
 *
 * Each rank has sent from its memory and received into it, so whatever is kept of addresses and pages is kept. Then it
 * forks with a receive under way. The child keeps the pages of the moment; the parent writes other contents, which have
 * to arrive at the next rank, and what arrives has to be seen by the parent and not by the child. */
#include "common.h"

#include <sys/wait.h>
#include <unistd.h>

static int next, previous;

static void exchange(unsigned char *out, unsigned char *in, size_t bytes) {
    MPI_Sendrecv(out, (int)bytes, MPI_BYTE, next, 1, in, (int)bytes, MPI_BYTE, previous, 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
}

/* Forks. The child waits for the end of the pipe, and ends with 0 if it finds `out` as it was; its status tells. It
 * writes over its copy of both: neither the parent nor a peer may see that. */
static pid_t child_of(unsigned char *out, unsigned char *in, size_t bytes, uint64_t seed, int *pipe_of) {
    if (pipe(pipe_of) != 0) fail("there is no pipe");
    pid_t child = fork();
    if (child < 0) fail("it cannot fork");
    if (child > 0) {
        close(pipe_of[0]);
        return child;
    }
    char word;
    close(pipe_of[1]);
    if (read(pipe_of[0], &word, 1) != 0) _exit(2);
    uint64_t wrong = wrong_in(out, bytes, seed + rank) + wrong_in(in, bytes, seed + previous);
    memset(out, 0x5a, bytes);
    memset(in, 0x5a, bytes);
    _exit(wrong != 0);
}

static uint64_t measure(size_t bytes, int rounds) {
    unsigned char *out = memory(bytes, 0), *in = memory(bytes, 0);
    uint64_t wrong = 0;
    for (int round = 0; round < rounds; round++) {
        uint64_t seed = (uint64_t)round * 1000;
        MPI_Request arrival;
        int pipe_of[2], status;
        fill(out, bytes, seed + rank);
        exchange(out, in, bytes);
        wrong += wrong_in(in, bytes, seed + previous);

        if (round % 2 == 0) MPI_Irecv(in, (int)bytes, MPI_BYTE, previous, 2, MPI_COMM_WORLD, &arrival);
        pid_t child = child_of(out, in, bytes, seed, pipe_of);
        if (round % 2 != 0) MPI_Irecv(in, (int)bytes, MPI_BYTE, previous, 2, MPI_COMM_WORLD, &arrival);
        /* Nobody sends before all children have their pages. */
        MPI_Barrier(MPI_COMM_WORLD);
        fill(out, bytes, seed + 500 + rank);
        MPI_Send(out, (int)bytes, MPI_BYTE, next, 2, MPI_COMM_WORLD);
        MPI_Wait(&arrival, MPI_STATUS_IGNORE);
        wrong += wrong_in(in, bytes, seed + 500 + previous);

        close(pipe_of[1]);
        if (waitpid(child, &status, 0) != child || status != 0) {
            fprintf(stderr, "rank %d: its child ended with status %#x\n", rank, status);
            wrong++;
        }
        wrong += wrong_in(in, bytes, seed + 500 + previous) + wrong_in(out, bytes, seed + 500 + rank);
        exchange(out, in, bytes);
        wrong += wrong_in(in, bytes, seed + 500 + previous);
    }
    free(out);
    free(in);
    return wrong;
}

int main(int argc, char **argv) {
    begin(&argc, &argv);
    next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
    return end(in_rounds(argc, argv, "fork", "6", measure, 3));
}
