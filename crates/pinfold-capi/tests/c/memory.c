// Arenas, messages that are memory, regions, memory of the program's, atomic operations.
#include "check.h"

static void give_and_view(pair *it, bool writable) {
    pinfold_arena *arena;
    pinfold_buf *buf;
    OK(pinfold_arena_open(0, writable, &arena));
    OK(pinfold_arena_alloc(arena, 1 << 20, 4096, &buf));
    CHECK((uintptr_t)pinfold_buf_data(buf) % 4096 == 0 && pinfold_buf_len(buf) == 1 << 20);
    fill(pinfold_buf_data(buf), 1 << 20, 9);
    OK(pinfold_give(it->a, it->b_of_a, 1, &buf, 60 * SECOND));
    CHECK(buf == NULL);
    pinfold_view *view;
    OK(pinfold_recv_view(it->b, it->a_of_b, 1, 0, 60 * SECOND, &view));
    pinfold_received facts;
    OK(pinfold_view_facts(view, &facts));
    CHECK(facts.receipt.path == PINFOLD_HANDOFF && facts.receipt.copied_user == 0);
    const void *data;
    OK(pinfold_view_data(view, &data));
    CHECK(pinfold_view_len(view) == 1 << 20 && filled(data, 1 << 20, 9));
    unsigned char some[16];
    OK(pinfold_view_read(view, 4096, some, sizeof some));
    CHECK(memcmp(some, (const char *)data + 4096, sizeof some) == 0);
    CHECK(pinfold_view_read(view, (1 << 20) - 8, some, 16) == PINFOLD_OUT_OF_BOUNDS);
    pinfold_view_free(view);

    // A peer that there is not: the buffer is ours as before.
    OK(pinfold_arena_alloc(arena, 100, 0, &buf));
    memset(pinfold_buf_data(buf), 1, 100);
    CHECK(pinfold_give(it->a, 12345, 1, &buf, 0) == PINFOLD_UNKNOWN_PEER);
    CHECK(buf != NULL && pinfold_buf_len(buf) == 100);

    // Out of an arena a long message is copied once.
    pinfold_buf *large;
    OK(pinfold_arena_alloc(arena, 4 << 20, 0, &large));
    fill(pinfold_buf_data(large), 4 << 20, 2);
    unsigned char *in = malloc(4 << 20);
    pinfold_queue *queue;
    OK(pinfold_queue_open(&queue));
    OK(pinfold_post_recv(it->b, queue, 1, it->a_of_b, 2, 0, in, 4 << 20));
    OK(pinfold_post_send(it->a, queue, 2, it->b_of_a, 2, pinfold_buf_data(large), 4 << 20));
    for (int turn = 0; turn < 2; turn++) CHECK(take_one(it, queue).status == PINFOLD_OK);
    CHECK(filled(in, 4 << 20, 2));
    free(in);
    pinfold_queue_free(queue);
    pinfold_arena_free(arena);
    pinfold_buf_free(large);
    pinfold_buf_free(buf);
}

static void use(pair *it, pinfold_region *region, bool by_address, bool may_write) {
    pinfold_key key;
    OK(pinfold_region_key(region, &key));
    pinfold_remote *remote;
    OK(pinfold_remote_open(it->b, it->a_of_b, &key, by_address, &remote));
    CHECK(pinfold_remote_len(remote) == pinfold_region_len(region));
    uint64_t base = by_address ? pinfold_remote_address(remote) : 0;
    unsigned char *data = pinfold_region_data(region), out[64], in[64];
    memcpy(data, "of the owner", 12);
    pinfold_receipt receipt;
    OK(pinfold_read(remote, base, in, 12, &receipt));
    CHECK(memcmp(in, "of the owner", 12) == 0 && receipt.bytes == 12);
    fill(out, 64, 3);
    pinfold_status wrote = pinfold_write(remote, base + 64, out, 64, NULL);
    CHECK(wrote == (may_write ? PINFOLD_OK : PINFOLD_READ_ONLY));
    CHECK(pinfold_read(remote, base + pinfold_region_len(region) - 4, in, 8, NULL) ==
          PINFOLD_OUT_OF_BOUNDS);
    if (may_write) {
        OK(pinfold_flush(remote));
        CHECK(filled(data + 64, 64, 3));
        memset(data + 128, 0, 16);
        uint64_t old = 9;
        OK(pinfold_atomic(remote, base + 128, PINFOLD_U64, PINFOLD_ADD, 5, 0, &old));
        CHECK(old == 0);
        OK(pinfold_atomic(remote, base + 128, PINFOLD_U64, PINFOLD_REPLACE, 7, 5, &old));
        CHECK(old == 5);
        OK(pinfold_atomic(remote, base + 128, PINFOLD_I32, PINFOLD_MIN, (uint64_t)-1, 0, &old));
        CHECK(old == 7);
        OK(pinfold_atomic(remote, base + 128, PINFOLD_U32, PINFOLD_SWAP, 1, 0, &old));
        CHECK(old == UINT32_MAX);
        CHECK(pinfold_atomic(remote, base + 129, PINFOLD_U64, PINFOLD_ADD, 1, 0, NULL) ==
              PINFOLD_MISALIGNED);
        CHECK(pinfold_atomic(remote, base, 9, PINFOLD_ADD, 1, 0, NULL) == PINFOLD_INVALID);

        pinfold_queue *queue;
        OK(pinfold_queue_open(&queue));
        OK(pinfold_post_write(remote, queue, 1, base + 192, out, 64));
        OK(pinfold_post_read(remote, queue, 2, base + 64, in, 64));
        OK(pinfold_post_atomic(remote, queue, 3, base + 128, PINFOLD_U64, PINFOLD_OR, 2, 0));
        for (int turn = 0; turn < 3; turn++) {
            pinfold_completion done;
            size_t count;
            OK(pinfold_queue_take(queue, &done, 1, sizeof done, 60 * SECOND, &count));
            CHECK(count == 1 && done.status == PINFOLD_OK);
            CHECK(done.kind == (done.context == 3 ? PINFOLD_WAS : PINFOLD_COPIED));
            CHECK(done.context != 3 || done.old == 1);
        }
        CHECK(filled(in, 64, 3) && filled(data + 192, 64, 3) && data[128] == 3);
        pinfold_queue_free(queue);
    }
    OK(pinfold_region_free(region));
    CHECK(pinfold_read(remote, base, in, 8, NULL) != PINFOLD_OK);
    pinfold_remote_free(remote);
}

int main(void) {
    pair it = pair_with(NULL);
    give_and_view(&it, false);
    give_and_view(&it, true);

    serving serving;
    begin_serving(&serving, it.a);
    pinfold_region *region;
    static uint64_t own[512];
    for (uint32_t rights = PINFOLD_READ; rights <= PINFOLD_READ_WRITE; rights++) {
        OK(pinfold_region_open(it.a, 4096, rights, &region));
        use(&it, region, false, rights == PINFOLD_READ_WRITE);
        for (int by_address = 0; by_address <= 1; by_address++) {
            OK(pinfold_region_expose(it.a, own, sizeof own, rights, &region));
            CHECK(pinfold_region_data(region) == own);
            use(&it, region, by_address, rights == PINFOLD_READ_WRITE);
        }
    }
    pinfold_key wrong = {{1, 2, 3}};
    pinfold_remote *remote;
    CHECK(pinfold_remote_open(it.b, it.a_of_b, &wrong, false, &remote) == PINFOLD_BAD_KEY);
    CHECK(pinfold_region_open(it.a, 12, PINFOLD_READ, &region) == PINFOLD_INVALID);
    CHECK(pinfold_region_open(it.a, 64, 2, &region) == PINFOLD_INVALID);
    end_serving(&serving);
    end_pair(&it);
    return 0;
}
