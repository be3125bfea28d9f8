// Arguments that make no sense, peers that die, children that fork: a status and a sentence each.
#include "check.h"
#include <signal.h>
#include <sys/wait.h>

static void arguments(void) {
    pinfold_endpoint *endpoint;
    pinfold_peer peer;
    char text[64];
    CHECK(pinfold_endpoint_open(NULL, NULL) == PINFOLD_INVALID);
    CHECK(strcmp(pinfold_error(), "endpoint is NULL") == 0);
    CHECK(pinfold_config_init(NULL, sizeof(pinfold_config)) == PINFOLD_INVALID);
    OK(pinfold_endpoint_open(NULL, &endpoint));
    CHECK(pinfold_connect(endpoint, "nonsense", 0, &peer) == PINFOLD_BAD_ADDRESS);
    CHECK(pinfold_connect(endpoint, NULL, 0, &peer) == PINFOLD_INVALID);
    CHECK(pinfold_connect(endpoint, "local:there-is-none-of-this", 0, &peer) == PINFOLD_NAME_GONE);
    CHECK(strstr(pinfold_error(), "there-is-none-of-this") != NULL);
    CHECK(pinfold_connect(NULL, "local:a", 0, &peer) == PINFOLD_INVALID);
    CHECK(pinfold_accept(endpoint, 0, &peer) == PINFOLD_NOT_LISTENING);
    CHECK(pinfold_endpoint_address(endpoint, text, sizeof text) == PINFOLD_NOT_LISTENING);
    CHECK(pinfold_send(endpoint, 1, 0, NULL, 8, NULL) == PINFOLD_INVALID);
    CHECK(pinfold_send(endpoint, 1, 0, text, SIZE_MAX, NULL) == PINFOLD_INVALID);
    CHECK(pinfold_send(endpoint, 1, 0, NULL, 0, NULL) == PINFOLD_UNKNOWN_PEER);
    CHECK(pinfold_sendv(endpoint, 1, 0, NULL, 1, NULL) == PINFOLD_INVALID);
    struct iovec part = {text, 1};
    CHECK(pinfold_sendv(endpoint, 1, 0, &part, 1025, NULL) == PINFOLD_INVALID);
    CHECK(pinfold_disconnect(endpoint, 7) == PINFOLD_UNKNOWN_PEER);
    CHECK(pinfold_queue_open(NULL) == PINFOLD_INVALID);
    CHECK(pinfold_post_recv(endpoint, NULL, 0, 0, 0, 0, text, 8) == PINFOLD_INVALID);
    CHECK(pinfold_active_reply(NULL, text, 1) == PINFOLD_INVALID);
    CHECK(pinfold_answer_send(NULL, text, 1) == PINFOLD_INVALID);

    pinfold_config config;
    pinfold_endpoint *other;
    OK(pinfold_config_init(&config, sizeof config));
    config.paths = 1u << 5;
    CHECK(pinfold_endpoint_open(&config, &other) == PINFOLD_INVALID);
    OK(pinfold_config_init(&config, sizeof config));
    config.size = 4;
    CHECK(pinfold_endpoint_open(&config, &other) == PINFOLD_INVALID);
    OK(pinfold_config_init(&config, sizeof config));
    config.connect_timeout = -1;
    CHECK(pinfold_endpoint_open(&config, &other) == PINFOLD_INVALID);
    OK(pinfold_config_init(&config, sizeof config));
    config.listen = "tcp:127.0.0.1:0";
    OK(pinfold_endpoint_open(&config, &other));
    OK(pinfold_endpoint_address(other, text, sizeof text));
    CHECK(strncmp(text, "tcp:127.0.0.1:", 14) == 0);
    CHECK(pinfold_endpoint_address(other, text, 8) == PINFOLD_INVALID);
    pinfold_endpoint_free(other);

    // NULL is freed without a word, and asked for without harm.
    pinfold_endpoint_free(NULL);
    pinfold_message_free(NULL);
    pinfold_view_free(NULL);
    pinfold_queue_free(NULL);
    pinfold_arena_free(NULL);
    pinfold_buf_free(NULL);
    pinfold_remote_free(NULL);
    pinfold_answer_free(NULL);
    OK(pinfold_region_free(NULL));
    CHECK(pinfold_message_len(NULL) == 0 && pinfold_endpoint_fd(NULL) == -1);

    // Every status has a name, and every refusal a sentence.
    CHECK(strcmp(pinfold_status_name(PINFOLD_OTHER), "PINFOLD_OTHER") == 0);
    CHECK(strcmp(pinfold_status_name(PINFOLD_TIMEOUT), "PINFOLD_TIMEOUT") == 0);
    CHECK(strcmp(pinfold_status_name(1000), "unknown") == 0);
    CHECK(strcmp(pinfold_path_name(PINFOLD_CMA), "cma") == 0);
    CHECK(pinfold_refusal_text(2, text, sizeof text) > 0 && text[0] != 0);
    CHECK(pinfold_refusal_text(2, text, 4) > 4 && strlen(text) == 3);
    CHECK(pinfold_refusal_text(0, NULL, 0) == 0);
    CHECK(pinfold_version()[0] != 0);
    pinfold_endpoint_free(endpoint);
}

static void death(void) {
    char name[64];
    snprintf(name, sizeof name, "local:capi-death-%d", (int)getpid());
    int ready[2];
    CHECK(pipe(ready) == 0);
    pid_t child = fork();
    if (child == 0) {
        pinfold_config config;
        pinfold_endpoint *endpoint;
        pinfold_peer peer;
        OK(pinfold_config_init(&config, sizeof config));
        config.listen = name;
        OK(pinfold_endpoint_open(&config, &endpoint));
        CHECK(write(ready[1], "x", 1) == 1);
        OK(pinfold_accept(endpoint, 60 * SECOND, &peer));
        OK(pinfold_send(endpoint, peer, 1, "here", 4, NULL));
        for (;;) pause();
    }
    char byte, in[8];
    CHECK(read(ready[0], &byte, 1) == 1);
    pinfold_endpoint *endpoint;
    pinfold_queue *queue;
    pinfold_peer peer;
    OK(pinfold_endpoint_open(NULL, &endpoint));
    OK(pinfold_queue_open(&queue));
    OK(pinfold_connect(endpoint, name, 60 * SECOND, &peer));
    OK(pinfold_recv(endpoint, peer, 1, 0, in, 8, 60 * SECOND, NULL));
    OK(pinfold_post_recv(endpoint, queue, 5, peer, 2, 0, in, 8));
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
    pinfold_completion done;
    size_t count;
    OK(pinfold_queue_take(queue, &done, 1, sizeof done, 60 * SECOND, &count));
    CHECK(count == 1 && done.status == PINFOLD_PEER_GONE && strstr(done.error, "is gone") != NULL);
    pinfold_status sent = pinfold_send(endpoint, peer, 1, "x", 1, NULL);
    CHECK(sent == PINFOLD_PEER_GONE || sent == PINFOLD_UNKNOWN_PEER);
    pinfold_endpoint_free(endpoint);
    pinfold_queue_free(queue);
}

static void forked(void) {
    pair it = pair_with(NULL);
    pid_t child = fork();
    if (child == 0) {
        CHECK(pinfold_send(it.a, it.b_of_a, 1, "x", 1, NULL) == PINFOLD_FORKED);
        pinfold_endpoint_free(it.a);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    char in[1];
    OK(pinfold_send(it.a, it.b_of_a, 1, "x", 1, NULL));
    OK(pinfold_recv(it.b, it.a_of_b, 1, 0, in, 1, 60 * SECOND, NULL));
    end_pair(&it);
}

static void strict(void) {
    pinfold_config config;
    OK(pinfold_config_init(&config, sizeof config));
    config.strict = true;
    config.paths = 1u << PINFOLD_INLINE | 1u << PINFOLD_EAGER;
    pair it = pair_with(&config);
    char in[200], out[200] = {0};
    pinfold_received came;
    OK(pinfold_send(it.a, it.b_of_a, 1, out, sizeof out, NULL));
    OK(pinfold_recv(it.b, it.a_of_b, 1, 0, in, sizeof in, 60 * SECOND, &came));
    CHECK(came.receipt.path == PINFOLD_EAGER);
    end_pair(&it);
}

int main(void) {
    arguments();
    death();
    forked();
    strict();
    return 0;
}
