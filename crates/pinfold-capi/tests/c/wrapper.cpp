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
    client.close();
    return 0;
}
