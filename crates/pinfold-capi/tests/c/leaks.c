// Nothing is left behind: descriptors and mappings after a hundred thousand operations of all kinds.
#include "check.h"
#include <dirent.h>

enum { ROUNDS = 5000 };

static int descriptors(void) {
    DIR *folder = opendir("/proc/self/fd");
    CHECK(folder != NULL);
    int count = 0;
    while (readdir(folder)) count++;
    closedir(folder);
    return count;
}

static int mappings(void) {
    FILE *file = fopen("/proc/self/maps", "r");
    CHECK(file != NULL);
    int count = 0;
    for (int byte; (byte = getc(file)) != EOF;) count += byte == '\n';
    fclose(file);
    return count;
}

static void answer(const pinfold_active *active, void *user) {
    (void)user;
    size_t len;
    const void *data = pinfold_active_data(active, &len);
    OK(pinfold_active_reply(active, data, len));
}

// Twenty operations.
static void round_of_all(pair *it, pinfold_queue *queue, pinfold_arena *arena, uint64_t number) {
    unsigned char in[256];
    pinfold_message *message;
    pinfold_received came;
    for (uint64_t tag = 0; tag < 4; tag++) {
        OK(pinfold_send(it->a, it->b_of_a, tag, &number, sizeof number, NULL));
        OK(pinfold_recv(it->b, it->a_of_b, tag, 0, in, sizeof in, 60 * SECOND, &came));
        CHECK(memcmp(in, &number, sizeof number) == 0);
    }
    OK(pinfold_send(it->a, it->b_of_a, 4, in, 200, NULL));
    OK(pinfold_recv_message(it->b, it->a_of_b, 4, 0, 60 * SECOND, &message));
    pinfold_message_free(message);

    // One that comes, one that is cancelled, and one to nobody.
    OK(pinfold_post_recv(it->b, queue, 1, it->a_of_b, 5, 0, in, sizeof in));
    OK(pinfold_post_recv(it->b, queue, 2, it->a_of_b, 6, 0, in, sizeof in));
    OK(pinfold_queue_cancel(queue, 2));
    OK(pinfold_post_send(it->a, queue, 3, it->b_of_a, 5, &number, sizeof number));
    OK(pinfold_post_send(it->a, queue, 4, 12345, 5, &number, sizeof number));
    for (int turn = 0; turn < 4; turn++) take_one(it, queue);

    pinfold_buf *buf;
    pinfold_view *view;
    OK(pinfold_arena_alloc(arena, 4096, 0, &buf));
    memset(pinfold_buf_data(buf), (int)number, 4096);
    OK(pinfold_give(it->a, it->b_of_a, 7, &buf, 60 * SECOND));
    OK(pinfold_recv_view(it->b, it->a_of_b, 7, 0, 60 * SECOND, &view));
    pinfold_view_free(view);

    OK(pinfold_post_ask(it->a, queue, 8, it->b_of_a, 1, &number, sizeof number));
    pinfold_completion done = take_one(it, queue);
    CHECK(done.kind == PINFOLD_MESSAGE);
    pinfold_message_free(done.message);
}

int main(void) {
    pair it = pair_with(NULL);
    pinfold_queue *queue;
    pinfold_arena *arena;
    OK(pinfold_queue_open(&queue));
    OK(pinfold_arena_open(0, false, &arena));
    OK(pinfold_handle(it.b, 1, answer, NULL, NULL));
    for (uint64_t number = 0; number < 100; number++) round_of_all(&it, queue, arena, number);
    int had_descriptors = descriptors(), had_mappings = mappings();
    for (uint64_t number = 0; number < ROUNDS; number++) round_of_all(&it, queue, arena, number);
    CHECK(pinfold_queue_outstanding(queue) == 0);
    CHECK(descriptors() == had_descriptors);
    // Memory that the allocators of C and of the library keep is some mappings, not one a round.
    CHECK(mappings() <= had_mappings + 16);
    end_pair(&it);
    pinfold_queue_free(queue);
    pinfold_arena_free(arena);

    // Endpoints, regions and queues that come and go.
    had_descriptors = had_mappings = 0;
    for (int turn = 0; turn < 120; turn++) {
        pinfold_region *region;
        it = pair_with(NULL);
        OK(pinfold_queue_open(&queue));
        OK(pinfold_region_open(it.a, 4096, PINFOLD_READ, &region));
        OK(pinfold_send(it.a, it.b_of_a, 0, "not received", 12, NULL));
        OK(pinfold_region_free(region));
        pinfold_queue_free(queue);
        end_pair(&it);
        if (turn == 20) had_descriptors = descriptors(), had_mappings = mappings();
    }
    CHECK(descriptors() == had_descriptors);
    CHECK(mappings() <= had_mappings + 16);
    return 0;
}
