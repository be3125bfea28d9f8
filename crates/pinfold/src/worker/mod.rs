//! The engine of one endpoint: everything that the endpoint's lock guards.
//!
//! - [`engine`]: the whole; [`core`]: the state that the operations of all peers share. Their steps
//!   are functions of the other modules and of [`protocol`](crate::protocol), which take the
//!   engine, the core or the parts that they touch.
//! - `outbound`: sends on their way into lanes; `routing`: their paths; `answers`: what must not
//!   wait for room.
//! - `inbound`: descriptors that have come; `posted`: receives that take messages; `room`: memory
//!   for these; `pieces`, `streams`: messages in parts; `deliver`: messages that are complete.
//! - [`peer`]: one connected peer; [`table`]: all of them, and those that are gone; `polled`: those
//!   whose lanes are polled.
//! - [`connections`]: sockets, listeners, ends of processes; [`handshakes`]: greetings under way.
//! - [`extent_exchange`]: arenas that are handed over;
//!   [`exported_extents`](crate::memory::exported_extents) and
//!   [`imported_extents`](crate::memory::imported_extents) keep account of them.
//! - `post`: sends and receives as the caller's side sees them; `fast_path`: short ones without any
//!   obstacle; `unexpected`: messages that came before their receives; `multi_recv`: receives of
//!   many messages.
//! - `ends`: how operations end; `cancel`: how they are taken back; `abandoned`: how they are given
//!   up.
//! - [`lent`]: operations of which a part is copied outside of the engine; `copying`: by whom.
//! - `progress`: the progress loop; `sleep`: how it stops polling without missing anything;
//!   `transport_progress`, `transport_sends`, `poll_set`: connections with other hosts.
//! - `teardown`: how peers go, and how the endpoint closes; `outstanding`: messages not delivered.
//! - `gauges`: the state that other processes may see.
//! - [`shared`]: the lock; [`wait`], [`followers`]: waiting; [`matching`]: receives matched with
//!   messages.
//!
//! No user code runs in here: wakers and drops of buffers are put on [`Wakes`](op::Wakes) and run
//! once the lock is free.

pub(crate) mod abandoned;
pub(crate) mod answers;
pub(crate) mod cancel;
pub(crate) mod claims;
pub(crate) mod config;
pub(crate) mod connections;
pub(crate) mod control_flush;
pub(crate) mod copying;
pub(crate) mod core;
pub(crate) mod credit;
pub(crate) mod deliver;
pub(crate) mod ends;
pub(crate) mod engine;
pub(crate) mod envelope;
pub(crate) mod extent_exchange;
pub(crate) mod fast_path;
pub(crate) mod fast_view;
pub(crate) mod followers;
pub(crate) mod gauges;
pub(crate) mod handshakes;
pub(crate) mod inbound;
pub(crate) mod inbound_stream;
pub(crate) mod lent;
pub(crate) mod matching;
pub(crate) mod multi_recv;
pub(crate) mod next_message;
pub(crate) mod op;
pub(crate) mod op_key;
pub(crate) mod op_table;
pub(crate) mod outbound;
pub(crate) mod outstanding;
pub(crate) mod peer;
pub(crate) mod peer_times;
pub(crate) mod pending_peer;
pub(crate) mod pieces;
pub(crate) mod poll_set;
pub(crate) mod polled;
pub(crate) mod post;
pub(crate) mod posted;
pub(crate) mod prefault;
pub(crate) mod prefaulter;
pub(crate) mod probes;
pub(crate) mod progress;
pub(crate) mod room;
pub(crate) mod routing;
pub(crate) mod send_timeout;
pub(crate) mod send_waits;
pub(crate) mod shared;
pub(crate) mod sleep;
mod stand_by;
mod status_page;
pub(crate) mod streams;
pub(crate) mod table;
pub(crate) mod teardown;
pub(crate) mod transport_progress;
pub(crate) mod transport_sends;
pub(crate) mod try_send;
pub(crate) mod unexpected;
mod unlocked_copier;
pub(crate) mod unlocked_copy;
pub(crate) mod unlocked_counts;
pub(crate) mod wait;
pub(crate) mod wakes;

use crate::{Result, random};

/// Random bytes that cannot be guessed.
pub(crate) fn random<const N: usize>() -> Result<[u8; N]> {
    random::bytes("a new endpoint")
}
