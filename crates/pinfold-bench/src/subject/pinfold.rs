//! `pinfold`: this library, through the calls that programs use: tagged messages, blocking,
//! from and into borrowed memory, one endpoint in each process for each choice of paths.
//!
//! If the sender would have to wait until the receiver has a message (`cma`, `mapped`, connections
//! with other hosts), a stream keeps a window of sends in flight, as any program with many messages
//! would; and if messages come straight from a connection, a window of receives.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use pinfold::{
    Arena, Endpoint, Error, Path, PathSet, PeerId, Progress, Receipt, Received, RecvRequest,
    ScopedSend,
};

use super::{Subject, Waiting, many::Many};
use crate::{
    fail::{Fail, Result},
    pair::Pair,
    payload::Messages,
    terms::{Id, Memory, Route, Setting, Side},
};

/// The tag of every message.
const TAG: u64 = 1;
/// The tag of every other message, if tags alternate.
const OTHER_TAG: u64 = 2;
/// Tags from this one on are of messages that never come.
const FOREIGN_TAG: u64 = 1 << 32;
/// Receives of those.
const POSTED: u64 = 64;
/// Sends in flight at once in a stream, at most.
const WINDOW: usize = 32;

/// One side of it.
pub(crate) struct Pinfold {
    endpoint: Endpoint,
    peer: PeerId,
    /// The number of messages of the current run that went by each path.
    sent_by: [u64; Path::ALL.len()],
    /// Messages of this length go straight to a connection, or come straight from one.
    past_the_lane: Option<usize>,
    /// The tags of the next messages out and in.
    tags: [Tags; 2],
    /// Receives of messages that never come.
    posted: Vec<RecvRequest<Vec<u8>>>,
}

/// The tags of messages.
#[derive(Clone, Copy)]
struct Tags {
    next: u64,
    /// The change from one tag to the next.
    change: u64,
}

impl Tags {
    /// All the same.
    const SAME: Tags = Tags { next: TAG, change: 0 };
    /// Two that alternate.
    const ALTERNATE: Tags = Tags { next: TAG, change: TAG ^ OTHER_TAG };

    /// The next one.
    #[inline]
    fn next(&mut self) -> u64 {
        let tag = self.next;
        self.next ^= self.change;
        tag
    }
}

impl Pinfold {
    pub(crate) fn set_up(pair: &mut Pair, id: Id, setting: Setting) -> Result<Pinfold> {
        let route = id.route.unwrap_or(Route::Auto);
        if id.memory == Memory::Arena {
            // An error here means that no arena can be had.
            Arena::new()?;
        }
        // If the two processes met at an address, that connection is the one to measure.
        let usual = (id, setting) == (Id::AUTO, Setting::Alone);
        let met = if usual { pair.take_meeting() } else { None };
        let (endpoint, peer) = met.map_or_else(|| connect_for(pair, id, setting), Ok)?;
        let needed = match route {
            Route::Auto | Route::Eager | Route::Active => Path::Eager,
            Route::WriteAgent | Route::ReadAgent => Path::Eager,
            Route::Inline => Path::Inline,
            Route::Cma | Route::Write | Route::Read => Path::Cma,
            Route::Mapped => Path::Mapped,
            Route::Handoff => Path::Handoff,
            Route::Put | Route::Get | Route::FetchAdd | Route::Contended => Path::Mapped,
        };
        let info = endpoint.peer(peer).ok_or(Fail::Gone)?;
        if !info.paths.contains(needed) {
            let why = info.cma_refused.filter(|_| needed == Path::Cma);
            let why = why.map_or("the pair cannot take it".into(), |why| why.to_string());
            return Err(Fail::Said(why));
        }
        Ok(Pinfold::over(endpoint, peer))
    }

    #[inline]
    fn send_one(&mut self, message: &[u8]) -> Result<Receipt> {
        let receipt = self.endpoint.send(self.peer, self.tags[0].next(), message)?;
        self.sent_by[receipt.path as usize] += 1;
        Ok(receipt)
    }

    #[inline]
    fn recv_one(&mut self, into: &mut [u8]) -> Result<Received> {
        let received = self.endpoint.recv_into(self.peer, self.tags[1].next(), into)?;
        check_len(&received, into)?;
        Ok(received)
    }

    /// Over this connection.
    pub(crate) fn over(endpoint: Endpoint, peer: PeerId) -> Pinfold {
        let sent_by = [0; Path::ALL.len()];
        let (tags, posted) = ([Tags::SAME; 2], Vec::new());
        Pinfold { endpoint, peer, sent_by, past_the_lane: None, tags, posted }
    }
}

/// Checks that a message was as long as expected.
fn check_len(received: &Received, into: &[u8]) -> Result<()> {
    if received.len != into.len() as u64 {
        let (came, expected) = (received.len, into.len());
        return Err(Fail::Said(format!("a message of {came} bytes came, not of {expected}")));
    }
    Ok(())
}

/// The paths an endpoint is made with.
fn paths(route: Route) -> PathSet {
    match route {
        // An endpoint must have some path for long messages; none is sent over this one.
        Route::Inline => PathSet::only(&[Path::Inline, Path::Eager]),
        Route::Eager => PathSet::only(&[Path::Eager]),
        // Paths by which neither side maps the memory or has the kernel copy it.
        Route::WriteAgent | Route::ReadAgent => PathSet::only(&[Path::Inline, Path::Eager]),
        Route::Cma => PathSet::only(&[Path::Cma]),
        // An endpoint must have another one; it is not taken where this one is faster.
        Route::Mapped => PathSet::only(&[Path::Mapped, Path::Cma]),
        _ => PathSet::all(),
    }
}

/// One endpoint of the first process that is connected to many of the second.
pub(crate) fn many(pair: &mut Pair, id: Id) -> Result<Many<Pinfold>> {
    let builder = || Endpoint::builder().label("pinfold perf");
    match pair.side() {
        Side::First => {
            let name = address(id, Setting::Peers);
            let endpoint = builder().listen(&name).build()?;
            pair.tell(&name)?;
            Many::of(|_| {
                let peer = accepted(pair, &endpoint)?;
                // The endpoints connect one after the other, so that both sides have them in the
                // same order.
                pair.tell(&())?;
                Ok(Pinfold::over(endpoint.clone(), peer))
            })
        }
        Side::Second => {
            let name: String = pair.hear()?;
            Many::of(|_| {
                let endpoint = builder().build()?;
                let peer = endpoint.connect(&name)?;
                pair.hear::<()>()?;
                Ok(Pinfold::over(endpoint, peer))
            })
        }
    }
}

/// The address at which an endpoint of the first process listens.
fn address(id: Id, setting: Setting) -> String {
    let route = id.route.unwrap_or(Route::Auto).name();
    let (pid, memory) = (std::process::id(), id.memory.name());
    format!("local:perf-{pid}-{route}-{memory}-{}", setting.name())
}

/// An endpoint of this side, connected to one of the other.
pub(super) fn connect(pair: &mut Pair, id: Id) -> Result<(Endpoint, PeerId)> {
    connect_for(pair, id, Setting::Alone)
}

/// The same with the builder that a setting needs.
fn connect_for(pair: &mut Pair, id: Id, setting: Setting) -> Result<(Endpoint, PeerId)> {
    let route = id.route.unwrap_or(Route::Auto);
    let progress = match setting {
        Setting::Dedicated => Progress::Dedicated,
        _ => Progress::Inline,
    };
    let builder = Endpoint::builder().label("pinfold perf").paths(paths(route)).progress(progress);
    match pair.side() {
        Side::First => {
            let name = address(id, setting);
            let endpoint = builder.listen(&name).build()?;
            pair.tell(&name)?;
            let peer = accepted(pair, &endpoint)?;
            Ok((endpoint, peer))
        }
        Side::Second => {
            let name: String = pair.hear()?;
            let endpoint = builder.build()?;
            let peer = endpoint.connect(&name)?;
            Ok((endpoint, peer))
        }
    }
}

/// The other process, which has been told this endpoint's address.
pub(crate) fn accepted(pair: &mut Pair, endpoint: &Endpoint) -> Result<PeerId> {
    let start = Instant::now();
    loop {
        match endpoint.accept_timeout(Duration::from_millis(100)) {
            Err(Error::Timeout(_)) => {}
            accepted => return Ok(accepted?),
        }
        match pair.watch().check(start) {
            // The other process says why it will not connect.
            Err(Fail::Gone) => pair.hear::<()>()?,
            checked => checked?,
        }
    }
}

impl Subject for Pinfold {
    #[inline]
    fn send(&mut self, message: &[u8]) -> Result<()> {
        self.send_one(message).map(drop)
    }

    #[inline]
    fn recv(&mut self, into: &mut [u8]) -> Result<()> {
        let received = self.endpoint.recv_into(self.peer, self.tags[1].next(), into)?;
        check_len(&received, into)
    }

    fn stream_out(&mut self, messages: &Messages, count: usize) -> Result<()> {
        if count == 0 {
            return Ok(());
        }
        // An earlier stream of this length has told the path already.
        let len = messages.get(0).len();
        let known = self.past_the_lane == Some(len);
        if !known {
            let first = self.send_one(messages.get(0))?;
            self.past_the_lane = first.sent_by().map(|_| len);
        }
        let first = usize::from(!known);
        let waits = [Path::Cma, Path::Mapped].map(Path::name);
        if self.past_the_lane.is_none()
            && !self.path_taken().is_some_and(|path| waits.contains(&path))
        {
            return (1..count).try_for_each(|number| self.send(messages.get(number)));
        }
        let (endpoint, peer, sent_by) = (&self.endpoint, self.peer, &mut self.sent_by);
        endpoint.scope(|scope| {
            let mut under_way: VecDeque<ScopedSend<'_, '_>> = VecDeque::with_capacity(WINDOW);
            for number in first..count {
                if under_way.len() == WINDOW
                    && let Some(oldest) = under_way.pop_front()
                {
                    sent_by[oldest.wait()?.path as usize] += 1;
                }
                under_way.push_back(scope.send(peer, TAG, messages.get(number))?);
            }
            for send in under_way {
                sent_by[send.wait()?.path as usize] += 1;
            }
            Ok(())
        })
    }

    fn stream_in(&mut self, into: &mut Messages, count: usize) -> Result<()> {
        if count == 0 {
            return Ok(());
        }
        let len = into.get_mut(0).len();
        let mut posted = 0;
        if self.past_the_lane != Some(len) {
            let first = self.recv_one(into.get_mut(0))?.receipt;
            let past = first.path == Path::Eager && first.copied_kernel > 0;
            self.past_the_lane = past.then_some(len);
            posted = 1;
        }
        if self.past_the_lane.is_none() {
            return (1..count).try_for_each(|number| self.recv(into.get_mut(number)));
        }
        let (endpoint, peer) = (&self.endpoint, self.peer);
        endpoint.scope(|scope| {
            let mut memories: Vec<_> = into.each_mut().collect();
            // The first message may have come into the first of them.
            memories.rotate_left(posted);
            let mut receives = VecDeque::with_capacity(memories.len());
            for memory in memories.into_iter().take(count - posted) {
                receives.push_back(scope.recv_into(peer, TAG, memory)?);
                posted += 1;
            }
            while let Some(oldest) = receives.pop_front() {
                let (received, memory) = oldest.wait();
                check_len(&received?, memory)?;
                if posted < count {
                    receives.push_back(scope.recv_into(peer, TAG, memory)?);
                    posted += 1;
                }
            }
            Ok(())
        })
    }

    fn exchange(&mut self, out: &Messages, into: &mut Messages, count: usize) -> Result<()> {
        let (endpoint, peer, sent_by) = (&self.endpoint, self.peer, &mut self.sent_by);
        let window = into.count().min(count);
        endpoint.scope(|scope| {
            let mut receives = VecDeque::with_capacity(window);
            for memory in into.each_mut().take(window) {
                receives.push_back(scope.recv_into(peer, TAG, memory)?);
            }
            let mut sends: VecDeque<ScopedSend<'_, '_>> = VecDeque::with_capacity(window);
            let (mut posted, mut sent) = (window, 0);
            // Both directions stay full: an arrival makes room for another message each way.
            while let Some(oldest) = receives.pop_front() {
                while sends.len() < window && sent < count {
                    sends.push_back(scope.send(peer, TAG, out.get(sent))?);
                    sent += 1;
                }
                let (received, memory) = oldest.wait();
                received?;
                if posted < count {
                    receives.push_back(scope.recv_into(peer, TAG, memory)?);
                    posted += 1;
                }
                if let Some(oldest) = sends.pop_front() {
                    sent_by[oldest.wait()?.path as usize] += 1;
                }
            }
            for send in sends {
                sent_by[send.wait()?.path as usize] += 1;
            }
            Ok(())
        })
    }

    fn set_waiting(&mut self, _waiting: Waiting) -> Result<()> {
        // The library spins or sleeps by itself. A new run begins.
        self.sent_by = [0; Path::ALL.len()];
        Ok(())
    }

    fn set_setting(&mut self, setting: Setting) -> Result<()> {
        let alternate = setting == Setting::Tags;
        self.tags = [if alternate { Tags::ALTERNATE } else { Tags::SAME }; 2];
        // Requests that still wait are cancelled.
        self.posted.clear();
        if setting == Setting::Posted {
            let post = |tag| self.endpoint.recv_owned(self.peer, FOREIGN_TAG + tag, vec![0; 8]);
            self.posted.extend((0..POSTED).map(post));
        }
        Ok(())
    }

    fn path_taken(&self) -> Option<&'static str> {
        // Now and then the library tries the other path: the usual one counts.
        let usual = Path::ALL.into_iter().max_by_key(|&path| self.sent_by[path as usize])?;
        (self.sent_by[usual as usize] > 0).then(|| usual.name())
    }
}
