// The wrapper for C++: handles free themselves, errors are exceptions, containers are memory.
#include <pinfold.hpp>

#include <array>
#include <cstdio>
#include <thread>
#include <unistd.h>

#define CHECK(condition)                                                                      \
    do {                                                                                      \
        if (!(condition)) {                                                                   \
            std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);      \
            std::exit(1);                                                                     \
        }                                                                                     \
    } while (0)

using namespace std::chrono_literals;

// Messages that are claimed: received in either way, dropped, and found again.
static void claims(pinfold::endpoint &server, pinfold::endpoint &client, pinfold_peer of_client) {
    using pinfold::tags;
    CHECK(!server.claim(PINFOLD_ANY_PEER, tags::any()) && !server.probe(PINFOLD_ANY_PEER, 21));
    for (const char *word : {"one", "two", "three", "four"})
        client.send(of_client, 21, std::string_view(word));
    // One peer's messages come in order, so this is the end of waiting for all of them.
    client.send(of_client, 22, std::string_view("last"));
    CHECK(pinfold::bytes_of(server.recv(PINFOLD_ANY_PEER, 22, 60s)) == "last");

    CHECK(server.probe(PINFOLD_ANY_PEER, 21)->len == 3);
    auto one = server.claim(PINFOLD_ANY_PEER, 21);
    auto two = server.claim(PINFOLD_ANY_PEER, 21);
    auto three = server.claim(PINFOLD_ANY_PEER, 21);
    CHECK(one && two && three && three->facts().len == 5 && three->facts().tag == 21);
    CHECK(pinfold::bytes_of(two->recv()) == "two" && !*two);
    three->discard();
    CHECK(!*three);
    // What is let go is found again, before what came later.
    one.reset();
    one = server.claim(PINFOLD_ANY_PEER, 21);
    std::array<char, 2> small{};
    try {
        one->recv(small);
        CHECK(false);
    } catch (const pinfold::error &error) {
        CHECK(error.status() == PINFOLD_TRUNCATED && small[1] == 'n' && !*one);
    }
    // A wrong receive gives the message back, too.
    auto four = server.claim(PINFOLD_ANY_PEER, 21);
    try {
        four->recv(pinfold::room(nullptr, 4));
        CHECK(false);
    } catch (const pinfold::error &error) {
        CHECK(error.status() == PINFOLD_INVALID && !*four);
    }
    std::array<char, 8> room{};
    CHECK(server.claim(PINFOLD_ANY_PEER, 21)->recv(room).len == 4 && room[3] == 'r');
    CHECK(!server.claim(PINFOLD_ANY_PEER, tags::any()));
}

// Memory that is given away in parts arrives in a row.
static void parts(pinfold::endpoint &server, pinfold::endpoint &client, pinfold_peer of_client) {
    auto arena = pinfold::make_arena();
    std::vector<pinfold::buf> given;
    for (int at = 0; at < 3; at++) {
        given.push_back(pinfold::alloc(arena, 8192, 4096));
        std::memset(pinfold_buf_data(given.back().get()), 'a' + at, 8192);
    }
    given.emplace_back();
    try {
        client.give(of_client, 23, given);
        CHECK(false);
    } catch (const pinfold::error &error) {
        CHECK(error.status() == PINFOLD_INVALID && given[0] && given[2]);
    }
    given.pop_back();
    client.give(of_client, 23, given);
    CHECK(!given[0] && !given[1] && !given[2]);
    const auto view = server.recv_view(PINFOLD_ANY_PEER, 23, 60s);
    CHECK(pinfold_view_len(view.get()) == 3 * 8192);
    const void *data = nullptr;
    pinfold::check(pinfold_view_data(view.get(), &data));
    for (int at = 0; at < 3 * 8192; at++)
        CHECK(static_cast<const char *>(data)[at] == 'a' + at / 8192);
    given.clear();
    given.push_back(pinfold::alloc(arena, 64));
    try {
        client.give(12345, 23, given);
        CHECK(false);
    } catch (const pinfold::error &error) {
        CHECK(error.status() == PINFOLD_UNKNOWN_PEER && !given[0]);
    }
}

int main() {
    const std::string name = "local:capi-cpp-" + std::to_string(getpid());
    auto server = pinfold::endpoint::listen(name);
    pinfold::endpoint client;
    pinfold_peer of_server = 0;
    std::thread accepting([&] { of_server = server.accept(60s); });
    const pinfold_peer of_client = client.connect(name, 60s);
    accepting.join();

    const std::vector<double> numbers = {1.5, 2.5, 3.5};
    client.send(of_client, 1, numbers);
    std::array<double, 3> came{};
    const auto received = server.recv(of_server, 1, came, 60s);
    CHECK(received.len == sizeof came && came[2] == 3.5);

    client.send(of_client, 2, std::string_view("text"));
    const auto message = server.recv(PINFOLD_ANY_PEER, pinfold::tags::any());
    CHECK(pinfold::bytes_of(message) == "text");

    auto arena = pinfold::make_arena();
    auto buf = pinfold::alloc(arena, 1 << 20);
    std::memset(pinfold_buf_data(buf.get()), 7, 1 << 20);
    client.give(of_client, 3, buf);
    CHECK(!buf);
    const auto view = server.recv_view(of_server, 3, 60s);
    const void *data = nullptr;
    pinfold::check(pinfold_view_data(view.get(), &data));
    CHECK(static_cast<const char *>(data)[(1 << 20) - 1] == 7);

    bool timed_out = false;
    try {
        server.recv(of_server, 4, came, 0s);
    } catch (const pinfold::error &error) {
        timed_out = error.status() == PINFOLD_TIMEOUT;
    }
    CHECK(timed_out);

    buf = pinfold::alloc(arena, 64);
    std::memset(pinfold_buf_data(buf.get()), 0, 64);
    try {
        client.give(12345, 3, buf);
        CHECK(false);
    } catch (const pinfold::error &error) {
        CHECK(error.status() == PINFOLD_UNKNOWN_PEER && buf);
    }

    auto queue = pinfold::make_queue();
    std::array<char, 8> room{};
    pinfold::check(pinfold_post_recv(server.get(), queue.get(), 9, of_server, 5, 0, room.data(), 8));
    client.send(of_client, 5, std::string_view("posted"));
    const auto taken = pinfold::take(queue, 4, 60s);
    CHECK(taken.size() == 1 && taken[0].context == 9 && taken[0].len == 6);
    claims(server, client, of_client);
    parts(server, client, of_client);
    client.close();
    return 0;
}
