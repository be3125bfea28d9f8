// Prints what the program in send.c sends, until that ends.
#include <pinfold.h>
#include <stdio.h>

static int failed(const char *what) {
    fprintf(stderr, "%s: %s\n", what, pinfold_error());
    return 1;
}

int main(int count, char **words) {
    pinfold_config config;
    pinfold_endpoint *endpoint;
    pinfold_peer peer;
    if (count != 2) {
        fprintf(stderr, "usage: %s ADDRESS\n", words[0]);
        return 2;
    }
    pinfold_config_init(&config, sizeof config);
    config.label = "receive";
    config.listen = words[1];
    if (pinfold_endpoint_open(&config, &endpoint)) return failed(words[1]);
    if (pinfold_accept(endpoint, PINFOLD_FOREVER, &peer)) return failed("waiting for a caller");
    for (;;) {
        pinfold_message *message;
        pinfold_received facts;
        pinfold_status status = pinfold_recv_message(endpoint, peer, 0, PINFOLD_ANY_TAG,
                                                     PINFOLD_FOREVER, &message);
        if (status == PINFOLD_PEER_GONE) break;
        if (status || pinfold_message_facts(message, &facts)) return failed("receiving");
        printf("%d: %.*s\n", (int)facts.tag, (int)facts.len,
               (const char *)pinfold_message_data(message));
        pinfold_message_free(message);
    }
    pinfold_endpoint_free(endpoint);
    return 0;
}
