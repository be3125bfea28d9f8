// Calls that the system denies, as containers do: messages, memory and handlers go on by other ways,
// and what cannot go at all is an error that names the call.
#define _GNU_SOURCE
#include "check.h"
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { CALLS_MAX = 8, LONG = (4 << 20) + 1 };

// Has the system refuse some calls from here on.
static void deny(const int *calls, int count, int error) {
    struct sock_filter steps[2 * CALLS_MAX + 2];
    int at = 0;
    steps[at++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                                               offsetof(struct seccomp_data, nr));
    for (int call = 0; call < count; call++) {
        steps[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, calls[call], 0, 1);
        steps[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error);
    }
    steps[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {(unsigned short)at, steps};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

static void answer(const pinfold_active *active, void *user) {
    (void)user;
    size_t len;
    const void *data = pinfold_active_data(active, &len);
    OK(pinfold_active_reply(active, data, len));
}

// A message of each length, from ordinary memory; the path of the longest, as its receiver saw it.
static uint32_t send_all(pair *it, pinfold_queue *queue) {
    static const size_t lengths[] = {0, 8, 56, 57, 5000, 65537, 300000, LONG};
    unsigned char *out = malloc(LONG), *in = malloc(LONG);
    pinfold_completion came = {0};
    for (size_t at = 0; at < sizeof lengths / sizeof *lengths; at++) {
        size_t len = lengths[at];
        fill(out, len, (unsigned)at);
        memset(in, 0, len);
        OK(pinfold_post_recv(it->b, queue, 1, it->a_of_b, at, 0, in, len));
        OK(pinfold_post_send(it->a, queue, 2, it->b_of_a, at, out, len));
        for (int turn = 0; turn < 2; turn++) {
            pinfold_completion done = take_one(it, queue);
            CHECK(done.status == PINFOLD_OK);
            if (done.context == 1) came = done;
        }
        CHECK(came.len == len && filled(in, len, (unsigned)at));
    }
    free(out);
    free(in);
    return came.receipt.path;
}

// A buffer that is given away, and memory that the other side writes and reads.
static void use_memory(pair *it, pinfold_queue *queue) {
    pinfold_arena *arena;
    pinfold_buf *buf;
    pinfold_view *view;
    OK(pinfold_arena_open(0, false, &arena));
    OK(pinfold_arena_alloc(arena, 100000, 0, &buf));
    fill(pinfold_buf_data(buf), 100000, 3);
    OK(pinfold_give(it->a, it->b_of_a, 20, &buf, 60 * SECOND));
    OK(pinfold_recv_view(it->b, it->a_of_b, 20, 0, 60 * SECOND, &view));
    const void *seen;
    OK(pinfold_view_data(view, &seen));
    CHECK(pinfold_view_len(view) == 100000 && filled(seen, 100000, 3));
    pinfold_view_free(view);
    pinfold_arena_free(arena);

    unsigned char own[5000] = {0}, in[300], out[300];
    pinfold_region *regions[2];
    OK(pinfold_region_open(it->b, 8192, PINFOLD_READ_WRITE, &regions[0]));
    OK(pinfold_region_expose(it->b, own, sizeof own, PINFOLD_READ_WRITE, &regions[1]));
    serving serving;
    begin_serving(&serving, it->b);
    for (int at = 0; at < 2; at++) {
        pinfold_key key;
        pinfold_remote *remote;
        OK(pinfold_region_key(regions[at], &key));
        OK(pinfold_remote_open(it->a, it->b_of_a, &key, false, &remote));
        fill(out, sizeof out, 5);
        OK(pinfold_write(remote, 77, out, sizeof out, NULL));
        OK(pinfold_read(remote, 77, in, sizeof in, NULL));
        CHECK(filled(in, sizeof in, 5));
        pinfold_remote_free(remote);
    }
    end_serving(&serving);
    CHECK(filled(own + 77, sizeof out, 5));
    for (int at = 0; at < 2; at++) OK(pinfold_region_free(regions[at]));

    OK(pinfold_handle(it->b, 1, answer, NULL, NULL));
    OK(pinfold_post_ask(it->a, queue, 8, it->b_of_a, 1, "asked", 5));
    pinfold_completion done = take_one(it, queue);
    CHECK(done.status == PINFOLD_OK && pinfold_message_len(done.message) == 5);
    pinfold_message_free(done.message);
}

// All that, in a child from which calls were taken. Returns the path of a long message.
static uint32_t without(const int *calls, int count, int error) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        deny(calls, count, error);
        pinfold_queue *queue;
        pair it = pair_with(NULL);
        OK(pinfold_queue_open(&queue));
        uint32_t path = send_all(&it, queue);
        use_memory(&it, queue);
        CHECK(pinfold_queue_outstanding(queue) == 0);
        pinfold_queue_free(queue);
        end_pair(&it);
        _exit(100 + (int)path);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) >= 100);
    return (uint32_t)WEXITSTATUS(status) - 100;
}

// No memory can be shared without memfd_create(2): whatever takes it says so, and nothing else.
static void without_memfd(int error) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        deny((const int[]){SYS_memfd_create}, 1, error);
        pinfold_arena *arena = NULL;
        pinfold_buf *buf = NULL;
        pinfold_status status = pinfold_arena_open(0, false, &arena);
        if (status == PINFOLD_OK) status = pinfold_arena_alloc(arena, 100000, 0, &buf);
        CHECK(status != PINFOLD_OK && buf == NULL);
        CHECK(strstr(pinfold_error(), "memfd_create") != NULL);
        pinfold_arena_free(arena);
        _exit(100);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 100);
}

int main(void) {
    static const int copies[] = {SYS_process_vm_readv, SYS_process_vm_writev};
    static const int folds[] = {SYS_userfaultfd};
    static const int most[] = {SYS_process_vm_readv, SYS_process_vm_writev, SYS_userfaultfd,
                               SYS_membarrier,       SYS_io_uring_setup,    SYS_pidfd_open};
    uint32_t before = without(NULL, 0, 0);
    if (before != PINFOLD_CMA)
        fprintf(stderr, "the kernel copies nothing here: %s\n", pinfold_path_name(before));
    static const int errors[] = {EPERM, ENOSYS};
    for (int at = 0; at < 2; at++) {
        CHECK(without(copies, 2, errors[at]) != PINFOLD_CMA);
        CHECK(without(folds, 1, errors[at]) == before);
        CHECK(without(most, 6, errors[at]) != PINFOLD_CMA);
        without_memfd(errors[at]);
    }
    return 0;
}
