/* Latency and bandwidth between two processes on libfabric itself, without an MPI: tagged messages go there and back,
 * written anew before each one and checked after each.
 *
 *     fabric PROVIDER [SIZES] [SECONDS]          fabric shm 8,64K 0.3
 *
 * A size may have K or M behind it. Each result is one JSON line. */
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_tagged.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

enum { SHORT = 256, GROUP = 64, TAG = 7, NAME_MAX_BYTES = 256, BYTES_MAX = 64 << 20, TIMES_MAX = 1 << 20 };

static int first, way;
static struct fid_ep *endpoint;
static struct fid_cq *sent, *received;
static fi_addr_t peer;
static size_t inject_max;

static void fail(const char *call, int error) {
    fprintf(stderr, "%s: %s\n", call, fi_strerror(-error));
    exit(1);
}

static void check(const char *call, int error) {
    if (error < 0) fail(call, error);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

/* Opens all that messages take, and exchanges addresses through the socket. */
static void open_all(const char *provider) {
    struct fi_info *hints = fi_allocinfo(), *info = NULL;
    hints->caps = FI_TAGGED;
    hints->mode = FI_CONTEXT;
    hints->ep_attr->type = FI_EP_RDM;
    hints->fabric_attr->prov_name = strdup(provider);
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    check("fi_getinfo", fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info));
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_av *addresses;
    struct fi_av_attr av = {.type = info->domain_attr->av_type == FI_AV_UNSPEC ? FI_AV_TABLE : info->domain_attr->av_type};
    struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_TAGGED, .size = 256};
    inject_max = info->tx_attr->inject_size;
    check("fi_fabric", fi_fabric(info->fabric_attr, &fabric, NULL));
    check("fi_domain", fi_domain(fabric, info, &domain, NULL));
    check("fi_av_open", fi_av_open(domain, &av, &addresses, NULL));
    check("fi_cq_open", fi_cq_open(domain, &cq, &sent, NULL));
    check("fi_cq_open", fi_cq_open(domain, &cq, &received, NULL));
    check("fi_endpoint", fi_endpoint(domain, info, &endpoint, NULL));
    check("fi_ep_bind", fi_ep_bind(endpoint, &addresses->fid, 0));
    check("fi_ep_bind", fi_ep_bind(endpoint, &sent->fid, FI_TRANSMIT));
    check("fi_ep_bind", fi_ep_bind(endpoint, &received->fid, FI_RECV));
    check("fi_enable", fi_enable(endpoint));
    char own[NAME_MAX_BYTES] = {0}, theirs[NAME_MAX_BYTES];
    size_t length = sizeof own;
    check("fi_getname", fi_getname(&endpoint->fid, own, &length));
    if (write(way, own, sizeof own) != sizeof own || read(way, theirs, sizeof theirs) != sizeof theirs) exit(1);
    if (fi_av_insert(addresses, theirs, 1, &peer, 0, NULL) != 1) fail("fi_av_insert", -FI_EINVAL);
}

static void await(struct fid_cq *queue) {
    struct fi_cq_tagged_entry entry;
    for (;;) {
        ssize_t read = fi_cq_read(queue, &entry, 1);
        if (read == 1) return;
        if (read != -FI_EAGAIN) fail("fi_cq_read", (int)read);
        /* The other side's progress may take this side's, too. */
        struct fid_cq *other = queue == sent ? received : sent;
        fi_cq_read(other, NULL, 0);
    }
}

static struct fi_context receiving, sending;

static void post(void *at, size_t bytes) {
    ssize_t posted;
    while ((posted = fi_trecv(endpoint, at, bytes, NULL, peer, TAG, 0, &receiving)) == -FI_EAGAIN) fi_cq_read(received, NULL, 0);
    check("fi_trecv", (int)posted);
}

static void send_all(const void *at, size_t bytes) {
    ssize_t posted;
    int inject = bytes <= inject_max;
    do {
        posted = inject ? fi_tinject(endpoint, at, bytes, peer, TAG)
                        : fi_tsend(endpoint, at, bytes, NULL, peer, TAG, &sending);
        if (posted == -FI_EAGAIN) fi_cq_read(sent, NULL, 0);
    } while (posted == -FI_EAGAIN);
    check("fi_tsend", (int)posted);
    if (!inject) await(sent);
}

static void fill(unsigned char *at, size_t bytes, uint64_t seed) {
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t word = (seed + 1) * 0x9e3779b97f4a7c15u + i;
        memcpy(at + i, &word, bytes - i < 8 ? bytes - i : 8);
    }
}

static uint64_t wrong_in(const unsigned char *at, size_t bytes, uint64_t seed) {
    uint64_t wrong = 0;
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t word = (seed + 1) * 0x9e3779b97f4a7c15u + i;
        wrong += memcmp(at + i, &word, bytes - i < 8 ? bytes - i : 8) != 0;
    }
    return wrong;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Both sides agree by their socket that a round begins; there is no time in it. */
static int turn(int goes_on) {
    if (first && write(way, &goes_on, sizeof goes_on) != sizeof goes_on) exit(1);
    if (read(way, &goes_on, sizeof goes_on) != sizeof goes_on) exit(1);
    if (!first && write(way, &goes_on, sizeof goes_on) != sizeof goes_on) exit(1);
    return goes_on;
}

static uint64_t measure(const char *provider, size_t bytes, double seconds) {
    unsigned char *out = aligned_alloc(4096, BYTES_MAX), *in = aligned_alloc(4096, BYTES_MAX);
    double *times = malloc(TIMES_MAX * sizeof(double)), began = 0;
    uint64_t wrong = 0, seed = 0;
    size_t count = 0;
    int group = bytes <= SHORT ? GROUP : 1;
    for (int round = 0;; round++) {
        if (round == 5) began = now();
        fill(out, bytes, seed * 2 + first);
        if (!turn(round < 15 || (now() - began < seconds && count < TIMES_MAX))) break;
        double from = now();
        for (int i = 0; i < group; i++, seed++) {
            if (i > 0) fill(out, bytes, seed * 2 + first);
            post(in, bytes);
            if (first) send_all(out, bytes);
            await(received);
            if (!first) send_all(out, bytes);
            if (group > 1) wrong += wrong_in(in, bytes, seed * 2 + !first);
        }
        if (round >= 5) times[count++] = (now() - from) / group / 2;
        if (group == 1) wrong += wrong_in(in, bytes, seed * 2 - 2 + !first);
    }
    if (first) {
        qsort(times, count, sizeof(double), ascending);
        double sum = 0;
        for (size_t i = 0; i < count; i++) sum += times[i];
        printf("{\"program\":\"fabric\",\"provider\":\"%s\",\"size\":%zu,\"times\":%zu,\"mean_ns\":%.1f,\"median_ns\":%.1f,"
               "\"p99_ns\":%.1f,\"mb_s\":%.1f,\"bytes\":%llu,\"wrong\":%llu}\n",
               provider, bytes, count, sum / count * 1e9, times[count / 2] * 1e9, times[count * 99 / 100] * 1e9,
               bytes / times[count / 2] / 1e6, (unsigned long long)(seed * 2 * bytes), (unsigned long long)wrong);
        fflush(stdout);
    }
    free(out), free(in), free(times);
    return wrong;
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: fabric PROVIDER [SIZES] [SECONDS]\n");
        return 2;
    }
    int ways[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ways) != 0) return 1;
    pid_t child = fork();
    first = child != 0;
    way = ways[!first];
    close(ways[first]);
    if (!first) prctl(PR_SET_PDEATHSIG, SIGKILL);
    open_all(argv[1]);
    const char *sizes = argc > 2 ? argv[2] : "8";
    uint64_t wrong = 0;
    while (*sizes) {
        char *rest;
        size_t bytes = strtoull(sizes, &rest, 10);
        if (rest == sizes) return 2;
        if (*rest == 'K' || *rest == 'M') bytes <<= *rest++ == 'K' ? 10 : 20;
        if (bytes > BYTES_MAX) return 2;
        sizes = *rest == ',' ? rest + 1 : rest;
        wrong += measure(argv[1], bytes, argc > 3 ? atof(argv[3]) : 0.3);
    }
    /* Neither goes before the other has all its messages. */
    turn(0);
    fi_close(&endpoint->fid);
    int status = 0;
    if (first) waitpid(child, &status, 0);
    return wrong != 0 || status != 0;
}
