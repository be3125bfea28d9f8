// Messages that are claimed, and memory that is given away in parts.
#include "check.h"

enum { PART = 8192, PARTS = 5 };

static void claims(pair *it) {
    pinfold_claimed *first, *second, *third, *none = NULL;
    pinfold_received found, came;
    char in[16] = {0};
    CHECK(pinfold_claim(it->b, PINFOLD_ANY_PEER, 0, UINT64_MAX, &none, &found) == PINFOLD_TIMEOUT);
    CHECK(none == NULL);
    OK(pinfold_send(it->a, it->b_of_a, 1, "one", 3, NULL));
    OK(pinfold_send(it->a, it->b_of_a, 1, "another", 7, NULL));
    OK(pinfold_send(it->a, it->b_of_a, 2, "third", 5, NULL));
    OK(pinfold_probe(it->b, it->a_of_b, 2, 0, PINFOLD_FOREVER, NULL));

    OK(pinfold_claim(it->b, PINFOLD_ANY_PEER, 1, 0, &first, &found));
    CHECK(found.peer == it->a_of_b && found.tag == 1 && found.len == 3);
    OK(pinfold_claim(it->b, it->a_of_b, 1, 0, &second, NULL));
    CHECK(pinfold_claim(it->b, it->a_of_b, 1, 0, &none, NULL) == PINFOLD_TIMEOUT);
    CHECK(pinfold_probe(it->b, it->a_of_b, 1, 0, 0, &found) == PINFOLD_TIMEOUT);
    OK(pinfold_claimed_facts(second, &found));
    CHECK(found.tag == 1 && found.len == 7);

    // The later one first; the earlier one is given back, and found again.
    pinfold_message *message;
    OK(pinfold_claimed_message(second, &message));
    CHECK(pinfold_message_len(message) == 7);
    CHECK(memcmp(pinfold_message_data(message), "another", 7) == 0);
    pinfold_message_free(message);
    pinfold_claimed_free(first);
    OK(pinfold_claim(it->b, it->a_of_b, 1, 0, &first, NULL));
    CHECK(pinfold_claimed_recv(first, in, 2, &came) == PINFOLD_TRUNCATED);
    CHECK(came.len == 3 && memcmp(in, "on", 3) == 0);
    OK(pinfold_claim(it->b, it->a_of_b, 2, 0, &third, NULL));
    pinfold_claimed_discard(third);
    CHECK(pinfold_probe(it->b, it->a_of_b, 2, 0, 0, &found) == PINFOLD_TIMEOUT);

    // A receive that makes no sense frees its handle, too: the message is found again, which one
    // that is still claimed would not be.
    OK(pinfold_send(it->a, it->b_of_a, 1, "again", 5, NULL));
    OK(pinfold_probe(it->b, it->a_of_b, 1, 0, PINFOLD_FOREVER, NULL));
    for (int at = 0; at < 2; at++) {
        OK(pinfold_claim(it->b, it->a_of_b, 1, 0, &first, NULL));
        if (at == 0) CHECK(pinfold_claimed_recv(first, NULL, 5, NULL) == PINFOLD_INVALID);
        if (at == 1) CHECK(pinfold_claimed_message(first, NULL) == PINFOLD_INVALID);
    }
    OK(pinfold_claim(it->b, it->a_of_b, 1, 0, &first, &found));
    CHECK(found.len == 5);
    OK(pinfold_claimed_recv(first, in, sizeof in, NULL));
    CHECK(memcmp(in, "again", 5) == 0);

    // One that is long: its sender is done when it has been received.
    pinfold_queue *queue;
    size_t len = 3 << 20;
    unsigned char *out = malloc(len), *into = calloc(len, 1);
    fill(out, len, 9);
    OK(pinfold_queue_open(&queue));
    OK(pinfold_post_send(it->a, queue, 4, it->b_of_a, 3, out, len));
    serving serving;
    begin_serving(&serving, it->a);
    OK(pinfold_probe(it->b, it->a_of_b, 3, 0, PINFOLD_FOREVER, &found));
    CHECK(found.len == len);
    OK(pinfold_claim(it->b, it->a_of_b, 3, 0, &first, NULL));
    OK(pinfold_claimed_recv(first, into, len, &came));
    CHECK(came.len == len && filled(into, len, 9));
    end_serving(&serving);
    pinfold_completion done = take_one(it, queue);
    CHECK(done.context == 4 && done.status == PINFOLD_OK);
    pinfold_queue_free(queue);
    free(out);
    free(into);

    // What makes no sense.
    CHECK(pinfold_claim(it->b, it->a_of_b, 1, 0, NULL, NULL) == PINFOLD_INVALID);
    CHECK(pinfold_claim(NULL, it->a_of_b, 1, 0, &none, NULL) == PINFOLD_INVALID);
    CHECK(pinfold_claimed_recv(NULL, in, 2, NULL) == PINFOLD_INVALID);
    CHECK(pinfold_claimed_message(NULL, &message) == PINFOLD_INVALID);
    CHECK(pinfold_claimed_facts(NULL, &found) == PINFOLD_INVALID);
    pinfold_claimed_free(NULL);
    pinfold_claimed_discard(NULL);
}

// The handles outlive their endpoint, whose end they then tell of.
static void ends(void) {
    pair it = pair_with(NULL);
    pinfold_claimed *kept[2];
    char in[8];
    for (int at = 0; at < 2; at++) {
        OK(pinfold_send(it.a, it.b_of_a, 1, "kept", 4, NULL));
        OK(pinfold_probe(it.b, it.a_of_b, 1, 0, PINFOLD_FOREVER, NULL));
        OK(pinfold_claim(it.b, it.a_of_b, 1, 0, &kept[at], NULL));
    }
    end_pair(&it);
    CHECK(pinfold_claimed_recv(kept[0], in, sizeof in, NULL) != PINFOLD_OK);
    pinfold_claimed_free(kept[1]);
}

static void parts(pair *it) {
    pinfold_arena *arena;
    pinfold_buf *bufs[PARTS], *twice[2];
    OK(pinfold_arena_open(0, false, &arena));
    for (int at = 0; at < PARTS; at++) {
        OK(pinfold_arena_alloc(arena, PART, 4096, &bufs[at]));
        fill(pinfold_buf_data(bufs[at]), PART, (unsigned)at);
    }
    // Refused, they are the program's as before.
    twice[0] = twice[1] = bufs[0];
    CHECK(pinfold_givev(it->a, it->b_of_a, 6, twice, 2) == PINFOLD_INVALID);
    twice[1] = NULL;
    CHECK(pinfold_givev(it->a, it->b_of_a, 6, twice, 2) == PINFOLD_INVALID);
    CHECK(twice[0] == bufs[0]);
    CHECK(pinfold_givev(it->a, it->b_of_a, 6, bufs, 5000) == PINFOLD_INVALID);
    CHECK(pinfold_givev(it->a, it->b_of_a, 6, NULL, 1) == PINFOLD_INVALID);
    CHECK(filled(pinfold_buf_data(bufs[0]), PART, 0));

    OK(pinfold_givev(it->a, it->b_of_a, 6, bufs, PARTS));
    for (int at = 0; at < PARTS; at++) CHECK(bufs[at] == NULL);
    pinfold_view *view;
    const void *data;
    OK(pinfold_recv_view(it->b, it->a_of_b, 6, 0, 60 * SECOND, &view));
    CHECK(pinfold_view_len(view) == PARTS * PART);
    OK(pinfold_view_data(view, &data));
    for (int at = 0; at < PARTS; at++)
        CHECK(filled((const char *)data + at * PART, PART, (unsigned)at));
    pinfold_view_free(view);

    // A failure gives the memory back to its arena.
    OK(pinfold_arena_alloc(arena, PART, 0, &bufs[0]));
    CHECK(pinfold_givev(it->a, 12345, 6, bufs, 1) == PINFOLD_UNKNOWN_PEER);
    CHECK(bufs[0] == NULL);
    // And a message of no parts is one of no bytes.
    OK(pinfold_givev(it->a, it->b_of_a, 7, NULL, 0));
    pinfold_received came;
    OK(pinfold_recv(it->b, it->a_of_b, 7, 0, NULL, 0, 60 * SECOND, &came));
    CHECK(came.len == 0);
    pinfold_arena_free(arena);
}

int main(void) {
    pair it = pair_with(NULL);
    claims(&it);
    parts(&it);
    end_pair(&it);
    ends();
    return 0;
}
