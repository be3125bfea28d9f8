//! The order and times of calls to the addresses that a name stands for. No I/O.
//!
//! They are raced (RFC 8305, "Happy Eyeballs Version 2"): IPv6 and IPv4 take turns, and each has
//! 250 ms before the next is tried as well, or until it fails. The first connection that comes
//! about is taken, and the other attempts end. If the caller waits, an address that failed in a way
//! that may pass is tried again, and the name is looked up again, until the time is over or a peer
//! has answered in a way that will not pass.

use std::net::SocketAddr;

#[cfg(test)]
mod tests;

/// Between the beginnings of two attempts, ns: the "Connection Attempt Delay" of RFC 8305, section
/// 5.
const DELAY_NS: u64 = 250_000_000;
/// Until an address that has failed is tried again, ns; then twice as long each time.
const PAUSE_NS: u64 = 20_000_000;
const PAUSE_NS_MAX: u64 = 500_000_000;
/// The longest time of one attempt if there will be others, ns. Its packets go after 0, 1 and 3 s;
/// a new one's go sooner than its next.
const ATTEMPT_NS: u64 = 4_000_000_000;
/// Between two lookups, ns.
const LOOKUP_NS: u64 = 1_000_000_000;
/// Until a lookup for which there is no room now, ns.
const NO_ROOM_NS: u64 = 20_000_000;

/// The next thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Look the name up.
    LookUp,
    /// Begin to connect there.
    Try(SocketAddr),
    /// End the attempt there, which has failed: it has lasted too long.
    End(SocketAddr),
    /// Nothing before this time, but for what comes of attempts and lookups.
    Wait(u64),
    /// Nothing any more.
    Over,
}

/// The kind of failure of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failed {
    /// It may be otherwise later.
    Passing,
    /// A peer has answered, or this side cannot, and waiting changes nothing.
    ForGood,
    /// This address is of no use to this side, whichever peer is there.
    Useless,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// To be tried from then on.
    Due(u64),
    /// Being tried, until then at most.
    Trying(u64),
    Over,
}

#[derive(Clone, Debug)]
struct Place {
    address: SocketAddr,
    state: State,
    pause_ns: u64,
    has_failed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Name {
    /// There is none, or it is known where it leads.
    Known,
    Due(u64),
    Asked,
    /// It leads nowhere.
    Unknown,
}

/// The addresses of one peer that is called.
#[derive(Clone, Debug)]
pub(crate) struct HappyEyeballs {
    until_ns: u64,
    waits: bool,
    places: Vec<Place>,
    /// The earliest time of the next attempt.
    next_ns: u64,
    has_name: bool,
    name: Name,
}

impl HappyEyeballs {
    /// A race of known addresses.
    pub(crate) fn new(
        places: &[SocketAddr],
        waits: bool,
        now_ns: u64,
        until_ns: u64,
    ) -> HappyEyeballs {
        let places = in_turns(places).into_iter().map(|address| Place::new(address, now_ns));
        let (next_ns, places) = (now_ns, places.collect());
        HappyEyeballs { until_ns, waits, places, next_ns, has_name: false, name: Name::Known }
    }

    /// A race of a name that is to be looked up.
    pub(crate) fn by_name(waits: bool, now_ns: u64, until_ns: u64) -> HappyEyeballs {
        let race = HappyEyeballs::new(&[], waits, now_ns, until_ns);
        HappyEyeballs { has_name: true, name: Name::Due(now_ns), ..race }
    }

    /// The time when all is over.
    pub(crate) fn until_ns(&self) -> u64 {
        self.until_ns
    }

    /// The addresses, in the order in which they are tried.
    pub(crate) fn places(&self) -> impl Iterator<Item = SocketAddr> {
        self.places.iter().map(|place| place.address)
    }

    /// The thing to do now. An attempt, or a lookup, has then begun.
    pub(crate) fn next(&mut self, now_ns: u64) -> Next {
        if now_ns >= self.until_ns || self.is_over() {
            return Next::Over;
        }
        let late =
            |place: &&mut Place| matches!(place.state, State::Trying(until) if now_ns >= until);
        if let Some(place) = self.places.iter_mut().find(late) {
            let address = place.address;
            self.failed(now_ns, address, Failed::Passing);
            return Next::End(address);
        }
        if matches!(self.name, Name::Due(at) if now_ns >= at) {
            self.name = Name::Asked;
            return Next::LookUp;
        }
        let due = |place: &&mut Place| matches!(place.state, State::Due(at) if now_ns >= at);
        if now_ns >= self.next_ns
            && let Some(place) = self.places.iter_mut().find(due)
        {
            let lasts = if self.waits { now_ns.saturating_add(ATTEMPT_NS) } else { u64::MAX };
            place.state = State::Trying(lasts);
            self.next_ns = now_ns.saturating_add(DELAY_NS);
            return Next::Try(place.address);
        }
        Next::Wait(self.due_ns())
    }

    /// The time of the next thing to do, if nothing comes of attempts and lookups.
    fn due_ns(&self) -> u64 {
        let places = self.places.iter().filter_map(|place| match place.state {
            State::Due(at) => Some(at.max(self.next_ns)),
            State::Trying(until) => Some(until),
            State::Over => None,
        });
        let name = match self.name {
            Name::Due(at) => Some(at),
            Name::Known | Name::Asked | Name::Unknown => None,
        };
        places.chain(name).chain([self.until_ns]).min().unwrap_or(self.until_ns)
    }

    /// Returns whether nothing can come of it any more, or nothing but what is known already.
    fn is_over(&self) -> bool {
        let asks = matches!(self.name, Name::Asked | Name::Due(_));
        let answered = self.places.iter().any(|place| place.state == State::Over);
        let open = |place: &Place| match place.state {
            State::Trying(_) => true,
            State::Due(_) => !(answered && place.has_failed),
            State::Over => false,
        };
        !self.places.iter().any(open) && (answered || !asks)
    }

    /// The name leads there.
    pub(crate) fn found(&mut self, now_ns: u64, places: &[SocketAddr]) {
        self.name = Name::Known;
        let had = std::mem::take(&mut self.places);
        let place = |address| {
            let known = had.iter().find(|place| place.address == address);
            known.cloned().unwrap_or_else(|| Place::new(address, now_ns))
        };
        self.places = in_turns(places).into_iter().map(place).collect();
        // An attempt under way may still come about.
        let under_way = |place: &Place| matches!(place.state, State::Trying(_));
        let left = |place: &Place| under_way(place) && !places.contains(&place.address);
        self.places.extend(had.into_iter().filter(left));
    }

    /// The lookup has failed. `passes`: a later one may not.
    pub(crate) fn not_found(&mut self, now_ns: u64, passes: bool) {
        let again = self.waits && passes;
        self.name = if again { Name::Due(now_ns.saturating_add(LOOKUP_NS)) } else { Name::Unknown };
    }

    /// The lookup has to be begun later.
    pub(crate) fn no_room(&mut self, now_ns: u64) {
        self.name = Name::Due(now_ns.saturating_add(NO_ROOM_NS));
    }

    /// An attempt has come about, and all others are ended. They may be tried again if that comes
    /// to nothing.
    pub(crate) fn won(&mut self, now_ns: u64, address: SocketAddr) {
        for place in &mut self.places {
            match place.state {
                State::Trying(_) if place.address == address => {
                    place.state = State::Trying(u64::MAX)
                }
                State::Trying(_) => place.state = State::Due(now_ns),
                State::Due(_) | State::Over => {}
            }
        }
    }

    /// An attempt has failed. The next is tried at once.
    pub(crate) fn failed(&mut self, now_ns: u64, address: SocketAddr, how: Failed) {
        self.next_ns = now_ns;
        if how == Failed::Useless {
            self.places.retain(|place| place.address != address);
        }
        let place = self.places.iter_mut().find(|place| place.address == address);
        let Some(place) = place else { return };
        place.has_failed = true;
        if how == Failed::Passing && self.waits {
            place.state = State::Due(now_ns.saturating_add(place.pause_ns));
            place.pause_ns = (2 * place.pause_ns).min(PAUSE_NS_MAX);
        } else {
            place.state = State::Over;
        }
        // By the time that it is tried again it may lead elsewhere.
        if self.waits && self.has_name && self.name == Name::Known {
            self.name = Name::Due(now_ns.saturating_add(LOOKUP_NS));
        }
    }
}

impl Place {
    fn new(address: SocketAddr, now_ns: u64) -> Place {
        Place { address, state: State::Due(now_ns), pause_ns: PAUSE_NS, has_failed: false }
    }
}

/// Each address once, the two families in turns, beginning with that of the first (RFC 8305,
/// section 4).
fn in_turns(addresses: &[SocketAddr]) -> Vec<SocketAddr> {
    let Some(first) = addresses.first() else { return Vec::new() };
    let of = |first_family: bool| {
        let family =
            move |address: &&SocketAddr| (address.is_ipv4() == first.is_ipv4()) == first_family;
        addresses.iter().filter(family).copied()
    };
    let (mut one, mut other) = (of(true), of(false));
    let mut turns: Vec<SocketAddr> = Vec::with_capacity(addresses.len());
    loop {
        let pair = [one.next(), other.next()];
        if pair == [None, None] {
            return turns;
        }
        for address in pair.into_iter().flatten() {
            if !turns.contains(&address) {
                turns.push(address);
            }
        }
    }
}
