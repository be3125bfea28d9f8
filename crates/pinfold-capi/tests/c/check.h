// Pairs, checks and contents for the programs of the tests, which end at the first failed check.
#ifndef CHECK_H
#define CHECK_H

#include <pinfold.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(condition)                                                                      \
    do {                                                                                      \
        if (!(condition)) {                                                                   \
            fprintf(stderr, "%s:%d: not so: %s (%s)\n", __FILE__, __LINE__, #condition,       \
                    pinfold_error());                                                         \
            exit(1);                                                                          \
        }                                                                                     \
    } while (0)

#define OK(call) CHECK((call) == PINFOLD_OK)

#define SECOND INT64_C(1000000000)

// Two endpoints of this process that are connected.
typedef struct {
    pinfold_endpoint *a, *b;
    pinfold_peer b_of_a, a_of_b;
} pair;

typedef struct {
    pinfold_endpoint *endpoint;
    pinfold_peer peer;
} accepting;

static void *accept_one(void *argument) {
    accepting *it = argument;
    OK(pinfold_accept(it->endpoint, 60 * SECOND, &it->peer));
    return NULL;
}

static inline pair pair_with(const pinfold_config *config) {
    pair made;
    char name[64];
    snprintf(name, sizeof name, "local:capi-%d", (int)getpid());
    pinfold_config listening;
    OK(pinfold_config_init(&listening, sizeof listening));
    if (config) listening = *config;
    listening.listen = name;
    OK(pinfold_endpoint_open(&listening, &made.b));
    OK(pinfold_endpoint_open(config, &made.a));
    accepting accepting = {made.b, 0};
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, accept_one, &accepting) == 0);
    OK(pinfold_connect(made.a, name, 60 * SECOND, &made.b_of_a));
    CHECK(pthread_join(thread, NULL) == 0);
    made.a_of_b = accepting.peer;
    return made;
}

static inline void end_pair(pair *it) {
    pinfold_endpoint_free(it->a);
    pinfold_endpoint_free(it->b);
}

// A thread that makes progress at one endpoint while another is in calls that wait.
typedef struct {
    pinfold_endpoint *endpoint;
    pthread_t thread;
    atomic_bool stop;
} serving;

static void *serve(void *argument) {
    serving *it = argument;
    while (!atomic_load(&it->stop)) OK(pinfold_progress(it->endpoint, NULL));
    return NULL;
}

static inline void begin_serving(serving *it, pinfold_endpoint *endpoint) {
    it->endpoint = endpoint;
    atomic_init(&it->stop, false);
    CHECK(pthread_create(&it->thread, NULL, serve, it) == 0);
}

static inline void end_serving(serving *it) {
    atomic_store(&it->stop, true);
    CHECK(pthread_join(it->thread, NULL) == 0);
}

// Takes one completion, and has both endpoints make progress meanwhile.
static inline pinfold_completion take_one(pair *it, pinfold_queue *queue) {
    pinfold_completion completion;
    for (;;) {
        size_t count;
        OK(pinfold_queue_take(queue, &completion, 1, sizeof completion, 0, &count));
        if (count == 1) return completion;
        OK(pinfold_progress(it->a, NULL));
        OK(pinfold_progress(it->b, NULL));
    }
}

static inline void fill(void *data, size_t len, unsigned seed) {
    for (size_t at = 0; at < len; at++) ((unsigned char *)data)[at] = (unsigned char)(seed + at * 7);
}

static inline int filled(const void *data, size_t len, unsigned seed) {
    for (size_t at = 0; at < len; at++)
        if (((const unsigned char *)data)[at] != (unsigned char)(seed + at * 7)) return 0;
    return 1;
}

#endif
