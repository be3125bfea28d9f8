// Messages by calls that wait: any size, parts, limits of time, truncation, receipts.
#include "check.h"

int main(void) {
    pair it = pair_with(NULL);
    static unsigned char out[1 << 16], in[1 << 16];

    // Short ones of several sizes, which go into the ring at once.
    for (size_t len = 0; len <= 4096; len = len * 2 + 1) {
        fill(out, len, (unsigned)len);
        memset(in, 0, len);
        pinfold_receipt sent;
        OK(pinfold_send(it.a, it.b_of_a, 7, out, len, &sent));
        CHECK(sent.bytes == len && sent.path == (len <= 56 ? PINFOLD_INLINE : PINFOLD_EAGER));
        pinfold_received came;
        OK(pinfold_recv(it.b, it.a_of_b, 7, 0, in, sizeof in, 60 * SECOND, &came));
        CHECK(came.len == len && came.tag == 7 && came.peer == it.a_of_b);
        CHECK(came.receipt.path == sent.path && filled(in, len, (unsigned)len));
    }

    // In parts; from any peer with any tag.
    struct iovec parts[2] = {{out, 100}, {out + 100, 28}};
    fill(out, 128, 3);
    OK(pinfold_sendv(it.a, it.b_of_a, 99, parts, 2, NULL));
    struct iovec places[3] = {{in, 1}, {NULL, 0}, {in + 1, 200}};
    pinfold_received came;
    OK(pinfold_recvv(it.b, PINFOLD_ANY_PEER, 0, PINFOLD_ANY_TAG, places, 3, &came));
    CHECK(came.len == 128 && came.tag == 99 && filled(in, 128, 3));

    // Masks, and a look that leaves the message where it is.
    OK(pinfold_send(it.a, it.b_of_a, 0x100 | 5, "five", 4, NULL));
    CHECK(pinfold_probe(it.b, it.a_of_b, 0x200, 0xff, 0, &came) == PINFOLD_TIMEOUT);
    OK(pinfold_probe(it.b, it.a_of_b, 0x100, 0xff, PINFOLD_FOREVER, &came));
    CHECK(came.len == 4 && came.tag == (0x100 | 5));
    CHECK(pinfold_probe(it.b, it.a_of_b, 0, 0, 5, &came) == PINFOLD_INVALID);

    // Too long for its memory: the beginning, and the facts.
    CHECK(pinfold_recv(it.b, it.a_of_b, 0x105, 0, in, 2, PINFOLD_FOREVER, &came) == PINFOLD_TRUNCATED);
    CHECK(came.len == 4 && came.receipt.bytes == 2 && memcmp(in, "fi", 2) == 0);
    CHECK(strstr(pinfold_error(), "4 bytes long") != NULL);

    // Nothing comes: now, and within a moment; then what does come is not lost.
    CHECK(pinfold_recv(it.b, it.a_of_b, 1, 0, in, 8, 0, NULL) == PINFOLD_TIMEOUT);
    CHECK(pinfold_recv(it.b, it.a_of_b, 1, 0, in, 8, 1000000, NULL) == PINFOLD_TIMEOUT);
    OK(pinfold_send_within(it.a, it.b_of_a, 1, "late", 4, 0));
    OK(pinfold_recv(it.b, it.a_of_b, 1, 0, in, 8, 60 * SECOND, &came));
    CHECK(came.len == 4 && memcmp(in, "late", 4) == 0);

    // One that goes only when it is received is not taken within a moment, and comes not later.
    static unsigned char large[8 << 20];
    CHECK(pinfold_send_within(it.a, it.b_of_a, 2, large, sizeof large, 0) == PINFOLD_LIMIT_REACHED);
    serving serving;
    begin_serving(&serving, it.b);
    pinfold_status late = pinfold_send_within(it.a, it.b_of_a, 2, large, sizeof large, 1000000);
    end_serving(&serving);
    CHECK(late == PINFOLD_NOT_TAKEN);

    // Of any length.
    pinfold_message *message;
    OK(pinfold_send(it.a, it.b_of_a, 3, "a message", 9, NULL));
    OK(pinfold_recv_message(it.b, it.a_of_b, 3, 0, 60 * SECOND, &message));
    CHECK(pinfold_message_len(message) == 9);
    OK(pinfold_message_facts(message, &came));
    CHECK(came.tag == 3 && came.peer == it.a_of_b);
    CHECK(pinfold_recv_message(it.b, it.a_of_b, 3, 0, 0, &message) == PINFOLD_TIMEOUT);

    pinfold_counters counters;
    OK(pinfold_count(it.a, &counters, sizeof counters));
    CHECK(counters.sent[PINFOLD_INLINE] > 0 && counters.sent[PINFOLD_EAGER] > 0);

    pinfold_peer peers[1];
    size_t count;
    OK(pinfold_peers(it.a, peers, 1, &count));
    CHECK(count == 1 && peers[0] == it.b_of_a);
    pinfold_peer_info info;
    OK(pinfold_peer_facts(it.a, it.b_of_a, &info, sizeof info));
    CHECK(info.pid == (uint32_t)getpid() && info.paths != 0 && info.name[0] != 0);

    end_pair(&it);
    // It outlives its endpoint.
    CHECK(memcmp(pinfold_message_data(message), "a message", 9) == 0);
    pinfold_message_free(message);
    return 0;
}
