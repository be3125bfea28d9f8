#![allow(unsafe_code)]
//! The transmission of one connection's long messages.
//!
//! **Invariant.** A message is named as sent when all of its bytes were handed over and the kernel
//! has said that it no longer looks at any that it did not copy in the call.
//!
//! Accounting: a send in flight belongs to the message that is being handed over (`now`), or to one
//! of those that were (`landing`).

use std::{
    collections::VecDeque,
    os::fd::BorrowedFd,
    sync::Arc,
    time::{Duration, Instant},
};

use pinfold_sys::{cpu::clock, process::Segment as Part, socket::stream};
use rustix::io::Errno;

use super::{
    calls::{Called, Calls},
    driver::{Driver, InFlightSend, Landed},
};
use crate::{
    SendDriver, SendMode,
    memory::translate::TranslationLevel,
    policy::route::{Outgoing, SendMemory, SendRoute, SentFrom},
};

/// The longest wait for the kernel to let go of all memory of a connection that was broken off. All
/// of the endpoint waits meanwhile.
const LAST: Duration = Duration::from_millis(20);
/// ...in so many steps at least, by a ring and without one.
const GLANCE: Duration = Duration::from_millis(10);
const NAP: Duration = Duration::from_micros(100);

/// A message that has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transmitted {
    /// The name that its sender gave it.
    pub name: u64,
    /// The mode that sent all of it, or if that was refused in the middle, the bytes before that.
    pub mode: SendMode,
    /// The driver that sent it.
    pub driver: SendDriver,
    /// Bytes that the kernel did not copy.
    pub spared: u64,
    /// The level of the translation stack that had its memory: the slowest that any part took.
    pub translated: Option<TranslationLevel>,
}

impl Transmitted {
    /// A message that calls have copied, as far as is known.
    pub(crate) fn copied(name: u64) -> Transmitted {
        let (mode, driver, translated) = (SendMode::Plain, SendDriver::Calls, None);
        Transmitted { name, mode, driver, spared: 0, translated }
    }
}

/// Bytes that the kernel may look at.
#[derive(Debug)]
enum InFlight {
    Ring(InFlightSend),
    Call(Called),
}

/// A message on its way.
#[derive(Debug)]
struct TransmitMessage {
    mode: SendMode,
    driver: SendDriver,
    in_flight: Vec<InFlight>,
    /// Bytes that landed copied, and not.
    copied: u64,
    spared: u64,
    translated: Option<TranslationLevel>,
    /// True if some of its memory did not stay pinned.
    unkept: bool,
    /// True if it was not to be copied by calls.
    tried: bool,
    /// True if the cache had no room for some of it.
    uncached: bool,
    /// True if some of it was not taken by its mode.
    refused: bool,
}

impl TransmitMessage {
    fn new() -> TransmitMessage {
        TransmitMessage {
            mode: SendMode::Plain,
            driver: SendDriver::Calls,
            in_flight: Vec::new(),
            copied: 0,
            spared: 0,
            translated: None,
            unkept: false,
            tried: false,
            uncached: false,
            refused: false,
        }
    }

    /// The mode by which it was sent: memory that did not stay pinned was pinned for this send.
    fn mode_done(&self) -> SendMode {
        let is_cached = matches!(self.mode, SendMode::Cached | SendMode::Aligned);
        if is_cached && self.unkept { SendMode::PerSend } else { self.mode }
    }

    /// Finds out which sends have landed.
    fn land(&mut self, driver: &Driver, calls: &mut Calls) {
        for in_flight in std::mem::take(&mut self.in_flight) {
            let landed = match in_flight {
                InFlight::Ring(in_flight) => driver.land(in_flight).map_err(InFlight::Ring),
                InFlight::Call(called) => match calls.land(called) {
                    Ok((bytes, copied)) => Ok(Landed { bytes, copied, translated: None }),
                    Err(called) => Err(InFlight::Call(called)),
                },
            };
            match landed {
                Ok(Landed { bytes, copied, translated }) => {
                    *(if copied { &mut self.copied } else { &mut self.spared }) += bytes;
                    self.translated = self.translated.max(translated.map(|it| it.0));
                    self.unkept |= translated.is_some_and(|it| !it.1);
                }
                Err(in_flight) => self.in_flight.push(in_flight),
            }
        }
    }
}

/// The transmission of a connection's messages.
#[derive(Debug)]
pub(crate) struct Transmitter {
    /// `None`: by calls, all of them.
    driver: Option<Arc<Driver>>,
    calls: Calls,
    route: SendRoute,
    now: TransmitMessage,
    /// Messages that are handed over, and not over.
    landing: VecDeque<(u64, TransmitMessage)>,
    gone: Vec<Transmitted>,
}

impl Transmitter {
    /// All messages by calls.
    pub(crate) fn plain() -> Transmitter {
        Transmitter {
            driver: None,
            calls: Calls::default(),
            route: SendRoute::new(None),
            now: TransmitMessage::new(),
            landing: VecDeque::new(),
            gone: Vec::new(),
        }
    }

    /// A transmitter that uses the driver's rings and cache.
    pub(crate) fn new(driver: Arc<Driver>) -> Transmitter {
        let route = SendRoute::new(driver.settings().mode);
        Transmitter { driver: Some(driver), route, ..Transmitter::plain() }
    }

    /// The mode of sending a message.
    pub(crate) fn choose(&mut self, parts: &[Part]) -> SendMode {
        let Some(driver) = &self.driver else { return SendMode::Plain };
        let memory = match self.route.wants_cache() && driver.has_cache() {
            true => SendMemory::Registered,
            false => SendMemory::Unregistered,
        };
        let bytes = parts.iter().map(|part| part.len).sum();
        self.route.choose(&Outgoing {
            bytes,
            pieces: parts.len(),
            // They need not fit into one packet.
            pages: 0,
            from: SentFrom::Memory,
            memory,
        })
    }

    /// Sends as much as there is room for of a message that is next on the connection: returns how
    /// many bytes, 0 if there is no room. `None`: it has to be sent by calls, from here on.
    ///
    /// # Safety
    /// The parts can be read until the message is [named](Transmitter::take_transmitted), or until
    /// the [severed](Transmitter::settle) connection does not matter any more.
    pub(crate) unsafe fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        mode: SendMode,
        parts: &[Part],
    ) -> Option<usize> {
        let driver = self.driver.clone().filter(|_| !self.now.refused)?;
        self.now.tried = true;
        let cached = matches!(mode, SendMode::Cached | SendMode::Aligned);
        let mode = if cached && self.now.uncached { SendMode::PerSend } else { mode };
        let by_ring = mode != SendMode::PerSend || driver.has_ring();
        let mut cost_of = mode;
        let started = clock::ticks();
        let sent = if by_ring {
            // SAFETY: by contract.
            let took = unsafe { driver.send(socket, mode, parts) };
            took.map(|took| {
                self.now.in_flight.extend(took.in_flight.into_iter().map(InFlight::Ring));
                cost_of = took.cost_of.unwrap_or(mode);
                took.bytes
            })
        } else {
            // SAFETY: by contract.
            let called = unsafe { self.calls.send(socket, parts) };
            called.map(|(bytes, called)| {
                self.now.in_flight.extend(called.map(InFlight::Call));
                bytes
            })
        };
        match sent {
            Ok(bytes) => {
                if bytes > 0 {
                    self.now.mode = mode;
                    self.now.driver = if by_ring { SendDriver::Ring } else { SendDriver::Calls };
                    self.route.took(cost_of, bytes, clock::ns_of(clock::ticks() - started));
                }
                Some(bytes)
            }
            // So many are in flight that there is no place for another: not the route's fault.
            Err(Errno::NOBUFS) => None,
            Err(errno) if cached && !self.now.uncached => {
                tracing::debug!(%errno, "a message is not sent out of the cache");
                self.now.uncached = true;
                // SAFETY: by contract.
                unsafe { self.send(socket, mode, parts) }
            }
            Err(errno) if by_ring && mode == SendMode::PerSend && !driver.has_ring() => {
                tracing::debug!(%errno, "the ring sends no more");
                // SAFETY: by contract.
                unsafe { self.send(socket, mode, parts) }
            }
            Err(errno) => {
                tracing::debug!(?mode, %errno, "a message is copied");
                self.now.refused = true;
                None
            }
        }
    }

    /// A call has sent so many bytes, for the most part of a long message, and began then.
    pub(crate) fn took(&mut self, bytes: usize, started: u64) {
        if self.driver.is_some() {
            self.route.took(SendMode::Plain, bytes, clock::ns_of(clock::ticks() - started));
        }
    }

    /// All of a message is handed over.
    pub(crate) fn handed(&mut self, name: u64, socket: BorrowedFd<'_>) {
        let message = std::mem::replace(&mut self.now, TransmitMessage::new());
        if message.refused {
            self.route.failed();
        }
        self.landing.push_back((name, message));
        self.land(socket);
    }

    /// Finds out which messages the kernel no longer looks at.
    pub(crate) fn land(&mut self, socket: BorrowedFd<'_>) {
        let Some(driver) = &self.driver else {
            let plain = |(name, _)| Transmitted::copied(name);
            return self.gone.extend(self.landing.drain(..).map(plain));
        };
        self.calls.collect(socket);
        self.now.land(driver, &mut self.calls);
        for _ in 0..self.landing.len() {
            let Some((name, mut message)) = self.landing.pop_front() else { break };
            message.land(driver, &mut self.calls);
            if !message.in_flight.is_empty() {
                self.landing.push_back((name, message));
                continue;
            }
            let TransmitMessage { driver, copied, spared, tried, refused, translated, .. } =
                message;
            let mode = message.mode_done();
            if tried && !refused {
                self.route.landed(copied > 0 || spared == 0);
            }
            self.gone.push(Transmitted { name, mode, driver, spared, translated });
        }
    }

    /// Returns whether the kernel may still look at some of the bytes that were handed over.
    pub(crate) fn has_in_flight(&self) -> bool {
        !self.now.in_flight.is_empty() || !self.landing.is_empty()
    }

    /// A message that is gone.
    pub(crate) fn take_transmitted(&mut self) -> Option<Transmitted> {
        self.gone.pop()
    }

    /// The connection has broken: the kernel is to look at nothing any more, and the message that
    /// was being handed over is handed over again, if at all.
    pub(crate) fn break_off(&mut self, socket: BorrowedFd<'_>) {
        self.settle(socket);
        self.now = TransmitMessage::new();
        self.calls = Calls::default();
    }

    /// Has the kernel look at nothing any more: if a send is in flight, the connection is broken
    /// off, and it is waited for, 20 ms at most. Bytes that are in flight even then can only be in
    /// a device's queue. Their pages are held by the kernel, and the peer does not take them for
    /// part of the message.
    pub(crate) fn settle(&mut self, socket: BorrowedFd<'_>) {
        self.land(socket);
        let Some(driver) = self.driver.clone().filter(|_| self.has_in_flight()) else { return };
        // If there is no connection any more, nothing is held for it.
        let _ = stream::sever(socket);
        let end = Instant::now() + LAST;
        loop {
            self.land(socket);
            let mut left = self.landing.iter().flat_map(|(_, message)| &message.in_flight);
            let Some(first) = self.now.in_flight.first().or_else(|| left.next()) else { return };
            let now = Instant::now();
            if now >= end {
                break;
            }
            match first {
                InFlight::Ring(in_flight) => driver.wait(in_flight, (end - now).min(GLANCE)),
                // A severed connection reports nothing.
                InFlight::Call(_) => clock::pause((end - now).min(NAP)),
            }
        }
        tracing::warn!("the network has not let go of what it was to send");
        let landing = self.landing.drain(..).flat_map(|(_, message)| message.in_flight);
        for it in landing.chain(self.now.in_flight.drain(..)) {
            // Calls are not heard of any more, once there is another connection.
            if let InFlight::Ring(in_flight) = it {
                driver.give_up(in_flight);
            }
        }
    }
}
