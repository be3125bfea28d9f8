// Pinfold's C interface. Made by cbindgen from crates/pinfold-capi: not to be edited.

#ifndef PINFOLD_H
#define PINFOLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

// Messages between processes, from and into the memory that they already use.
//
// Functions return a pinfold_status, PINFOLD_OK where all went well; pinfold_error() then has the
// sentence that goes with it, for the calling thread. Results go through pointers, which come last
// and may be NULL where a function says so.
//
// Handles are pointers to types without a known size. Each is made by one function and ended by
// the _free function of its type, which takes NULL too. Handles may be used by several threads at
// the same time, but for their _free function, and but for messages, views and buffers, which
// belong to one thread at a time. No function starts a thread unless it says so, and no handle may
// be used in a child that was made by fork(2), but for its _free function.
//
// Times are nanoseconds; PINFOLD_FOREVER, or any other negative number, waits without a limit.
// Structures that may grow have their size passed with them: sizeof as the program sees it. A
// library that knows more fields leaves the others alone; one that knows fewer sets them to 0.
//
// A NULL pointer where memory is needed is PINFOLD_INVALID, not a fault; other wrong pointers are
// the program's own fault, as everywhere in C.

// Bytes of a key.
#define PINFOLD_KEY_BYTES 24

// Ignores all bits of a tag, for receives.
#define PINFOLD_ANY_TAG UINT64_MAX

// Any peer, for receives.
#define PINFOLD_ANY_PEER UINT64_MAX

// Paths.
#define PINFOLD_PATHS 5

// Waits without a limit.
#define PINFOLD_FOREVER -1

// The result of a function. New values may come with new versions: treat an unknown one as a
// failure.
typedef enum pinfold_status {
  // It went well.
  PINFOLD_OK = 0,
  // An argument makes no sense: NULL where memory is needed, a size or a number out of range.
  PINFOLD_INVALID = 1,
  // The time ran out, or nothing was there and the function was not to wait.
  PINFOLD_TIMEOUT = 2,
  // The message was longer than the memory, which holds its beginning.
  PINFOLD_TRUNCATED = 3,
  // The peer ended, died, or cannot be reached any more.
  PINFOLD_PEER_GONE = 4,
  // No peer is left that could send.
  PINFOLD_NOBODY_LEFT = 5,
  // The number names no peer of this endpoint.
  PINFOLD_UNKNOWN_PEER = 6,
  // The operation was cancelled.
  PINFOLD_CANCELLED = 7,
  // The endpoint was closed.
  PINFOLD_CLOSED = 8,
  // The handle belongs to the process that this one was forked from.
  PINFOLD_FORKED = 9,
  // Another endpoint listens under this name.
  PINFOLD_NAME_IN_USE = 10,
  // The name of this endpoint was taken from it.
  PINFOLD_NAME_LOST = 11,
  // No endpoint listens at this address.
  PINFOLD_NAME_GONE = 12,
  // The address cannot be understood.
  PINFOLD_BAD_ADDRESS = 13,
  // The access rule of the listening side, or a directory's rights, refused.
  PINFOLD_NOT_ALLOWED = 14,
  // The two sides have no version of the protocol in common.
  PINFOLD_VERSION_MISMATCH = 15,
  // The other side did not answer the call within the connect time-out.
  PINFOLD_NO_ANSWER = 16,
  // The two sides did not agree to become peers: a wrong key, say.
  PINFOLD_GREETING_FAILED = 17,
  // A key is needed to speak with other hosts.
  PINFOLD_KEY_NEEDED = 18,
  // The key cannot be used.
  PINFOLD_UNUSABLE_KEY = 19,
  // The endpoint has no name that others could connect to.
  PINFOLD_NOT_LISTENING = 20,
  // A path was required and cannot be taken.
  PINFOLD_PATH_REFUSED = 21,
  // Memory of the other side could not be read or written in mid-transfer.
  PINFOLD_TRANSFER_FAILED = 22,
  // A send with a deadline was not taken.
  PINFOLD_NOT_TAKEN = 23,
  // Not all operations had been delivered when the time was up.
  PINFOLD_UNDELIVERED = 24,
  // The bytes named lie outside of the memory.
  PINFOLD_OUT_OF_BOUNDS = 25,
  // The peer has no memory with this key.
  PINFOLD_BAD_KEY = 26,
  // The memory was revoked by its owner.
  PINFOLD_REVOKED = 27,
  // The peer has no memory at this address, or none that may be used so.
  PINFOLD_NOT_MAPPED = 28,
  // A region can be used neither as mapped memory nor through the kernel.
  PINFOLD_OUT_OF_REACH = 29,
  // Peers are still at memory that was revoked.
  PINFOLD_STILL_VISITED = 30,
  // The word of an atomic operation does not lie at a multiple of its size.
  PINFOLD_MISALIGNED = 31,
  // The memory can only be read.
  PINFOLD_READ_ONLY = 32,
  // Memory that a peer gave is its own again.
  PINFOLD_WITHDRAWN = 33,
  // The peer's handler did not do it.
  PINFOLD_NOT_HANDLED = 34,
  // The request was answered before.
  PINFOLD_ALREADY_ANSWERED = 35,
  // A limit of the system or of the configuration stands in the way.
  PINFOLD_LIMIT_REACHED = 36,
  // There is no memory left.
  PINFOLD_NO_MEMORY = 37,
  // A system call failed.
  PINFOLD_SYSTEM = 38,
  // A defect of the library: please report it with the sentence of pinfold_error().
  PINFOLD_INTERNAL = 39,
  // Something else; pinfold_error() says what.
  PINFOLD_OTHER = 40,
} pinfold_status;

// A way for a message to reach a peer.
typedef enum pinfold_path {
  // In the descriptor itself: at most 56 bytes.
  PINFOLD_INLINE = 0,
  // Two copies through the pair's ring; to another host, over the connection.
  PINFOLD_EAGER = 1,
  // One copy by the kernel, out of or into any memory.
  PINFOLD_CMA = 2,
  // One copy by this process, out of or into an arena that the peer has mapped.
  PINFOLD_MAPPED = 3,
  // No copy: the memory itself was given.
  PINFOLD_HANDOFF = 4,
} pinfold_path;

// The kind of operation that ended.
typedef enum pinfold_kind {
  // It failed, which its status says; which operation it was, its context.
  PINFOLD_FAILED = 0,
  // A message was sent, or a handler called: its memory is the program's again.
  PINFOLD_SENT = 1,
  // A message came into the memory.
  PINFOLD_RECEIVED = 2,
  // A message came into the memory of a receive of many, at `offset`.
  PINFOLD_RECEIVED_ONE = 3,
  // A message of any length came, or the answer of a handler: `message`, to be freed.
  PINFOLD_MESSAGE = 4,
  // Bytes of a peer's memory were read or written.
  PINFOLD_COPIED = 5,
  // An atomic operation was done: `old` is what the word was.
  PINFOLD_WAS = 6,
  // The peer that was called is connected.
  PINFOLD_CONNECTED = 7,
  // A peer has called, and is connected.
  PINFOLD_ACCEPTED = 8,
  // A kind that this version has no name for.
  PINFOLD_UNNAMED = 9,
} pinfold_kind;

// The rights of peers that have the key.
typedef enum pinfold_rights {
  // To read.
  PINFOLD_READ = 0,
  // To read, to write, and to change by atomic operations.
  PINFOLD_READ_WRITE = 1,
} pinfold_rights;

// The kind of a word.
typedef enum pinfold_word {
  // 32 bits, unsigned.
  PINFOLD_U32 = 0,
  // 64 bits, unsigned.
  PINFOLD_U64 = 1,
  // 32 bits, signed; operands and results have the word in their lower 32 bits.
  PINFOLD_I32 = 2,
  // 64 bits, signed.
  PINFOLD_I64 = 3,
} pinfold_word;

// A change of a word.
typedef enum pinfold_change {
  // Adds the operand, wrapping.
  PINFOLD_ADD = 0,
  // Bitwise and.
  PINFOLD_AND = 1,
  // Bitwise or.
  PINFOLD_OR = 2,
  // Bitwise exclusive or.
  PINFOLD_XOR = 3,
  // The lesser of the word and the operand.
  PINFOLD_MIN = 4,
  // The greater of them.
  PINFOLD_MAX = 5,
  // The operand in place of the word.
  PINFOLD_SWAP = 6,
  // The operand in place of the word, if the word is `compare`.
  PINFOLD_REPLACE = 7,
} pinfold_change;

// An active message, as its handler sees it: good until the handler returns.
typedef struct pinfold_active pinfold_active;

// The right, and the duty, to answer a request after its handler has returned; any thread may.
typedef struct pinfold_answer pinfold_answer;

// A heap whose buffers peers can map: messages out of it are copied once, or not at all.
typedef struct pinfold_arena pinfold_arena;

// A buffer of an arena.
typedef struct pinfold_buf pinfold_buf;

// A message that was claimed: no other receive or probe finds it. It uses its sender's credit
// meanwhile. It is to be received, discarded, or freed.
typedef struct pinfold_claimed pinfold_claimed;

// An endpoint: exchanges messages with the peers that it is connected to.
typedef struct pinfold_endpoint pinfold_endpoint;

// A message of any length, in memory of the library's. It stays good when its endpoint is closed
// or freed.
typedef struct pinfold_message pinfold_message;

// A queue of the ends of posted operations, of one endpoint or of several.
typedef struct pinfold_queue pinfold_queue;

// Memory of this process that peers may use: a region that the library made, or memory of the
// program's.
typedef struct pinfold_region pinfold_region;

// Memory of a peer, used without that peer's program.
typedef struct pinfold_remote pinfold_remote;

// A received message, in the sender's memory if that was given away. It stays good when the sender
// closes or dies, as long as this endpoint is open; freeing it gives the memory back.
typedef struct pinfold_view pinfold_view;

// A handler of active messages. It runs on a thread that makes progress, so it should be brief; it
// may post operations and answer, and must not wait.
typedef void (*pinfold_handler)(const struct pinfold_active *active, void *user);

// Called when a handler will not be called any more, with its `user`.
typedef void (*pinfold_release)(void *user);

// Names a peer of one endpoint. Never used again within the endpoint's life; never
// PINFOLD_ANY_PEER.
typedef uint64_t pinfold_peer;

// How one operation was done, and why not otherwise.
typedef struct pinfold_receipt {
  // The path that was taken: a pinfold_path.
  uint32_t path;
  // 0.
  uint32_t reserved;
  // Bytes of the message that this side sent or took in.
  uint64_t bytes;
  // Bytes copied by this process at user level.
  uint64_t copied_user;
  // Bytes copied by the kernel in calls of this process.
  uint64_t copied_kernel;
  // By path, why it was not taken: a number for pinfold_refusal_text(); 0 for the path that was
  // taken, and for those that were not considered.
  uint32_t refused[PINFOLD_PATHS];
  // 0.
  uint32_t reserved_too;
} pinfold_receipt;

// The facts of a message.
typedef struct pinfold_received {
  // The peer that sent it.
  pinfold_peer peer;
  // Its tag.
  uint64_t tag;
  // Its length, bytes; with PINFOLD_TRUNCATED more than the memory that it came to.
  uint64_t len;
  // How it came.
  struct pinfold_receipt receipt;
} pinfold_received;

// The settings of an endpoint. Begin with pinfold_config_init(); a field that is 0, false or NULL
// leaves its setting as it is by itself. Strings are looked at during the call alone.
typedef struct pinfold_config {
  // The size of this structure; pinfold_config_init() sets it.
  size_t size;
  // The name of this endpoint in peers' errors and reports; at most 32 bytes.
  const char *label;
  // Listens at "local:NAME", for peers on this host, or at "tcp:HOST:PORT", for others; one of
  // each at most, with a comma between them. NULL: nobody can connect.
  const char *listen;
  // The file with the key that this endpoint shares with those on other hosts.
  const char *key_file;
  // The key itself, in place of a file: 32 to 4,096 bytes.
  const uint8_t *key;
  // Its length, bytes.
  size_t key_len;
  // Users that may connect beside this one: names or numbers, commas between them.
  const char *users;
  // Groups whose members may connect: names or numbers, commas between them.
  const char *groups;
  // The paths that messages may take: bit N for the pinfold_path N. 0: all.
  uint32_t paths;
  // A path that cannot be taken is an error, PINFOLD_PATH_REFUSED, in place of a slower way.
  bool strict;
  // Connections with other hosts are encrypted (TLS 1.3); both sides have to set the same.
  bool encrypt;
  // Peers that are called by host and port are reached so on this host, too.
  bool no_local_shortcut;
  // A thread of the endpoint makes progress. Otherwise the threads that call it do.
  bool dedicated_progress;
  // No io_uring is used.
  bool no_io_uring;
  // Pages are not moved to make messages contiguous; they are copied.
  bool no_page_moves;
  // Memory of posted receives is not put there in advance.
  bool no_prepared_receives;
  // 0.
  uint8_t reserved;
  // The longest wait for an answer when connecting, nanoseconds.
  int64_t connect_timeout;
  // The longest wait for a connection with another host that broke, nanoseconds.
  int64_t reconnect_timeout;
  // The most bytes of shared memory of one peer's ring.
  size_t lane_bytes_max;
  // The most bytes of peers' memory that are mapped at a time.
  size_t mapped_bytes_max;
  // The most bytes of messages that came before their receive.
  size_t unexpected_bytes_max;
  // The most bytes of memory that one peer has been given and not returned.
  size_t given_bytes_max;
  // The longest active message, bytes.
  size_t active_bytes_max;
  // The most peers at a time.
  size_t peers_max;
} pinfold_config;

// Counts of an endpoint's work so far. By path: the index is a pinfold_path.
typedef struct pinfold_counters {
  // Messages sent, by path.
  uint64_t sent[PINFOLD_PATHS];
  // Their bytes.
  uint64_t sent_bytes[PINFOLD_PATHS];
  // Messages received, by path.
  uint64_t received[PINFOLD_PATHS];
  // Their bytes.
  uint64_t received_bytes[PINFOLD_PATHS];
  // Bytes that this process copied at user level.
  uint64_t copied_user;
  // Bytes that the kernel copied in calls of this process.
  uint64_t copied_kernel;
  // Messages that came before their receive was posted.
  uint64_t unexpected;
  // Times that this endpoint went to sleep.
  uint64_t sleeps;
  // Times that this process had other processors interrupted, for all its endpoints.
  uint64_t barriers;
  // Peers that are or were connected.
  uint64_t peers_joined;
  // Peers that went, for any reason.
  uint64_t peers_gone;
  // One-sided writes of this endpoint.
  uint64_t writes;
  // One-sided reads.
  uint64_t reads;
  // Atomic operations.
  uint64_t atomics;
  // Calls and requests made.
  uint64_t called;
  // Active messages handled.
  uint64_t handled;
  // Active messages dropped: there was no handler, or they were too long.
  uint64_t unhandled;
  // Messages that were not delivered before the endpoint closed or their peer went.
  uint64_t undelivered;
} pinfold_counters;

// Facts about a peer.
typedef struct pinfold_peer_info {
  // Its number.
  pinfold_peer peer;
  // Its process; 0 if that lies in another namespace, or on another host.
  uint32_t pid;
  // Its user; the largest number for a peer on another host.
  uint32_t uid;
  // The paths by which messages to it can go: bit N for the pinfold_path N.
  uint32_t paths;
  // Nonzero: the connection with it is encrypted.
  uint32_t encrypted;
  // How often a connection with another host broke and another took its place.
  uint64_t reconnections;
  // Its label and process, as errors name it; cut if it is longer.
  char name[64];
} pinfold_peer_info;

// How one posted operation ended.
typedef struct pinfold_completion {
  // The number that was given with the operation.
  uint64_t context;
  // A pinfold_status. With PINFOLD_TRUNCATED the fields of a received message are set as well.
  uint32_t status;
  // A pinfold_kind.
  uint32_t kind;
  // The peer of a message, or the one that is connected.
  pinfold_peer peer;
  // The tag of a received message.
  uint64_t tag;
  // The length of a message or transfer, bytes.
  uint64_t len;
  // Where a message of a receive of many begins.
  uint64_t offset;
  // The word of an atomic operation before it.
  uint64_t old;
  // A message to be freed; NULL for all but PINFOLD_MESSAGE.
  struct pinfold_message *message;
  // The sentence of the failure, good until this thread asks a queue again; NULL if all went
  // well.
  const char *error;
  // Nonzero: the last completion of its operation. Zero for a receive of many that goes on.
  uint32_t last;
  // 0.
  uint32_t reserved;
  // How it was done.
  struct pinfold_receipt receipt;
} pinfold_completion;

// The key of memory: sent to a peer, it lets that use the memory until it is revoked. It cannot be
// guessed.
typedef struct pinfold_key {
  // Bytes to be passed on as they are.
  uint8_t bytes[PINFOLD_KEY_BYTES];
} pinfold_key;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Sets the handler of active messages with number `id`, in place of an earlier one. Any thread
// that makes progress may call `handler` with `user`, several at a time. `release` may be NULL;
// it is called also if this fails.
enum pinfold_status pinfold_handle(const struct pinfold_endpoint *endpoint,
                                   uint32_t id,
                                   pinfold_handler handler,
                                   void *user,
                                   pinfold_release release);

// Removes the handler; a thread may still be in it. PINFOLD_INVALID if there is none.
enum pinfold_status pinfold_unhandle(const struct pinfold_endpoint *endpoint, uint32_t id);

// Calls handler `id` of a peer with `len` bytes, and returns when the memory is the program's
// again. Nothing comes back.
enum pinfold_status pinfold_call(const struct pinfold_endpoint *endpoint,
                                 pinfold_peer peer,
                                 uint32_t id,
                                 const void *data,
                                 size_t len);

// Posts the same: PINFOLD_SENT. The memory is the operation's until its completion was taken.
enum pinfold_status pinfold_post_call(const struct pinfold_endpoint *endpoint,
                                      const struct pinfold_queue *queue,
                                      uint64_t context,
                                      pinfold_peer peer,
                                      uint32_t id,
                                      const void *data,
                                      size_t len);

// Asks handler `id` of a peer and waits for its answer, at most `timeout`. The answer is to be
// freed.
enum pinfold_status pinfold_ask(const struct pinfold_endpoint *endpoint,
                                pinfold_peer peer,
                                uint32_t id,
                                const void *data,
                                size_t len,
                                int64_t timeout,
                                struct pinfold_message **answer);

// Posts the same: PINFOLD_MESSAGE. The memory is the program's again when this returns.
enum pinfold_status pinfold_post_ask(const struct pinfold_endpoint *endpoint,
                                     const struct pinfold_queue *queue,
                                     uint64_t context,
                                     pinfold_peer peer,
                                     uint32_t id,
                                     const void *data,
                                     size_t len);

// The peer that sent it.
pinfold_peer pinfold_active_peer(const struct pinfold_active *active);

// Its bytes, good until the handler returns; `len` (may be NULL) is set to how many.
const void *pinfold_active_data(const struct pinfold_active *active, size_t *len);

// True if its sender waits for an answer.
bool pinfold_active_is_request(const struct pinfold_active *active);

// Answers a request, and does nothing for a call. Never waits; the bytes are copied if need be.
enum pinfold_status pinfold_active_reply(const struct pinfold_active *active,
                                         const void *data,
                                         size_t len);

// Takes the right to answer a request later, from any thread. PINFOLD_ALREADY_ANSWERED if it is a
// call, or was answered.
enum pinfold_status pinfold_active_defer(const struct pinfold_active *active,
                                         struct pinfold_answer **answer);

// Answers, and frees the handle, also if it fails. Never waits.
enum pinfold_status pinfold_answer_send(struct pinfold_answer *answer,
                                        const void *data,
                                        size_t len);

// Frees the handle unused: the request is answered with an error.
void pinfold_answer_free(struct pinfold_answer *answer);

// Makes an arena of at most `bytes_max` bytes of address space (0: 64 GiB), which are taken piece
// by piece. Peers can read its buffers; with `writable`, write them, too, which long receives gain
// from. Its memory counts as this process's.
enum pinfold_status pinfold_arena_open(size_t bytes_max,
                                       bool writable,
                                       struct pinfold_arena **arena);

// Frees the handle. Its buffers stay good.
void pinfold_arena_free(struct pinfold_arena *arena);

// A buffer of `len` bytes at a multiple of `align`, a power of two up to 2 MiB (0: a cache line).
// Its contents are not cleared: they are what another buffer of the arena left, or 0.
enum pinfold_status pinfold_arena_alloc(const struct pinfold_arena *arena,
                                        size_t len,
                                        size_t align,
                                        struct pinfold_buf **buf);

// Its memory, good until it is freed or given away; NULL for NULL. Any function takes parts of it
// as it takes other memory, and finds out by itself that it lies in an arena.
void *pinfold_buf_data(const struct pinfold_buf *buf);

// Its length, bytes; 0 for NULL.
size_t pinfold_buf_len(const struct pinfold_buf *buf);

// Frees it. No operation may be using its memory.
void pinfold_buf_free(struct pinfold_buf *buf);

// Changes a word of a peer's memory, a pinfold_word, by a pinfold_change. `old` (may be NULL) is
// set to what the word was; its upper bits are 0 if it is shorter.
enum pinfold_status pinfold_atomic(const struct pinfold_remote *remote,
                                   uint64_t at,
                                   uint32_t word,
                                   uint32_t change,
                                   uint64_t operand,
                                   uint64_t compare,
                                   uint64_t *old);

// Posts the same: PINFOLD_WAS.
enum pinfold_status pinfold_post_atomic(const struct pinfold_remote *remote,
                                        const struct pinfold_queue *queue,
                                        uint64_t context,
                                        uint64_t at,
                                        uint32_t word,
                                        uint32_t change,
                                        uint64_t operand,
                                        uint64_t compare);

// Claims the message that a receive would take now, MPI's matched probe; any number can be claimed
// at a time. PINFOLD_TIMEOUT if there is none; never waits. `found` may be NULL.
enum pinfold_status pinfold_claim(const struct pinfold_endpoint *endpoint,
                                  pinfold_peer peer,
                                  uint64_t tag,
                                  uint64_t ignore,
                                  struct pinfold_claimed **claimed,
                                  struct pinfold_received *found);

// The facts of a message that was claimed, without a receipt, since it was not received yet.
enum pinfold_status pinfold_claimed_facts(const struct pinfold_claimed *claimed,
                                          struct pinfold_received *found);

// Receives it into `capacity` bytes at `data`, and frees the handle, also if it fails: with
// PINFOLD_INVALID the message is found again, as after pinfold_claimed_free(). Waits until all of
// it is there. `received` may be NULL; it is set with PINFOLD_TRUNCATED as well.
enum pinfold_status pinfold_claimed_recv(struct pinfold_claimed *claimed,
                                         void *data,
                                         size_t capacity,
                                         struct pinfold_received *received);

// Receives it into memory of the library's, and frees the handle, also if it fails, as
// pinfold_claimed_recv() does. The message is to be freed.
enum pinfold_status pinfold_claimed_message(struct pinfold_claimed *claimed,
                                            struct pinfold_message **message);

// Drops the message, and frees the handle: its sender is told that it was received. Takes NULL.
void pinfold_claimed_discard(struct pinfold_claimed *claimed);

// Frees the handle unused: the message is found again, before all that came later. Takes NULL.
void pinfold_claimed_free(struct pinfold_claimed *claimed);

// Sets all fields to 0 and `size` to `size`, which is sizeof(pinfold_config).
enum pinfold_status pinfold_config_init(struct pinfold_config *config, size_t size);

// Counts of an endpoint's work so far; `size` is sizeof(pinfold_counters).
enum pinfold_status pinfold_count(const struct pinfold_endpoint *endpoint,
                                  struct pinfold_counters *counters,
                                  size_t size);

// Makes an endpoint. `config` may be NULL. With dedicated_progress it starts a thread.
enum pinfold_status pinfold_endpoint_open(const struct pinfold_config *config,
                                          struct pinfold_endpoint **endpoint);

// Closes the endpoint: calls that wait, operations that were posted, and peers are told. The
// memory of operations is the program's again when this has returned. Peers on this host can still
// receive what lies in their rings, and memory that was given to them; other messages get a second
// or two, and what is left then is lost: pinfold_drain() before this tells of it. The handle
// stays, to be freed.
enum pinfold_status pinfold_endpoint_close(const struct pinfold_endpoint *endpoint);

// Closes the endpoint and frees its handle. No other thread may be in a call of it. Handles of
// messages, views, regions and queues that it made stay, to be freed.
void pinfold_endpoint_free(struct pinfold_endpoint *endpoint);

// Waits until everything sent has been delivered, at most `timeout`: PINFOLD_UNDELIVERED, with
// what is left, after that.
enum pinfold_status pinfold_drain(const struct pinfold_endpoint *endpoint, int64_t timeout);

// Makes progress and never waits. `moved` (may be NULL) is set to whether anything happened.
enum pinfold_status pinfold_progress(const struct pinfold_endpoint *endpoint, bool *moved);

// A descriptor for poll(2) and event loops, readable when there is something to do after
// pinfold_endpoint_arm(). It is the endpoint's: not to be read or closed. -1: the handle is NULL.
int pinfold_endpoint_fd(const struct pinfold_endpoint *endpoint);

// Prepares for waiting on the descriptor. `armed` is set to false if something is there already:
// make progress, and ask again.
enum pinfold_status pinfold_endpoint_arm(const struct pinfold_endpoint *endpoint, bool *armed);

// Writes the address "tcp:HOST:PORT" that the endpoint listens at, with the port that it got where
// 0 was asked for; PINFOLD_NOT_LISTENING if it listens at none. PINFOLD_INVALID if `capacity`
// bytes, the 0 at its end included, are too few.
enum pinfold_status pinfold_endpoint_address(const struct pinfold_endpoint *endpoint,
                                             char *address,
                                             size_t capacity);

// Gives a buffer away: the message is the memory itself, whatever its size. Waits at most
// `timeout` while the peer has as much unreturned memory as it may have. With PINFOLD_OK the
// handle is the library's, and `*buf` is set to NULL; the memory goes back to its arena when the
// receiver has done with it. After a failure the handle is the program's as before, but for the
// rare case in which a receiver may be looking at it: then, too, `*buf` is set to NULL.
enum pinfold_status pinfold_give(const struct pinfold_endpoint *endpoint,
                                 pinfold_peer peer,
                                 uint64_t tag,
                                 struct pinfold_buf **buf,
                                 int64_t timeout);

// As pinfold_give() without a limit, of `count` buffers, up to 1,024, as one message in that
// order. The handles are the library's, and all of `bufs` are set to NULL, also after a failure,
// which gives the memory back to its arena; but for PINFOLD_INVALID, which changes nothing. A view
// of it is contiguous, by mapping the parts in a row where each is whole pages, or by a copy.
enum pinfold_status pinfold_givev(const struct pinfold_endpoint *endpoint,
                                  pinfold_peer peer,
                                  uint64_t tag,
                                  struct pinfold_buf **bufs,
                                  size_t count);

// Waits for a message that may stay where it is, at most `timeout`; see pinfold_recv(). The view
// is to be freed.
enum pinfold_status pinfold_recv_view(const struct pinfold_endpoint *endpoint,
                                      pinfold_peer peer,
                                      uint64_t tag,
                                      uint64_t ignore,
                                      int64_t timeout,
                                      struct pinfold_view **view);

// Its bytes in place, to be read alone, good until it is freed. A sender that does not keep to the
// rules can change them meanwhile; pinfold_view_read() copies out what then cannot change.
enum pinfold_status pinfold_view_data(const struct pinfold_view *view, const void **data);

// Copies `len` bytes at `offset` out.
enum pinfold_status pinfold_view_read(const struct pinfold_view *view,
                                      size_t offset,
                                      void *to,
                                      size_t len);

// Its length, bytes; 0 for NULL.
size_t pinfold_view_len(const struct pinfold_view *view);

// Its facts.
enum pinfold_status pinfold_view_facts(const struct pinfold_view *view,
                                       struct pinfold_received *facts);

// Frees it: the memory goes back to the sender.
void pinfold_view_free(struct pinfold_view *view);

// Waits for a message of any length, at most `timeout`; see pinfold_recv(). The message is to be
// freed.
enum pinfold_status pinfold_recv_message(const struct pinfold_endpoint *endpoint,
                                         pinfold_peer peer,
                                         uint64_t tag,
                                         uint64_t ignore,
                                         int64_t timeout,
                                         struct pinfold_message **message);

// Its bytes, contiguous, good until it is freed; NULL for NULL.
const void *pinfold_message_data(const struct pinfold_message *message);

// Its length, bytes; 0 for NULL.
size_t pinfold_message_len(const struct pinfold_message *message);

// Its facts.
enum pinfold_status pinfold_message_facts(const struct pinfold_message *message,
                                          struct pinfold_received *facts);

// Frees it.
void pinfold_message_free(struct pinfold_message *message);

// Sends `len` bytes at `data` and returns when the memory is the program's again: at once if they
// went into the ring, else when the receiver has them. `receipt` may be NULL.
enum pinfold_status pinfold_send(const struct pinfold_endpoint *endpoint,
                                 pinfold_peer peer,
                                 uint64_t tag,
                                 const void *data,
                                 size_t len,
                                 struct pinfold_receipt *receipt);

// As pinfold_send(), but waits at most `timeout` for the receiver to take the message:
// PINFOLD_NOT_TAKEN after that, and nothing was sent unless pinfold_error() says that this is
// unsure. A long message stays in this memory until it has moved: a receiver that makes no
// progress when the time is up is waited for, since it may be told where the memory is.
//
// With 0 it never waits: PINFOLD_TIMEOUT if the message cannot go at once, and
// PINFOLD_LIMIT_REACHED if it is longer than messages that never wait may be, some 16 KiB.
enum pinfold_status pinfold_send_within(const struct pinfold_endpoint *endpoint,
                                        pinfold_peer peer,
                                        uint64_t tag,
                                        const void *data,
                                        size_t len,
                                        int64_t timeout);

// As pinfold_send(), of memory in up to 1,024 parts, as one message.
enum pinfold_status pinfold_sendv(const struct pinfold_endpoint *endpoint,
                                  pinfold_peer peer,
                                  uint64_t tag,
                                  const struct iovec *parts,
                                  size_t count,
                                  struct pinfold_receipt *receipt);

// Waits for a message from `peer` (or PINFOLD_ANY_PEER) whose tag equals `tag` in the bits that
// `ignore` does not have, and receives it into `capacity` bytes at `data`. Waits at most
// `timeout`, with 0 not at all. `received` may be NULL; it is set with PINFOLD_TRUNCATED as well.
enum pinfold_status pinfold_recv(const struct pinfold_endpoint *endpoint,
                                 pinfold_peer peer,
                                 uint64_t tag,
                                 uint64_t ignore,
                                 void *data,
                                 size_t capacity,
                                 int64_t timeout,
                                 struct pinfold_received *received);

// As pinfold_recv() without a limit, into memory in up to 1,024 parts.
enum pinfold_status pinfold_recvv(const struct pinfold_endpoint *endpoint,
                                  pinfold_peer peer,
                                  uint64_t tag,
                                  uint64_t ignore,
                                  const struct iovec *parts,
                                  size_t count,
                                  struct pinfold_received *received);

// The facts of the message that a receive would take now, left where it is; PINFOLD_TIMEOUT if
// there is none, at once with a `timeout` of 0. Any other limit than 0 and PINFOLD_FOREVER is
// PINFOLD_INVALID: wait on the endpoint's descriptor.
enum pinfold_status pinfold_probe(const struct pinfold_endpoint *endpoint,
                                  pinfold_peer peer,
                                  uint64_t tag,
                                  uint64_t ignore,
                                  int64_t timeout,
                                  struct pinfold_received *found);

// Connects to the endpoint that listens at `address`: "local:NAME", "local:USER/NAME" or
// "tcp:HOST:PORT". Waits at most `timeout` for one to listen there; 0: it has to listen now. The
// other side has to call its library meanwhile.
enum pinfold_status pinfold_connect(const struct pinfold_endpoint *endpoint,
                                    const char *address,
                                    int64_t timeout,
                                    pinfold_peer *peer);

// Waits for a peer to connect to this endpoint, at most `timeout`.
enum pinfold_status pinfold_accept(const struct pinfold_endpoint *endpoint,
                                   int64_t timeout,
                                   pinfold_peer *peer);

// Ends the connection with a peer; PINFOLD_UNKNOWN_PEER if it is none.
enum pinfold_status pinfold_disconnect(const struct pinfold_endpoint *endpoint, pinfold_peer peer);

// Facts about a peer; `size` is sizeof(pinfold_peer_info).
enum pinfold_status pinfold_peer_facts(const struct pinfold_endpoint *endpoint,
                                       pinfold_peer peer,
                                       struct pinfold_peer_info *info,
                                       size_t size);

// The peers that are connected: stores up to `capacity` numbers, and sets `count` to how many
// peers there are, which may be more.
enum pinfold_status pinfold_peers(const struct pinfold_endpoint *endpoint,
                                  pinfold_peer *peers,
                                  size_t capacity,
                                  size_t *count);

// Posts a send of `len` bytes at `data`: PINFOLD_SENT. Never waits. The memory is the operation's
// until its completion was taken.
enum pinfold_status pinfold_post_send(const struct pinfold_endpoint *endpoint,
                                      const struct pinfold_queue *queue,
                                      uint64_t context,
                                      pinfold_peer peer,
                                      uint64_t tag,
                                      const void *data,
                                      size_t len);

// As pinfold_post_send(), of memory in up to 1,024 parts. The vector itself is the program's again
// when this returns.
enum pinfold_status pinfold_post_sendv(const struct pinfold_endpoint *endpoint,
                                       const struct pinfold_queue *queue,
                                       uint64_t context,
                                       pinfold_peer peer,
                                       uint64_t tag,
                                       const struct iovec *parts,
                                       size_t count);

// Posts a receive into `capacity` bytes at `data`: PINFOLD_RECEIVED. Never waits. See
// pinfold_recv() for what it takes. The memory is the operation's until its completion was taken.
enum pinfold_status pinfold_post_recv(const struct pinfold_endpoint *endpoint,
                                      const struct pinfold_queue *queue,
                                      uint64_t context,
                                      pinfold_peer peer,
                                      uint64_t tag,
                                      uint64_t ignore,
                                      void *data,
                                      size_t capacity);

// As pinfold_post_recv(), into memory in up to 1,024 parts, which a message fills in order.
enum pinfold_status pinfold_post_recvv(const struct pinfold_endpoint *endpoint,
                                       const struct pinfold_queue *queue,
                                       uint64_t context,
                                       pinfold_peer peer,
                                       uint64_t tag,
                                       uint64_t ignore,
                                       const struct iovec *parts,
                                       size_t count);

// Posts a receive of a message of any length, into memory of the library's: PINFOLD_MESSAGE.
enum pinfold_status pinfold_post_recv_message(const struct pinfold_endpoint *endpoint,
                                              const struct pinfold_queue *queue,
                                              uint64_t context,
                                              pinfold_peer peer,
                                              uint64_t tag,
                                              uint64_t ignore);

// Posts a receive of many messages, placed one behind the other in `capacity` bytes at `data`,
// each at a multiple of 8 bytes: a PINFOLD_RECEIVED_ONE for each, all with this context. It ends,
// and says `last`, when less than `min_free` bytes are left (at least 1, at most all of them); a
// longer message than the rest is truncated.
enum pinfold_status pinfold_post_recv_many(const struct pinfold_endpoint *endpoint,
                                           const struct pinfold_queue *queue,
                                           uint64_t context,
                                           pinfold_peer peer,
                                           uint64_t tag,
                                           uint64_t ignore,
                                           void *data,
                                           size_t capacity,
                                           size_t min_free);

// Posts a call of the endpoint that listens at `address`: PINFOLD_CONNECTED. As pinfold_connect(),
// with the same `timeout`.
enum pinfold_status pinfold_post_connect(const struct pinfold_endpoint *endpoint,
                                         const struct pinfold_queue *queue,
                                         uint64_t context,
                                         const char *address,
                                         int64_t timeout);

// Posts a wait for a peer to connect: PINFOLD_ACCEPTED.
enum pinfold_status pinfold_post_accept(const struct pinfold_endpoint *endpoint,
                                        const struct pinfold_queue *queue,
                                        uint64_t context);

// An empty queue. Takes two descriptors.
enum pinfold_status pinfold_queue_open(struct pinfold_queue **queue);

// Frees it. Operations that have not ended go on, and keep using their memory: close their
// endpoints before, or take their completions.
void pinfold_queue_free(struct pinfold_queue *queue);

// Takes up to `most` completions, the oldest first, and sets `count` to how many: those that are
// there, or come by a turn of progress, or within `timeout`. With a `timeout` of 0 it never waits.
// PINFOLD_OK with a count of 0 if there were none. `size` is sizeof(pinfold_completion).
enum pinfold_status pinfold_queue_take(const struct pinfold_queue *queue,
                                       struct pinfold_completion *completions,
                                       size_t most,
                                       size_t size,
                                       int64_t timeout,
                                       size_t *count);

// Asks for the end of an operation that was posted with this context. PINFOLD_OK: it will end,
// with PINFOLD_CANCELLED in its completion, unless the peer is faster. PINFOLD_INVALID: there is
// none, or it takes its course. Looks at all operations of the queue's endpoints.
enum pinfold_status pinfold_queue_cancel(const struct pinfold_queue *queue, uint64_t context);

// Operations that have not ended, or whose completions were not taken; 0 for NULL.
size_t pinfold_queue_outstanding(const struct pinfold_queue *queue);

// A descriptor for poll(2) and event loops, readable when there is something to take after
// pinfold_queue_arm(). It is the queue's: not to be read or closed. -1: the handle is NULL.
int pinfold_queue_fd(const struct pinfold_queue *queue);

// Prepares for waiting on the descriptor. `armed` is set to false if something is there already:
// take it, and ask again.
enum pinfold_status pinfold_queue_arm(const struct pinfold_queue *queue, bool *armed);

// The name of a path, such as "cma"; "unknown" for another number. Good for ever.
const char *pinfold_path_name(uint32_t path);

// Writes the sentence of a number of pinfold_receipt.refused, cut to `capacity` bytes, the 0 at
// its end included. Returns its whole length without the 0; 0 for a number that is none.
size_t pinfold_refusal_text(uint32_t refused, char *text, size_t capacity);

// Makes a region of `len` bytes, a multiple of 8, all of them 0, which peers map: the cheapest
// memory for one-sided operations. `rights` is a pinfold_rights.
enum pinfold_status pinfold_region_open(const struct pinfold_endpoint *endpoint,
                                        size_t len,
                                        uint32_t rights,
                                        struct pinfold_region **region);

// Lets peers use `len` bytes of the program's own memory at `data`, wherever that lies. Nothing is
// pinned or copied. Until pinfold_region_free() has returned PINFOLD_OK peers may read it at any
// moment, and with PINFOLD_READ_WRITE write it.
enum pinfold_status pinfold_region_expose(const struct pinfold_endpoint *endpoint,
                                          void *data,
                                          size_t len,
                                          uint32_t rights,
                                          struct pinfold_region **region);

// Its memory, to be used as memory that other processes change is: by atomic operations, or when
// no peer is at it. It moves when the region is revoked. NULL for NULL.
void *pinfold_region_data(const struct pinfold_region *region);

// Its length, bytes; 0 for NULL.
size_t pinfold_region_len(const struct pinfold_region *region);

// Its key, for peers. PINFOLD_REVOKED once it was revoked.
enum pinfold_status pinfold_region_key(const struct pinfold_region *region,
                                       struct pinfold_key *key);

// Ends all use by peers and frees the handle; waits for those that are using it, mostly some
// microseconds, 10 s at most: PINFOLD_STILL_VISITED after that, and memory of the program's has to
// stay as it is until they have ended. Takes NULL.
enum pinfold_status pinfold_region_free(struct pinfold_region *region);

// Opens memory of a peer by its key. Places in it are offsets from its beginning, or, with
// `by_address`, addresses in the peer's process. Asks the owner, which answers while it makes
// progress.
enum pinfold_status pinfold_remote_open(const struct pinfold_endpoint *endpoint,
                                        pinfold_peer peer,
                                        const struct pinfold_key *key,
                                        bool by_address,
                                        struct pinfold_remote **remote);

// Its length, bytes; 0 for NULL.
uint64_t pinfold_remote_len(const struct pinfold_remote *remote);

// The address of its first byte in the peer's process; 0 for NULL.
uint64_t pinfold_remote_address(const struct pinfold_remote *remote);

// Writes `len` bytes at a place: they are there when this returns. `receipt` may be NULL.
enum pinfold_status pinfold_write(const struct pinfold_remote *remote,
                                  uint64_t at,
                                  const void *data,
                                  size_t len,
                                  struct pinfold_receipt *receipt);

// Reads `len` bytes at a place. `receipt` may be NULL.
enum pinfold_status pinfold_read(const struct pinfold_remote *remote,
                                 uint64_t at,
                                 void *data,
                                 size_t len,
                                 struct pinfold_receipt *receipt);

// Waits until everything written so far is in the memory, which it is at once on one host.
enum pinfold_status pinfold_flush(const struct pinfold_remote *remote);

// Posts a write: PINFOLD_COPIED. The memory is the operation's until its completion was taken.
enum pinfold_status pinfold_post_write(const struct pinfold_remote *remote,
                                       const struct pinfold_queue *queue,
                                       uint64_t context,
                                       uint64_t at,
                                       const void *data,
                                       size_t len);

// Posts a read: PINFOLD_COPIED. The memory is the operation's until its completion was taken.
enum pinfold_status pinfold_post_read(const struct pinfold_remote *remote,
                                      const struct pinfold_queue *queue,
                                      uint64_t context,
                                      uint64_t at,
                                      void *data,
                                      size_t len);

// Frees the handle. Operations that were posted go on.
void pinfold_remote_free(struct pinfold_remote *remote);

// The sentence of the last call of this thread that failed: what failed, on what, and what to do.
// Empty if none has. Good until the next call of this thread fails.
const char *pinfold_error(void);

// The name of a status, such as "PINFOLD_TIMEOUT"; "unknown" for another number. Good for ever.
const char *pinfold_status_name(int32_t status);

// The version of the library, such as "0.1.0". Good for ever.
const char *pinfold_version(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* PINFOLD_H */
