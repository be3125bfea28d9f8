// Operations that are posted: contexts, kinds, parts, receives of many, cancel, the descriptor.
#include "check.h"
#include <poll.h>

int main(void) {
    pair it = pair_with(NULL);
    pinfold_queue *queue;
    OK(pinfold_queue_open(&queue));

    // A long message: both ends come, each with its context.
    enum { LONG = 3 << 20 };
    unsigned char *out = malloc(LONG), *in = malloc(LONG);
    fill(out, LONG, 1);
    OK(pinfold_post_recv(it.b, queue, 10, it.a_of_b, 4, 0, in, LONG));
    OK(pinfold_post_send(it.a, queue, 11, it.b_of_a, 4, out, LONG));
    CHECK(pinfold_queue_outstanding(queue) == 2);
    unsigned seen = 0;
    for (int turn = 0; turn < 2; turn++) {
        pinfold_completion done = take_one(&it, queue);
        CHECK(done.status == PINFOLD_OK && done.len == LONG && done.last && done.error == NULL);
        CHECK(done.kind == (done.context == 10 ? PINFOLD_RECEIVED : PINFOLD_SENT));
        seen |= 1u << (done.context - 10);
    }
    CHECK(seen == 3 && filled(in, LONG, 1) && pinfold_queue_outstanding(queue) == 0);

    // In parts.
    struct iovec parts[2] = {{out, 10}, {out + 10, 90}}, places[2] = {{in, 60}, {in + 60, 60}};
    memset(in, 0, 200);
    OK(pinfold_post_recvv(it.b, queue, 20, PINFOLD_ANY_PEER, 5, 0, places, 2));
    OK(pinfold_post_sendv(it.a, queue, 21, it.b_of_a, 5, parts, 2));
    take_one(&it, queue);
    take_one(&it, queue);
    CHECK(filled(in, 100, 1));

    // Many messages into one buffer.
    OK(pinfold_post_recv_many(it.b, queue, 30, it.a_of_b, 0, PINFOLD_ANY_TAG, in, 64, 40));
    for (uint64_t tag = 0; tag < 4; tag++) OK(pinfold_send(it.a, it.b_of_a, tag, &tag, 8, NULL));
    for (uint64_t tag = 0; tag < 4; tag++) {
        pinfold_completion one = take_one(&it, queue);
        CHECK(one.context == 30 && one.kind == PINFOLD_RECEIVED_ONE && one.tag == tag);
        CHECK(one.offset == 8 * tag && memcmp(in + one.offset, &tag, 8) == 0);
        CHECK(one.last == (tag == 3));
    }

    // A message of any length.
    OK(pinfold_post_recv_message(it.b, queue, 40, it.a_of_b, 6, 0));
    OK(pinfold_send(it.a, it.b_of_a, 6, "any", 3, NULL));
    pinfold_completion any = take_one(&it, queue);
    CHECK(any.kind == PINFOLD_MESSAGE && any.len == 3 && any.peer == it.a_of_b);
    CHECK(memcmp(pinfold_message_data(any.message), "any", 3) == 0);
    pinfold_message_free(any.message);

    // A truncated one has its facts, and a sentence.
    OK(pinfold_post_recv(it.b, queue, 50, it.a_of_b, 7, 0, in, 2));
    OK(pinfold_send(it.a, it.b_of_a, 7, "long", 4, NULL));
    pinfold_completion cut = take_one(&it, queue);
    CHECK(cut.status == PINFOLD_TRUNCATED && cut.len == 4 && cut.receipt.bytes == 2);
    CHECK(cut.kind == PINFOLD_FAILED && strstr(cut.error, "2") != NULL);

    // Cancelled.
    OK(pinfold_post_recv(it.b, queue, 60, it.a_of_b, 8, 0, in, 8));
    OK(pinfold_queue_cancel(queue, 60));
    pinfold_completion gone = take_one(&it, queue);
    CHECK(gone.context == 60 && gone.status == PINFOLD_CANCELLED);
    CHECK(pinfold_queue_cancel(queue, 60) == PINFOLD_INVALID);

    // To a peer that there is not.
    OK(pinfold_post_send(it.a, queue, 70, 12345, 0, out, 8));
    CHECK(take_one(&it, queue).status == PINFOLD_UNKNOWN_PEER);

    // The descriptor: armed, nothing; then readable.
    OK(pinfold_post_recv(it.b, queue, 80, it.a_of_b, 9, 0, in, 8));
    bool armed = false;
    size_t count;
    pinfold_completion completion;
    struct pollfd waiting = {pinfold_queue_fd(queue), POLLIN, 0};
    // Notices of earlier messages may wake it a few times, and are no completions.
    for (int turn = 0; !armed || poll(&waiting, 1, 0) != 0; turn++) {
        CHECK(turn < 100);
        OK(pinfold_queue_take(queue, &completion, 1, sizeof completion, 0, &count));
        CHECK(count == 0);
        OK(pinfold_queue_arm(queue, &armed));
    }
    OK(pinfold_send(it.a, it.b_of_a, 9, "now", 3, NULL));
    CHECK(poll(&waiting, 1, 60000) == 1);
    OK(pinfold_queue_take(queue, &completion, 1, sizeof completion, 60 * SECOND, &count));
    CHECK(count == 1 && completion.context == 80);

    // A smaller structure than the library's, and a larger one.
    struct { uint64_t context; } small[2];
    OK(pinfold_post_recv(it.b, queue, 90, it.a_of_b, 1, 0, in, 8));
    OK(pinfold_post_recv(it.b, queue, 91, it.a_of_b, 1, 0, in + 8, 8));
    OK(pinfold_send(it.a, it.b_of_a, 1, "x", 1, NULL));
    OK(pinfold_send(it.a, it.b_of_a, 1, "y", 1, NULL));
    size_t taken = 0;
    while (taken < 2) {
        OK(pinfold_queue_take(queue, (pinfold_completion *)(void *)(small + taken), 2 - taken, 8, 0, &count));
        taken += count;
    }
    CHECK(small[0].context == 90 && small[1].context == 91);
    CHECK(pinfold_queue_take(queue, &completion, 1, 7, 0, &count) == PINFOLD_INVALID);

    // A closed endpoint ends what was posted; its memory is ours again.
    OK(pinfold_post_recv(it.b, queue, 100, it.a_of_b, 2, 0, in, 8));
    OK(pinfold_endpoint_close(it.b));
    OK(pinfold_queue_take(queue, &completion, 1, sizeof completion, 60 * SECOND, &count));
    CHECK(count == 1 && completion.status == PINFOLD_CLOSED);

    end_pair(&it);
    pinfold_queue_free(queue);
    free(out);
    free(in);
    return 0;
}
