//! Counts of an endpoint's work, for C.

use pinfold::Counters;

use crate::{
    endpoint::{pinfold_endpoint, the},
    receipt::PINFOLD_PATHS,
    sized::Plain,
    status::{pinfold_status, run},
};

/// Counts of an endpoint's work so far. By path: the index is a pinfold_path.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct pinfold_counters {
    /// Messages sent, by path.
    pub sent: [u64; PINFOLD_PATHS],
    /// Their bytes.
    pub sent_bytes: [u64; PINFOLD_PATHS],
    /// Messages received, by path.
    pub received: [u64; PINFOLD_PATHS],
    /// Their bytes.
    pub received_bytes: [u64; PINFOLD_PATHS],
    /// Bytes that this process copied at user level.
    pub copied_user: u64,
    /// Bytes that the kernel copied in calls of this process.
    pub copied_kernel: u64,
    /// Messages that came before their receive was posted.
    pub unexpected: u64,
    /// Times that this endpoint went to sleep.
    pub sleeps: u64,
    /// Times that this process had other processors interrupted, for all its endpoints.
    pub barriers: u64,
    /// Peers that are or were connected.
    pub peers_joined: u64,
    /// Peers that went, for any reason.
    pub peers_gone: u64,
    /// One-sided writes of this endpoint.
    pub writes: u64,
    /// One-sided reads.
    pub reads: u64,
    /// Atomic operations.
    pub atomics: u64,
    /// Calls and requests made.
    pub called: u64,
    /// Active messages handled.
    pub handled: u64,
    /// Active messages dropped: there was no handler, or they were too long.
    pub unhandled: u64,
    /// Messages that were not delivered before the endpoint closed or their peer went.
    pub undelivered: u64,
}

// SAFETY: integers.
unsafe impl Plain for pinfold_counters {}

impl From<&Counters> for pinfold_counters {
    fn from(it: &Counters) -> pinfold_counters {
        pinfold_counters {
            sent: it.sent.map(|count| count.messages),
            sent_bytes: it.sent.map(|count| count.bytes),
            received: it.received.map(|count| count.messages),
            received_bytes: it.received.map(|count| count.bytes),
            copied_user: it.copied_user,
            copied_kernel: it.copied_kernel,
            unexpected: it.unexpected,
            sleeps: it.sleeps,
            barriers: it.barriers,
            peers_joined: it.peers_joined,
            peers_gone: it.peers_gone,
            writes: it.one_sided.writes,
            reads: it.one_sided.reads,
            atomics: it.one_sided.atomics,
            called: it.called,
            handled: it.handled,
            unhandled: it.unhandled,
            undelivered: it.undelivered,
        }
    }
}

/// Counts of an endpoint's work so far; `size` is sizeof(pinfold_counters).
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_count(
    endpoint: *const pinfold_endpoint,
    counters: *mut pinfold_counters,
    size: usize,
) -> pinfold_status {
    run(|| {
        // SAFETY: the caller's.
        let counts = unsafe { the(endpoint) }?.counters();
        // SAFETY: the caller's.
        unsafe { pinfold_counters::from(&counts).write(counters, size, "counters") }
    })
}
