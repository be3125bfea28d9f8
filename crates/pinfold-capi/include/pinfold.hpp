// Pinfold for C++17: handles that free themselves, errors as exceptions, memory as it comes. A thin
// layer over pinfold.h, which says what each function does; handle.get() goes there from here.
#ifndef PINFOLD_HPP
#define PINFOLD_HPP

#include <pinfold.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace pinfold {

// A function of the library that did not do what it was asked.
class error : public std::runtime_error {
public:
    explicit error(pinfold_status status) : std::runtime_error(pinfold_error()), status_(status) {}
    error(pinfold_status status, const char *sentence)
        : std::runtime_error(sentence), status_(status) {}

    pinfold_status status() const noexcept { return status_; }

private:
    pinfold_status status_;
};

inline void check(pinfold_status status) {
    if (status != PINFOLD_OK) throw error(status);
}

// A limit of time; forever is one, too.
class patience {
public:
    template <class Rep, class Period>
    patience(std::chrono::duration<Rep, Period> limit) // NOLINT: to be given as it is.
        : nanoseconds_(std::chrono::duration_cast<std::chrono::nanoseconds>(limit).count()) {
        if (nanoseconds_ < 0) nanoseconds_ = 0;
    }

    static patience forever() noexcept { return patience(PINFOLD_FOREVER, 0); }
    std::int64_t nanoseconds() const noexcept { return nanoseconds_; }

private:
    patience(std::int64_t nanoseconds, int) noexcept : nanoseconds_(nanoseconds) {}
    std::int64_t nanoseconds_;
};

// Memory to send from or to receive into: a pointer and a length, which anything that has data()
// and size() becomes, a std::span of C++20 included.
template <class Void>
class memory {
public:
    memory(Void *data, std::size_t len) noexcept : data_(data), len_(len) {}

    template <class Range, class Element = std::remove_pointer_t<
                               decltype(std::data(std::declval<Range &>()))>,
              class = std::enable_if_t<std::is_trivially_copyable_v<Element> &&
                                       (std::is_const_v<Void> || !std::is_const_v<Element>)>>
    memory(Range &&range) // NOLINT: to be given as it is.
        : data_(std::data(range)), len_(std::size(range) * sizeof(Element)) {}

    Void *data() const noexcept { return data_; }
    std::size_t size() const noexcept { return len_; }

private:
    Void *data_;
    std::size_t len_;
};

using bytes = memory<const void>;
using room = memory<void>;

// The tags that a receive takes.
struct tags {
    std::uint64_t tag, ignore;
    tags(std::uint64_t exact) noexcept : tag(exact), ignore(0) {} // NOLINT: to be given as it is.
    tags(std::uint64_t tag, std::uint64_t ignore) noexcept : tag(tag), ignore(ignore) {}
    static tags any() noexcept { return tags(0, PINFOLD_ANY_TAG); }
};

namespace detail {
template <auto Free>
struct freeing {
    template <class Handle>
    void operator()(Handle *handle) const noexcept {
        Free(handle);
    }
};
inline void free_region(pinfold_region *region) noexcept { pinfold_region_free(region); }
} // namespace detail

using message = std::unique_ptr<pinfold_message, detail::freeing<pinfold_message_free>>;
using view = std::unique_ptr<pinfold_view, detail::freeing<pinfold_view_free>>;
using buf = std::unique_ptr<pinfold_buf, detail::freeing<pinfold_buf_free>>;
using arena = std::unique_ptr<pinfold_arena, detail::freeing<pinfold_arena_free>>;
using queue = std::unique_ptr<pinfold_queue, detail::freeing<pinfold_queue_free>>;
using region = std::unique_ptr<pinfold_region, detail::freeing<detail::free_region>>;
using remote = std::unique_ptr<pinfold_remote, detail::freeing<pinfold_remote_free>>;

// A message that was claimed: no other receive or probe finds it, until this is received,
// discarded, or destroyed, after which it is found again.
class claimed {
public:
    explicit claimed(pinfold_claimed *handle) noexcept : handle_(handle) {}

    pinfold_claimed *get() const noexcept { return handle_.get(); }
    explicit operator bool() const noexcept { return handle_ != nullptr; }

    pinfold_received facts() const {
        pinfold_received found;
        check(pinfold_claimed_facts(get(), &found));
        return found;
    }

    // Receives it; this is empty then, also if it throws.
    pinfold_received recv(room into) {
        pinfold_received received;
        check(pinfold_claimed_recv(handle_.release(), into.data(), into.size(), &received));
        return received;
    }

    message recv() {
        pinfold_message *came;
        check(pinfold_claimed_message(handle_.release(), &came));
        return message(came);
    }

    // Drops it: its sender is told that it was received.
    void discard() noexcept { pinfold_claimed_discard(handle_.release()); }

private:
    std::unique_ptr<pinfold_claimed, detail::freeing<pinfold_claimed_free>> handle_;
};

// The bytes of a message, good as long as it.
inline std::string_view bytes_of(const message &it) noexcept {
    auto data = static_cast<const char *>(pinfold_message_data(it.get()));
    return {data, pinfold_message_len(it.get())};
}

inline queue make_queue() {
    pinfold_queue *made;
    check(pinfold_queue_open(&made));
    return queue(made);
}

inline arena make_arena(std::size_t bytes_max = 0, bool writable = false) {
    pinfold_arena *made;
    check(pinfold_arena_open(bytes_max, writable, &made));
    return arena(made);
}

inline buf alloc(const arena &from, std::size_t len, std::size_t align = 0) {
    pinfold_buf *made;
    check(pinfold_arena_alloc(from.get(), len, align, &made));
    return buf(made);
}

// Completions that were taken, at most `most`; see pinfold_queue_take(). The messages in them are
// the caller's.
inline std::vector<pinfold_completion> take(const queue &from, std::size_t most, patience limit) {
    std::vector<pinfold_completion> taken(most);
    std::size_t count = 0;
    check(pinfold_queue_take(from.get(), taken.data(), most, sizeof(pinfold_completion),
                             limit.nanoseconds(), &count));
    taken.resize(count);
    return taken;
}

// An endpoint.
class endpoint {
public:
    endpoint() : endpoint(nullptr) {}
    explicit endpoint(const pinfold_config &config) : endpoint(&config) {}

    static endpoint listen(const std::string &address) {
        pinfold_config config;
        check(pinfold_config_init(&config, sizeof config));
        config.listen = address.c_str();
        return endpoint(config);
    }

    pinfold_endpoint *get() const noexcept { return handle_.get(); }

    pinfold_peer connect(const std::string &address, patience limit) const {
        pinfold_peer peer;
        check(pinfold_connect(get(), address.c_str(), limit.nanoseconds(), &peer));
        return peer;
    }

    pinfold_peer accept(patience limit) const {
        pinfold_peer peer;
        check(pinfold_accept(get(), limit.nanoseconds(), &peer));
        return peer;
    }

    pinfold_receipt send(pinfold_peer peer, std::uint64_t tag, bytes data) const {
        pinfold_receipt receipt;
        check(pinfold_send(get(), peer, tag, data.data(), data.size(), &receipt));
        return receipt;
    }

    pinfold_received recv(pinfold_peer peer, tags tag, room into,
                          patience limit = patience::forever()) const {
        pinfold_received received;
        check(pinfold_recv(get(), peer, tag.tag, tag.ignore, into.data(), into.size(),
                           limit.nanoseconds(), &received));
        return received;
    }

    message recv(pinfold_peer peer, tags tag, patience limit = patience::forever()) const {
        pinfold_message *came;
        check(pinfold_recv_message(get(), peer, tag.tag, tag.ignore, limit.nanoseconds(), &came));
        return message(came);
    }

    // The buffer is this caller's as before if it throws.
    void give(pinfold_peer peer, std::uint64_t tag, buf &given,
              patience limit = patience::forever()) const {
        pinfold_buf *handle = given.release();
        pinfold_status status = pinfold_give(get(), peer, tag, &handle, limit.nanoseconds());
        given.reset(handle);
        check(status);
    }

    // Several buffers as one message, in that order. Of what was refused, error::status() being
    // PINFOLD_INVALID, they are the caller's as before; else all of them are empty afterwards.
    void give(pinfold_peer peer, std::uint64_t tag, std::vector<buf> &parts) const {
        std::vector<pinfold_buf *> handles(parts.size());
        for (std::size_t at = 0; at < parts.size(); at++) handles[at] = parts[at].release();
        pinfold_status status = pinfold_givev(get(), peer, tag, handles.data(), handles.size());
        for (std::size_t at = 0; at < parts.size(); at++) parts[at].reset(handles[at]);
        check(status);
    }

    // The facts of the message that a receive would take now, which stays where it is.
    std::optional<pinfold_received> probe(pinfold_peer peer, tags tag) const {
        pinfold_received found;
        pinfold_status status = pinfold_probe(get(), peer, tag.tag, tag.ignore, 0, &found);
        if (status == PINFOLD_TIMEOUT) return std::nullopt;
        check(status);
        return found;
    }

    // The message that a receive would take now, kept for the caller; none if there is none.
    std::optional<claimed> claim(pinfold_peer peer, tags tag) const {
        pinfold_claimed *found;
        pinfold_status status = pinfold_claim(get(), peer, tag.tag, tag.ignore, &found, nullptr);
        if (status == PINFOLD_TIMEOUT) return std::nullopt;
        check(status);
        return claimed(found);
    }

    view recv_view(pinfold_peer peer, tags tag, patience limit = patience::forever()) const {
        pinfold_view *came;
        check(pinfold_recv_view(get(), peer, tag.tag, tag.ignore, limit.nanoseconds(), &came));
        return view(came);
    }

    void close() const { check(pinfold_endpoint_close(get())); }

private:
    explicit endpoint(const pinfold_config *config) {
        pinfold_endpoint *made;
        check(pinfold_endpoint_open(config, &made));
        handle_.reset(made);
    }

    std::unique_ptr<pinfold_endpoint, detail::freeing<pinfold_endpoint_free>> handle_;
};

} // namespace pinfold

#endif
