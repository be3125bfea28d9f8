#![allow(unsafe_code)]
//! The rings of an endpoint, and its share of the translation stack that holds memory for them.
//!
//! A ring is asked for by the first message that wants one; so is the share. If a
//! filter on system calls is in force, neither is, unless the program says so: the filter may kill
//! a process that asks.
//!
//! **Invariant.** None of its own: `Transmitter` has it.

use std::{
    os::fd::BorrowedFd,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use pinfold_sys::{
    io::{
        poll::{Epoll, Interest},
        send_ring::{Flight, Launched, ORDERS_MAX, Order, SendRing, Way},
    },
    mem::pin::Registered,
    process::Segment as Part,
    refused::may_pass,
    socket::stream::PARTS_MAX,
    trial::{self, Limited},
};
use rustix::io::Errno;
use smallvec::SmallVec;

use super::facility::{Facility, Missing};
use crate::{
    SendMode,
    memory::translate::{
        TranslationLevel,
        own::{OwnHold, process::Share},
        told,
    },
    policy::route::PinLimits,
};

/// Bytes of one send whose pages are held for it: it is charged for what it asks for, not for what
/// is sent.
pub(super) const PER_SEND_MAX: usize = PinLimits::SEND_BYTES_MAX;
/// Bytes of any other.
const COPIED_MAX: usize = 1 << 30;
/// Parts of fewer bytes, such as a header in front of a message, are copied beside longer ones: to
/// pin their pages would cost more, and keep pages watched that hold other things.
const PINNED_PART_MIN: usize = 512;

/// The program's settings.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Settings {
    /// The mode that it insists on.
    pub mode: Option<SendMode>,
    /// True if rings are to be used; `None`: if nothing speaks against it.
    pub ring: Option<bool>,
}

/// Memory that stays pinned, and the ring that sends from it.
#[derive(Debug)]
struct Cache {
    share: Share,
    ring: SendRing,
}

/// The answers of the translation stack to an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TranslationCounts {
    /// Parts of messages whose memory each [`TranslationLevel`] had.
    pub by_level: [u64; 3],
    /// Areas of this endpoint that had to give way to others.
    pub evictions: u64,
    /// Bytes that are pinned for it.
    pub pinned_bytes: u64,
}

#[derive(Debug, Default)]
struct Rings {
    plain: Facility<SendRing>,
    cached: Facility<Box<Cache>>,
    by_level: [u64; 3],
    /// Sends that are not asked for any more.
    abandoned: Vec<InFlightSend>,
}

/// The result of a send: how many bytes, and the bytes of it in flight.
#[derive(Debug, Default)]
pub(super) struct Took {
    pub bytes: usize,
    pub in_flight: SmallVec<[InFlightSend; 2]>,
    /// The mode that has this cost: [`SendMode::PerSend`] where memory was pinned for this send
    /// alone.
    pub cost_of: Option<SendMode>,
}

/// A send whose bytes the kernel does not look at any more.
#[derive(Debug)]
pub(super) struct Landed {
    pub bytes: u64,
    /// True if the kernel has copied them.
    pub copied: bool,
    /// The level of the translation stack that had the memory, and whether it stays pinned.
    /// `None`: it was not asked.
    pub translated: Option<(TranslationLevel, bool)>,
}

/// Bytes that the kernel may look at.
#[derive(Debug)]
#[must_use = "only with this it is known when it is over"]
pub(super) struct InFlightSend {
    flight: Flight,
    bytes: u64,
    /// In the cache.
    hold: Option<OwnHold>,
}

/// The rings of an endpoint.
#[derive(Debug)]
pub(crate) struct Driver {
    settings: Settings,
    epoll: Arc<Epoll>,
    /// The token of the rings in the epoll.
    token: u64,
    rings: Mutex<Rings>,
    /// The number of sends in flight.
    in_flight: AtomicUsize,
}

impl Driver {
    /// Nothing is asked for yet. The epoll tells of a ring that has something to say by `token`.
    pub(crate) fn new(settings: Settings, epoll: Arc<Epoll>, token: u64) -> Driver {
        let (rings, in_flight) = Default::default();
        Driver { settings, epoll, token, rings, in_flight }
    }

    pub(crate) fn settings(&self) -> Settings {
        self.settings
    }

    /// Returns whether a send is out, anywhere in the endpoint, that has not been found over.
    pub(crate) fn has_in_flight(&self) -> bool {
        self.in_flight.load(Ordering::Relaxed) > 0
    }

    /// Returns whether a completion waits that has not been seen to: then it is not time to sleep.
    pub(crate) fn has_news(&self) -> bool {
        self.has_in_flight() && {
            let mut rings = self.rings.lock();
            rings.each(SendRing::collect);
            for in_flight in std::mem::take(&mut rings.abandoned) {
                match rings.land(in_flight) {
                    Ok(_) => _ = self.in_flight.fetch_sub(1, Ordering::Relaxed),
                    Err(in_flight) => rings.abandoned.push(in_flight),
                }
            }
            rings.over() > 0
        }
    }

    /// Returns whether there is a ring that sends. Asks for one.
    pub(super) fn has_ring(&self) -> bool {
        self.rings.lock().plain(self).is_some_and(|ring| !ring.is_dead())
    }

    /// Returns whether memory can be kept pinned here. Asks for the ring and the cache.
    pub(super) fn has_cache(&self) -> bool {
        self.rings.lock().cached(self).is_some_and(|cache| !cache.ring.is_dead())
    }

    /// Sends as much as there is room for of these parts of one message; 0 bytes if there is no
    /// room. `None`: not this way.
    ///
    /// # Safety
    /// The parts can be read, and are not written until the bytes in flight [have
    /// landed](Driver::land) or the message is not wanted any more.
    pub(super) unsafe fn send(
        &self,
        socket: BorrowedFd<'_>,
        mode: SendMode,
        parts: &[Part],
    ) -> Result<Took, Errno> {
        let mut rings = self.rings.lock();
        let mut in_flight = SmallVec::new();
        // SAFETY: by contract.
        let sent = unsafe {
            match mode {
                SendMode::Plain => return Err(Errno::NOSYS),
                SendMode::TwoCopy => {
                    rings.at_once(self, socket, parts, Way::Copied, &mut in_flight)
                }
                SendMode::PerSend => {
                    rings.at_once(self, socket, parts, Way::Pinned, &mut in_flight)
                }
                SendMode::Cached | SendMode::Aligned => {
                    rings.out_of_cache(self, socket, parts, &mut in_flight)
                }
            }
        };
        self.in_flight.fetch_add(in_flight.len(), Ordering::Relaxed);
        match sent {
            Ok(bytes) => {
                let unkept =
                    |it: &InFlightSend| it.hold.as_ref().is_some_and(|hold| hold.kept().is_err());
                let cost_of = if in_flight.iter().any(unkept) { SendMode::PerSend } else { mode };
                Ok(Took { bytes, in_flight, cost_of: Some(cost_of) })
            }
            Err(errno) => {
                // The kernel posts a completion even for a send that it refused.
                rings.abandoned.extend(in_flight);
                Err(errno)
            }
        }
    }

    /// The answers of the translation stack so far.
    pub(crate) fn translations(&self) -> TranslationCounts {
        let rings = self.rings.lock();
        let Facility::There(cache) = &rings.cached else { return TranslationCounts::default() };
        TranslationCounts {
            by_level: rings.by_level,
            evictions: cache.share.evictions(),
            pinned_bytes: cache.share.pinned_bytes(),
        }
    }

    /// Checks that the kernel is done with some bytes.
    ///
    /// # Errors
    /// It is not.
    pub(super) fn land(&self, in_flight: InFlightSend) -> Result<Landed, InFlightSend> {
        let landed = self.rings.lock().land(in_flight)?;
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
        Ok(landed)
    }

    /// The end of this send is not asked for any more.
    pub(super) fn give_up(&self, in_flight: InFlightSend) {
        self.rings.lock().abandoned.push(in_flight);
    }

    /// Waits for a word of the kernel's on this, at most so long.
    pub(super) fn wait(&self, in_flight: &InFlightSend, limit: Duration) {
        if let Some(ring) = self.rings.lock().ring_of(in_flight.hold.is_some()) {
            ring.wait(limit);
        }
    }

    fn watch(&self, ring: &SendRing) -> Result<(), Missing> {
        self.epoll.add(ring, self.token, Interest::Read).map_err(|error| {
            tracing::debug!(%error, "a ring is not watched");
            if may_pass(&error) { Missing::Now } else { Missing::ForGood }
        })
    }

    /// Checks that the process may ask for a ring. Looked at each time: a filter may come later.
    fn may(&self) -> Result<(), Missing> {
        let may = match self.settings.ring {
            Some(may) => may,
            // Some filters deny a call by killing the process.
            None => trial::is_unfiltered(),
        };
        if may { Ok(()) } else { Err(Missing::ForGood) }
    }

    fn ring(&self) -> Result<SendRing, Missing> {
        self.may()?;
        let ring = SendRing::new(Arc::new(Registered::new(1)?))?;
        self.watch(&ring).map(|()| ring)
    }
}

impl Rings {
    fn ring_of(&mut self, cached: bool) -> Option<&mut SendRing> {
        match (cached, &mut self.plain, &mut self.cached) {
            (false, Facility::There(ring), _) => Some(ring),
            (true, _, Facility::There(cache)) => Some(&mut cache.ring),
            _ => None,
        }
    }

    fn each(&mut self, mut see: impl FnMut(&mut SendRing)) {
        for cached in [false, true] {
            self.ring_of(cached).into_iter().for_each(&mut see);
        }
    }

    /// As [`Driver::land`].
    fn land(&mut self, in_flight: InFlightSend) -> Result<Landed, InFlightSend> {
        let InFlightSend { flight, bytes, hold } = in_flight;
        let Some(ring) = self.ring_of(hold.is_some()) else {
            return Err(InFlightSend { flight, bytes, hold });
        };
        ring.collect();
        match ring.land(flight) {
            Ok(copied) => {
                let translated = match (hold, &self.cached) {
                    (Some(hold), Facility::There(cache)) => {
                        Some((hold.level(), cache.share.end(hold)))
                    }
                    _ => None,
                };
                Ok(Landed { bytes, copied, translated })
            }
            Err(flight) => Err(InFlightSend { flight, bytes, hold }),
        }
    }

    /// Counts the sends that are over and were not found so yet.
    fn over(&mut self) -> usize {
        let mut over = 0;
        self.each(|ring| over += ring.over());
        over
    }

    fn plain(&mut self, driver: &Driver) -> Option<&mut SendRing> {
        if self.plain.is_to_be_asked() {
            self.plain.is(driver.ring());
        }
        match &mut self.plain {
            Facility::There(ring) => Some(ring),
            _ => None,
        }
    }

    fn cached(&mut self, driver: &Driver) -> Option<&mut Cache> {
        if self.cached.is_to_be_asked() {
            self.cached.is(Cache::new(driver).map(Box::new));
        }
        match &mut self.cached {
            Facility::There(cache) => Some(cache),
            _ => None,
        }
    }

    /// Sends bytes that are not pinned, in one order.
    ///
    /// # Safety
    /// As [`Driver::send`].
    unsafe fn at_once(
        &mut self,
        driver: &Driver,
        socket: BorrowedFd<'_>,
        parts: &[Part],
        way: Way,
        in_flight: &mut SmallVec<[InFlightSend; 2]>,
    ) -> Result<usize, Errno> {
        let ring = self.plain(driver).ok_or(Errno::NOSYS)?;
        let most = if way == Way::Pinned { PER_SEND_MAX } else { COPIED_MAX };
        let parts = first(parts, most);
        let mut launched = Vec::new();
        // SAFETY: by contract.
        let sent = unsafe { ring.send(socket, &[Order { parts: &parts, way }], &mut launched) };
        in_flight.extend(launched.into_iter().filter_map(|it| it.in_flight(None)));
        sent
    }

    /// Sends parts that the cache has or takes, an order a part; short ones beside them are copied.
    ///
    /// # Safety
    /// As [`Driver::send`].
    unsafe fn out_of_cache(
        &mut self,
        driver: &Driver,
        socket: BorrowedFd<'_>,
        parts: &[Part],
        in_flight: &mut SmallVec<[InFlightSend; 2]>,
    ) -> Result<usize, Errno> {
        let mut by_level = self.by_level;
        let Cache { share, ring } = self.cached(driver).ok_or(Errno::NOSYS)?;
        let mut holds: SmallVec<[Option<OwnHold>; 4]> = SmallVec::new();
        let mut slots: SmallVec<[Way; 4]> = SmallVec::new();
        let copies = parts.iter().any(|part| part.len >= PINNED_PART_MIN);
        for part in &parts[..parts.len().min(ORDERS_MAX)] {
            if copies && part.len < PINNED_PART_MIN {
                holds.push(None);
                slots.push(Way::Copied);
                continue;
            }
            let (start, len) = (part.ptr.addr() as u64, part.len as u64);
            let Ok(hold) = share.translate(start, len) else { break };
            by_level[hold.level() as usize] += 1;
            told::tell(share.number(), start, len, hold.level());
            let slot = hold.slot();
            holds.push(Some(hold));
            let Some(slot) = slot else { break };
            slots.push(Way::Registered(slot));
        }
        let orders = parts.chunks(1).zip(&slots).map(|(parts, &way)| Order { parts, way });
        let orders: SmallVec<[Order<'_>; 4]> = orders.collect();
        let mut launched = Vec::new();
        let sent = match orders.is_empty() {
            true => Err(Errno::NOMEM),
            // SAFETY: by contract.
            false => unsafe { ring.send(socket, &orders, &mut launched) },
        };
        in_flight.extend(launched.into_iter().filter_map(|it| {
            let hold = holds.get_mut(it.order).and_then(Option::take);
            it.in_flight(hold)
        }));
        for hold in holds.into_iter().flatten() {
            share.end(hold);
        }
        self.by_level = by_level;
        sent
    }
}

trait IntoInFlight {
    fn in_flight(self, hold: Option<OwnHold>) -> Option<InFlightSend>;
}

impl IntoInFlight for Launched {
    fn in_flight(self, hold: Option<OwnHold>) -> Option<InFlightSend> {
        Some(InFlightSend { flight: self.flight?, bytes: self.bytes as u64, hold })
    }
}

impl Cache {
    /// A cache that keeps its memory pinned; without that it would be a slower way to send each
    /// time.
    fn new(driver: &Driver) -> Result<Cache, Missing> {
        driver.may()?;
        let limit = trial::soft_limit(Limited::LockedBytes).unwrap_or(u64::MAX);
        let PinLimits { endpoint_bytes, process_bytes } = PinLimits::of(limit);
        let share = Share::open(endpoint_bytes, process_bytes).map_err(|why| {
            tracing::debug!(%why, "no memory is kept pinned");
            if why.may_pass() { Missing::Now } else { Missing::ForGood }
        })?;
        let ring = SendRing::new(share.ring().ok_or(Missing::ForGood)?)?;
        driver.watch(&ring)?;
        Ok(Cache { share, ring })
    }
}

/// The first so many bytes, in as many parts as go into one order.
pub(super) fn first(parts: &[Part], mut most: usize) -> SmallVec<[Part; 4]> {
    let mut some = SmallVec::new();
    for part in parts.iter().take(PARTS_MAX) {
        let len = part.len.min(most);
        if len > 0 {
            some.push(Part { ptr: part.ptr, len });
        }
        most -= len;
    }
    some
}
