// Handlers: calls, requests, answers at once and later, none, and their release.
#include "check.h"

static int called, released;
static pinfold_answer *kept;

static void handler(const pinfold_active *active, void *user) {
    size_t len;
    const char *data = pinfold_active_data(active, &len);
    called += *(int *)user;
    if (!pinfold_active_is_request(active)) {
        pinfold_answer *answer;
        CHECK(pinfold_active_defer(active, &answer) == PINFOLD_ALREADY_ANSWERED);
        return;
    }
    if (len == 5 && memcmp(data, "later", 5) == 0) {
        OK(pinfold_active_defer(active, &kept));
        CHECK(pinfold_active_reply(active, "no", 2) == PINFOLD_ALREADY_ANSWERED);
        return;
    }
    OK(pinfold_active_reply(active, data, len));
}

static void release(void *user) {
    released += *(int *)user;
}

int main(void) {
    pair it = pair_with(NULL);
    int one = 1;
    OK(pinfold_handle(it.b, 3, handler, &one, release));
    // The pointer is released also if nothing calls the handler.
    CHECK(pinfold_handle(it.b, 4, NULL, &one, release) == PINFOLD_INVALID && released == 1);
    CHECK(pinfold_handle(NULL, 4, handler, &one, release) == PINFOLD_INVALID && released == 2);
    released = 0;
    pinfold_queue *queue;
    OK(pinfold_queue_open(&queue));

    OK(pinfold_call(it.a, it.b_of_a, 3, "call", 4));
    while (called < 1) OK(pinfold_progress(it.b, NULL));
    OK(pinfold_post_call(it.a, queue, 1, it.b_of_a, 3, "call", 4));
    pinfold_completion done = take_one(&it, queue);
    CHECK(done.kind == PINFOLD_SENT);
    while (called < 2) OK(pinfold_progress(it.b, NULL));

    OK(pinfold_post_ask(it.a, queue, 2, it.b_of_a, 3, "echo", 4));
    done = take_one(&it, queue);
    CHECK(done.kind == PINFOLD_MESSAGE && done.context == 2 && done.len == 4);
    CHECK(memcmp(pinfold_message_data(done.message), "echo", 4) == 0);
    pinfold_message_free(done.message);

    for (int answered = 1; answered >= 0; answered--) {
        OK(pinfold_post_ask(it.a, queue, 3, it.b_of_a, 3, "later", 5));
        while (!kept) OK(pinfold_progress(it.b, NULL));
        if (answered) OK(pinfold_answer_send(kept, "now", 3));
        else pinfold_answer_free(kept);
        kept = NULL;
        done = take_one(&it, queue);
        CHECK(done.status == (answered ? PINFOLD_OK : PINFOLD_NOT_HANDLED));
        pinfold_message_free(done.message);
    }

    // Nobody serves the other endpoint meanwhile.
    pinfold_message *answer;
    CHECK(pinfold_ask(it.a, it.b_of_a, 3, "x", 1, 1000000, &answer) == PINFOLD_TIMEOUT);

    CHECK(released == 0);
    OK(pinfold_unhandle(it.b, 3));
    CHECK(released == 1 && pinfold_unhandle(it.b, 3) == PINFOLD_INVALID);
    OK(pinfold_post_ask(it.a, queue, 4, it.b_of_a, 3, "nobody", 6));
    CHECK(take_one(&it, queue).status == PINFOLD_NOT_HANDLED);

    end_pair(&it);
    pinfold_queue_free(queue);
    return 0;
}
