// Sends its arguments, each as a message, to the program in receive.c.
#include <pinfold.h>
#include <stdio.h>
#include <string.h>

static int failed(const char *what) {
    fprintf(stderr, "%s: %s\n", what, pinfold_error());
    return 1;
}

int main(int count, char **words) {
    pinfold_endpoint *endpoint;
    pinfold_peer peer;
    if (count < 3) {
        fprintf(stderr, "usage: %s ADDRESS WORD...\n", words[0]);
        return 2;
    }
    if (pinfold_endpoint_open(NULL, &endpoint)) return failed("making an endpoint");
    if (pinfold_connect(endpoint, words[1], PINFOLD_FOREVER, &peer)) return failed(words[1]);
    for (int at = 2; at < count; at++) {
        pinfold_receipt receipt;
        if (pinfold_send(endpoint, peer, (uint64_t)at - 2, words[at], strlen(words[at]), &receipt))
            return failed(words[at]);
        printf("%s: by %s\n", words[at], pinfold_path_name(receipt.path));
    }
    pinfold_endpoint_free(endpoint);
    return 0;
}
