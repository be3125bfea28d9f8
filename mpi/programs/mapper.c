/* Messages and windows in memory whose pages are exchanged, at the same addresses, between operations; checked.
 *
 *     mapper [--sizes 8,4K,64K,1M] [--rounds 12]
 *
 * Each rank sends to the next and receives from the one before, then writes to the next's window and reads from it. A
 * transfer that used the pages of an earlier round would carry, or overwrite, other contents: pages that go are filled
 * with PAST, and each round has a seed of its own. */
#define _GNU_SOURCE
#include "common.h"

#include <sys/mman.h>
#include <unistd.h>

enum { WAYS = 6, PAGE = 4096, PAST = 0xa5 };

static int next, previous;

static void *must(void *at) {
    if (at == MAP_FAILED) fail("a mapping is refused");
    return at;
}

/* Unnamed shared memory of that many bytes. */
static int file_of(size_t bytes) {
    int file = memfd_create("mapper", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, (off_t)bytes) != 0) fail("there is no memfd");
    return file;
}

/* Puts other pages at `at`. The addresses are never free for others: MPI's threads map, too. */
static void replace(unsigned char *at, size_t bytes, int way) {
    int prot = PROT_READ | PROT_WRITE, anonymous = MAP_PRIVATE | MAP_ANONYMOUS;
    memset(at, PAST, bytes);
    switch (way) {
    case 0: /* New memory over the old. */
        must(mmap(at, bytes, prot, anonymous | MAP_FIXED, -1, 0));
        break;
    case 1: /* Nothing there for a while. */
        must(mmap(at, bytes, PROT_NONE, anonymous | MAP_FIXED | MAP_NORESERVE, -1, 0));
        must(mmap(at, bytes, prot, anonymous | MAP_FIXED, -1, 0));
        break;
    case 2: /* The same mapping, other pages. */
        if (madvise(at, bytes, MADV_DONTNEED) != 0) fail("pages cannot be discarded");
        break;
    case 3: { /* Memory that was elsewhere. */
        unsigned char *other = must(mmap(NULL, bytes, prot, anonymous, -1, 0));
        memset(other, PAST ^ 1, bytes);
        must(mremap(other, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at));
        break;
    }
    case 4: /* A file, shared, and privately. */
    case 5: {
        int file = file_of(bytes);
        must(mmap(at, bytes, prot, (way == 4 ? MAP_SHARED : MAP_PRIVATE) | MAP_FIXED, file, 0));
        close(file);
        break;
    }
    }
}

/* Memory from the heap, freed and asked for again: the allocator gives back what is large. */
static uint64_t from_heap(size_t bytes, uint64_t seed) {
    uint64_t wrong = 0;
    for (int i = 0; i < 2; i++) {
        unsigned char *out = memory(bytes, 0), *in = memory(bytes, 0);
        fill(out, bytes, seed + i + rank);
        MPI_Sendrecv(out, (int)bytes, MPI_BYTE, next, 1, in, (int)bytes, MPI_BYTE, previous, 1, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        wrong += wrong_in(in, bytes, seed + i + previous);
        free(out);
        free(in);
    }
    return wrong;
}

static uint64_t messages(unsigned char *out, unsigned char *in, size_t bytes, uint64_t seed) {
    MPI_Request requests[2];
    fill(out, bytes, seed + rank);
    MPI_Irecv(in, (int)bytes, MPI_BYTE, previous, 2, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(out, (int)bytes, MPI_BYTE, next, 2, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    return wrong_in(in, bytes, seed + previous);
}

/* Writes from `out` to the next's `in`, and reads what it has got there back into `out`. */
static uint64_t windows(unsigned char *out, unsigned char *in, size_t bytes, uint64_t seed) {
    uint64_t wrong;
    MPI_Win win;
    MPI_Win_create(in, (MPI_Aint)bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    fill(out, bytes, seed + rank);
    MPI_Win_fence(0, win);
    MPI_Put(out, (int)bytes, MPI_BYTE, next, 0, (int)bytes, MPI_BYTE, win);
    MPI_Win_fence(0, win);
    wrong = wrong_in(in, bytes, seed + previous);
    fill(in, bytes, seed + 100 + rank);
    MPI_Win_fence(0, win);
    MPI_Get(out, (int)bytes, MPI_BYTE, next, 0, (int)bytes, MPI_BYTE, win);
    MPI_Win_fence(0, win);
    wrong += wrong_in(out, bytes, seed + 100 + next);
    MPI_Win_free(&win);
    return wrong;
}

static uint64_t measure(size_t bytes, int rounds) {
    size_t room = (bytes + 8 + PAGE - 1) / PAGE * PAGE;
    unsigned char *both[2];
    uint64_t wrong = 0;
    for (int i = 0; i < 2; i++)
        both[i] = must(mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    for (int round = 0; round < rounds; round++) {
        for (int part = 0; part < 2; part++) {
            uint64_t seed = ((uint64_t)round * 2 + part) * 1000;
            wrong += part ? windows(both[0], both[1], bytes, seed) : messages(both[0], both[1], bytes, seed);
            for (int i = 0; i < 2; i++) replace(both[i], room, (round + i * part) % WAYS);
        }
        wrong += from_heap(bytes, 500 + (uint64_t)round * 1000);
    }
    for (int i = 0; i < 2; i++) must(mmap(both[i], room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
    return wrong;
}

int main(int argc, char **argv) {
    begin(&argc, &argv);
    next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
    return end(in_rounds(argc, argv, "mapper", "12", measure, 3));
}
