#![allow(unsafe_code)]
//! A transport that does badly what it may do badly, for tests: it is slow, takes bytes in odd
//! parts, has no way past the lane just now, and breaks.
//!
//! **Invariant.** None of its own: contracts are passed on.

use std::{io, os::fd::OwnedFd, sync::Arc, time::Duration};

use pinfold_sys::{io::poll::Epoll, process::Segment as Part, socket::seqpacket::Socket};
use rustix::io::Errno;

use super::{
    Capabilities, Direct, Driver, Ended, Resume, Transmitted, Transport,
    shm::{budget::Budget, ring::Violation},
};
use crate::wire::{descriptor::Header, tcp::offer::Reached};

/// Turns between two breaks, at the least.
const TURNS_A_BREAK: u64 = 2_000;
/// Turns without work after which there is none.
const IDLE: u32 = 20;

pub(crate) struct Faulty {
    inner: Box<dyn Transport>,
    random: u64,
    turns: u64,
    /// Turns in a row that had nothing to do.
    idle: u32,
    /// True if the pair goes on over another connection.
    breaks: bool,
}

impl Faulty {
    pub(crate) fn new(inner: Box<dyn Transport>, seed: u64, breaks: bool) -> Faulty {
        Faulty { inner, random: seed | 1, turns: 0, idle: 0, breaks }
    }

    /// True once in `times` (xorshift, Marsaglia, 2003).
    fn one_in(&mut self, times: u64) -> bool {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random.is_multiple_of(times)
    }
}

impl Transport for Faulty {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn encryption(&self) -> Option<&'static str> {
        self.inner.encryption()
    }

    fn begin(&mut self, driver: &Arc<Driver>, silence: Duration) {
        self.inner.begin(driver, silence);
    }

    fn watch(&mut self, epoll: &Arc<Epoll>, news: u64, bell: u64) -> io::Result<()> {
        self.inner.watch(epoll, news, bell)
    }

    fn unwatch(&self, epoll: &Epoll) {
        self.inner.unwatch(epoll);
    }

    fn ring(&mut self) -> io::Result<()> {
        self.inner.ring()
    }

    fn hear(&mut self, pipe: OwnedFd) {
        self.inner.hear(pipe);
    }

    fn is_heard(&mut self) {
        self.inner.is_heard();
    }

    fn channel(&self) -> Option<&Socket> {
        self.inner.channel()
    }

    fn turn(&mut self, waits: bool, budget: &mut Budget) -> Result<bool, Ended> {
        self.turns += 1;
        if self.breaks && self.turns > TURNS_A_BREAK && self.one_in(500) {
            self.turns = 0;
            return Err(Ended::Broken(Errno::CONNRESET.raw_os_error()));
        }
        // Work that is not done now is to be done at once. A transport without work does not say
        // that it has some: its endpoint would never come to rest.
        if self.idle < IDLE && self.one_in(3) {
            return Ok(true);
        }
        let moved = self.inner.turn(waits, budget)?;
        self.idle = if moved { 0 } else { self.idle + 1 };
        Ok(moved)
    }

    fn hand_on(&mut self) {
        self.inner.hand_on();
    }

    fn is_drained(&self) -> bool {
        self.inner.is_drained()
    }

    fn is_sent(&self) -> bool {
        self.inner.is_sent()
    }

    fn is_flushed(&self) -> bool {
        self.inner.is_flushed()
    }

    fn has_in_flight(&self) -> bool {
        self.inner.has_in_flight()
    }

    fn take_has_sent(&mut self) -> bool {
        self.inner.take_has_sent()
    }

    fn look(&mut self, now_ns: u64) -> Result<Option<u64>, Ended> {
        self.inner.look(now_ns)
    }

    fn take_sent(&mut self) -> Option<Transmitted> {
        self.inner.take_sent()
    }

    fn past_lane(&mut self) -> Option<&mut dyn Direct> {
        // Bytes that come past it have to be taken; those that leave need not go so.
        let may = self.inner.brings_direct() || !self.one_in(2);
        if may && self.inner.past_lane().is_some() { Some(self) } else { None }
    }

    fn brings_direct(&self) -> bool {
        self.inner.brings_direct()
    }

    fn resume(&mut self) -> Option<&mut dyn Resume> {
        self.inner.resume()
    }

    fn reached(&self) -> Option<Reached> {
        self.inner.reached()
    }

    fn say_goodbye(&mut self) {
        self.inner.say_goodbye();
    }

    fn settle(&mut self) {
        self.inner.settle();
    }

    fn budgeted(&self) -> usize {
        self.inner.budgeted()
    }
}

impl Direct for Faulty {
    unsafe fn send_directly(
        &mut self,
        name: u64,
        header: Header,
        words: &[u64],
        parts: &mut dyn Iterator<Item = Part>,
    ) -> Result<(), Violation> {
        match self.inner.past_lane() {
            // SAFETY: by contract.
            Some(direct) => unsafe { direct.send_directly(name, header, words, parts) },
            None => Err(Violation("there is no way past the lane")),
        }
    }

    fn direct_ones(&mut self) -> usize {
        self.inner.past_lane().map_or(0, |direct| direct.direct_ones())
    }

    fn direct(&mut self) -> Option<(u32, u64)> {
        self.inner.past_lane()?.direct()
    }

    fn through_lane(&mut self) {
        if let Some(direct) = self.inner.past_lane() {
            direct.through_lane();
        }
    }

    unsafe fn take_directly(
        &mut self,
        to: Part,
        put: &mut dyn FnMut(&[u8]),
    ) -> Result<usize, Ended> {
        let len = if self.one_in(2) { to.len.min(777) } else { to.len };
        match self.inner.past_lane() {
            // SAFETY: by contract; a part of it.
            Some(direct) => unsafe { direct.take_directly(Part { len, ..to }, put) },
            None => Ok(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        thread,
        time::{Duration, Instant},
    };

    use crate::{Builder, Endpoint, PeerId, TagMatch};

    const MESSAGES: u64 = 400;
    const LENGTHS: [usize; 8] = [0, 8, 57, 1000, 16 << 10, 100_000, 1 << 20, 3_000_001];

    fn bytes(number: u64, way: u64) -> Vec<u8> {
        let len = LENGTHS[(number * 7 + way) as usize % LENGTHS.len()];
        (0..len as u64).map(|at| (at * 31 + number * 7 + way) as u8).collect()
    }

    /// Sends and receives at the same time, in order, until the other side has done so, too.
    fn talk(endpoint: &Endpoint, peer: PeerId, way: u64, done: &AtomicUsize) {
        let mut sent = Vec::new();
        for number in 0..MESSAGES {
            sent.push(endpoint.send_owned(peer, 1, bytes(number, way)));
            let message = endpoint.recv_timeout(peer, TagMatch::any(), Duration::from_secs(60));
            assert!(*message.unwrap() == bytes(number, 1 - way)[..], "message {number}");
        }
        for request in sent {
            request.wait().0.unwrap();
        }
        endpoint.drain(Duration::from_secs(60)).unwrap();
        done.fetch_add(1, Ordering::Relaxed);
        // The last word of this side may not have gone yet.
        while done.load(Ordering::Relaxed) < 2 {
            endpoint.progress().unwrap();
        }
    }

    fn pair(name: &str, listens: &str, by: impl Fn() -> Builder) -> u64 {
        let one = by().listen(listens).faults(0x5eed).build().unwrap();
        let two = by().faults(0xfade).build().unwrap();
        let address = one.listens_at().unwrap_or(listens.to_owned());
        let (begun, done) = (Instant::now(), AtomicUsize::new(0));
        let came = thread::scope(|scope| {
            let other = scope.spawn(|| {
                let peer = one.accept().unwrap();
                talk(&one, peer, 0, &done);
            });
            let peer = two.connect(&address).unwrap();
            talk(&two, peer, 1, &done);
            other.join().unwrap();
            two.peer(peer).unwrap().reconnections
        });
        assert!(begun.elapsed() < Duration::from_secs(120), "{name}");
        came
    }

    #[test]
    fn messages_come_in_order_over_connections_that_break() {
        let by = || Endpoint::builder().local_shortcut(false);
        assert!(pair("it breaks", "tcp:127.0.0.1:0", by) > 0, "it never broke");
    }

    #[test]
    fn messages_come_in_order_over_a_connection_that_is_slow() {
        let by = || {
            let by = Endpoint::builder().local_shortcut(false);
            // Without the time for another connection the pair does not resume.
            by.reconnect_timeout(Duration::ZERO)
        };
        assert_eq!(pair("it is slow", "tcp:127.0.0.1:0", by), 0);
    }

    #[test]
    fn shared_memory_has_nothing_to_turn() {
        let name = format!("local:faulty-{}", std::process::id());
        assert_eq!(pair("it is near", &name, Endpoint::builder), 0);
    }
}
