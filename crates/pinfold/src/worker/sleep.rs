//! How the engine stops polling without missing anything, and starts again.
//!
//! Lanes are *hot*, polled at every turn, or *cold*: their peers ring for every first message. To
//! go to sleep, the engine asks the peers of all hot lanes to ring as well. A ring that is missed
//! then is made up for by a look soon after ([`sleep`](crate::policy::sleep)), until a barrier
//! makes sure that none can be; see [`doorbell`](crate::transport::shm::doorbell).

use std::time::Duration;

use pinfold_sys::cpu::clock;

use super::{
    answers, connections::events, engine::Engine, gauges, peer::Peer, polled, table::PeerTable,
    transport_progress, transport_sends,
};
use crate::{
    failpoint::{self, Point},
    policy::sleep::Step,
    status::{Tally, state},
    sync,
};

/// Hot lanes that are never cooled down while awake.
const HOT_MAX: usize = 16;
/// Empty polls after which a lane may be cooled down.
const IDLE_POLLS: u32 = 1000;
/// Time after which a store of before is seen, ns: a processor that has a line to itself writes it
/// at once, and one that has to fetch it takes a fifth of this.
const SETTLE_NS: u64 = 1_000;
/// The same while processors are short: then the peer seldom runs meanwhile.
const SETTLE_SHORT_NS: u64 = 300;

/// Cools down the longest idle of many hot lanes: their peers ring from now on, so that polling
/// stays cheap.
pub(crate) fn cool_down(engine: &mut Engine, now_ns: u64) {
    if engine.hot.len() <= HOT_MAX || engine.asleep || !engine.rest.may_have_barrier(now_ns) {
        return;
    }
    let mut cooled = Vec::new();
    for &index in &engine.hot {
        if let Some(peer) = engine.peers.at_mut(index)
            && peer.idle_polls > IDLE_POLLS
        {
            // Messages still to go to a distant peer are sent; its events tell of the result.
            let _ = transport_progress::turn(&mut engine.core, peer, true);
            peer.rx.ask();
            peer.hot = false;
            if peer.is_turned() {
                engine.poll_set.end();
            }
            cooled.push(index);
        }
    }
    if cooled.is_empty() {
        return;
    }
    barrier(engine, now_ns);
    engine.hot.retain(|index| !cooled.contains(index));
    for index in cooled {
        if engine.peers.at_mut(index).is_some_and(|peer| peer.rx.head().is_some()) {
            polled::heat(engine, index);
        }
    }
}

/// Has every peer ring for what this endpoint waits for. `false`: there is work already, do not
/// sleep.
pub(crate) fn ask_all(engine: &mut Engine) -> bool {
    if !engine.core.gets.is_empty() && engine.core.has_get_work()
        || !engine.core.lent.is_empty()
        || engine.core.has_put_work()
        || engine.core.active.has_chores()
        || !engine.newcomers.is_empty() && engine.armed
    {
        return false;
    }
    let (mut came_from_tcp, mut to_poll) =
        (transport_sends::land(&mut engine.peers, &mut engine.core), Vec::new());
    for &index in &engine.hot {
        if let Some(peer) = engine.peers.at_mut(index) {
            if peer.rx.unpublished() > 0 {
                answers::publish(&mut engine.core, peer);
            }
            peer.rx.ask();
            // The connection sends what it still has to. Its end is found again by the next
            // poll.
            came_from_tcp |= transport_progress::turn(&mut engine.core, peer, true).unwrap_or(true);
        }
    }
    // No peer rings for those left to the epoll, but they are to hear what the others do.
    for index in engine.poll_set.take_untold() {
        if let Some(peer) = engine.peers.at_mut(index)
            && !peer.hot
            && peer.is_turned()
            && transport_progress::turn(&mut engine.core, peer, true).unwrap_or(true)
        {
            came_from_tcp = true;
            to_poll.push(index);
        }
    }
    for at in 0..engine.core.blocked.len() {
        let index = engine.core.blocked[at];
        if let Some(peer) = engine.peers.at_mut(index) {
            peer.tx.ask_for_room();
            peer.room_asked = true;
            if peer.is_turned()
                && transport_progress::turn(&mut engine.core, peer, true).unwrap_or(true)
            {
                came_from_tcp = true;
                to_poll.push(index);
            }
        }
    }
    for index in to_poll {
        polled::heat(engine, index);
    }
    if engine.core.awaits_returns > 0 {
        ask_for_returns(&mut engine.peers);
    }
    failpoint::hit(Point::BellAsked);
    if came_from_tcp || settles_and_brings(engine) {
        unask_all(engine);
        return false;
    }
    true
}

/// Waits for stores to arrive that peers made without a look at their bells. Returns whether
/// something has come.
fn settles_and_brings(engine: &mut Engine) -> bool {
    sync::fence(sync::Ordering::SeqCst);
    let settle_ns = if engine.core.is_short { SETTLE_SHORT_NS } else { SETTLE_NS };
    let began = clock::ticks();
    loop {
        let is_settled = clock::ns_of(clock::ticks().wrapping_sub(began)) >= settle_ns;
        if has_come(engine) {
            return true;
        }
        if is_settled {
            return false;
        }
        clock::relax();
    }
}

/// Returns whether there is something for which a peer would have to ring. Room that came is
/// found once.
pub(crate) fn has_come(engine: &mut Engine) -> bool {
    let came = |&index| engine.peers.at_mut(index).is_some_and(|peer| peer.rx.head().is_some());
    if engine.hot.iter().any(came) {
        return true;
    }
    for &index in &engine.core.blocked {
        let Some(peer) = engine.peers.at_mut(index) else { continue };
        let released = peer.released;
        peer.refresh_credit();
        // A cursor gone astray is found out by the next push.
        let room = peer.tx.room_came().unwrap_or(true);
        if room || peer.released != released || peer.has_returns() {
            return true;
        }
    }
    let gave = engine.core.awaits_returns > 0;
    // One peer's turn takes note of the kernel's notices for all.
    gave && given(&engine.peers).any(Peer::has_returns) || engine.core.driver.has_news()
}

/// The peers that have been given memory.
fn given(peers: &PeerTable) -> impl Iterator<Item = &Peer> {
    peers.iter().filter(|peer| !peer.given.is_empty())
}

/// Has those peers ring when they give it back.
#[cold]
fn ask_for_returns(peers: &mut PeerTable) {
    given(peers).for_each(|peer| peer.tx.ask_for_room());
}

/// Returns whether the endpoint, whose peers have been [asked](ask_all) and have
/// brought nothing, sleeps on, and for how long at most (`None`: until something happens).
pub(crate) fn sleeps_for(engine: &mut Engine) -> Option<Option<Duration>> {
    let now_ns = clock::now_ns();
    match engine.rest.next(now_ns) {
        Step::Brief(brief) => Some(Some(brief)),
        Step::Barrier => {
            barrier(engine, now_ns);
            (!has_come(engine)).then_some(None)
        }
    }
}

/// The time at which a peer last rang, if it was in this interval. Clocks of other containers
/// may differ, and the time in a peer's memory may be any.
pub(crate) fn rung_ns(engine: &mut Engine, from_ns: u64, to_ns: u64) -> Option<u64> {
    let peers =
        engine.hot.iter().filter_map(|&index| Some(engine.peers.at_mut(index)?.rx.rung_ns()));
    peers.filter(|rung| (from_ns..=to_ns).contains(rung)).max()
}

/// From here on no ring is missed that was asked for before.
#[cold]
fn barrier(engine: &mut Engine, now_ns: u64) {
    sync::heavy_fence();
    engine.rest.had_barrier(now_ns);
    gauges::update_gauges(engine);
}

/// The time at which something is due that no peer rings for, by the clock.
pub(crate) fn due_ns(engine: &mut Engine) -> Option<u64> {
    let parked = engine.core.registry.deferred_free.pause();
    let parked = parked.map(|pause| clock::now_ns() + pause.as_nanos() as u64);
    transport_progress::poll_ns(&mut engine.core, &mut engine.connections, clock::now_ns);
    engine.connections.deadline_ns().into_iter().chain(parked).min()
}

/// Polls again: peers need not ring.
pub(crate) fn unask_all(engine: &mut Engine) {
    for &index in &engine.hot {
        if let Some(peer) = engine.peers.at_mut(index) {
            peer.rx.unask();
        }
    }
}

/// The caller no longer waits on the descriptor.
#[cold]
pub(crate) fn disarm(engine: &mut Engine) {
    engine.armed = false;
    engine.core.status.state.set(state::AWAKE);
    unask_all(engine);
    events::handle_events(engine);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::{
        thread,
        time::{Duration, Instant},
    };

    use pinfold_sys::trial;

    use crate::{Builder, Endpoint, PeerId, SendMode, Source, TagMatch};

    /// Two endpoints on a connection, and the identifier of each at the other.
    fn pair(by: impl Fn() -> Builder) -> ((Endpoint, PeerId), (Endpoint, PeerId)) {
        let by = || by().local_shortcut(false);
        let one = by().listen("tcp:127.0.0.1:0").build().unwrap();
        let two = by().build().unwrap();
        let address = one.listens_at().unwrap();
        let (to_two, to_one) = thread::scope(|scope| {
            let to_two = scope.spawn(|| one.accept().unwrap());
            let to_one = two.connect(&address).unwrap();
            (to_two.join().unwrap(), to_one)
        });
        ((one, to_two), (two, to_one))
    }

    /// Has an endpoint's operations end by this thread while, as far as the endpoint knows, another
    /// sleeps for all: that thread hears of the ends.
    fn end_all_beside_a_leader(endpoint: &Endpoint, mut meanwhile: impl FnMut()) {
        let set = |asleep| {
            let mut engine = endpoint.shared().enter().unwrap();
            engine.followers.pretend(asleep);
            (engine.asleep, engine.kick) = (asleep, false);
        };
        set(true);
        let end = Instant::now() + Duration::from_secs(10);
        loop {
            endpoint.progress().unwrap();
            let engine = endpoint.shared().enter().unwrap();
            let is_woken = engine.connections.kick.clear().unwrap();
            if engine.core.ops.open().next().is_none() {
                assert!(is_woken);
                break;
            }
            drop(engine);
            assert!(Instant::now() < end);
            meanwhile();
        }
        set(false);
    }

    /// Other threads may end a sleeping thread's own operation, and nothing else tells of that any
    /// more.
    #[test]
    fn who_sleeps_hears_of_what_others_took_from_a_connection() {
        let ((one, to_two), (two, to_one)) = pair(Endpoint::builder);
        let receive = one.recv_owned(to_two, 1, vec![0; 5]);
        two.send(to_one, 1, b"hello").unwrap();
        end_all_beside_a_leader(&one, || ());
        let (done, bytes) = receive.wait();
        assert_eq!((done.unwrap().len, &bytes), (5, &b"hello".to_vec()));
    }

    fn until(mut done: impl FnMut() -> bool) {
        let end = Instant::now() + Duration::from_secs(10);
        while !done() {
            assert!(Instant::now() < end);
        }
    }

    /// Of many connections, those that bring nothing are not looked at, and messages that come on
    /// them are found nevertheless; and before this side sleeps, it reports the messages it has
    /// got.
    #[test]
    fn connections_that_bring_nothing_are_left_alone() {
        let ((one, _), (two, to_one)) = pair(Endpoint::builder);
        let mut to_one = vec![to_one];
        let address = one.listens_at().unwrap();
        for _ in 0..6 {
            thread::scope(|scope| {
                scope.spawn(|| one.accept().unwrap());
                to_one.push(two.connect(&address).unwrap());
            });
        }
        let looked_at = |endpoint: &Endpoint| endpoint.shared().enter().unwrap().hot.len();
        let leave_alone = |endpoint: &Endpoint| {
            until(|| {
                endpoint.progress().unwrap();
                looked_at(endpoint) <= 2
            });
        };
        leave_alone(&one);
        for round in 0..3 {
            for &peer in &to_one {
                two.send(peer, round, b"hello").unwrap();
                let message = one.recv(Source::Any, TagMatch::any()).unwrap();
                assert_eq!((message.tag(), &*message), (round, &b"hello"[..]));
            }
            leave_alone(&one);
        }
        let receives: Vec<_> =
            to_one.iter().map(|_| one.recv_owned(Source::Any, 3, vec![0; 5])).collect();
        for &peer in &to_one {
            two.send(peer, 3, b"hello").unwrap();
        }
        until(|| {
            one.progress().unwrap();
            one.shared().enter().unwrap().core.ops.open().next().is_none()
        });
        leave_alone(&one);
        drop(receives);
        let is_told = || {
            two.progress().unwrap();
            let engine = two.shared().enter().unwrap();
            engine.peers.iter().all(|peer| peer.transport.is_flushed())
        };
        assert!(!is_told());
        super::ask_all(&mut one.shared().enter().unwrap());
        until(is_told);
    }

    #[test]
    fn who_sleeps_hears_of_sends_that_others_saw_end() {
        if let Err(error) = trial::io_uring() {
            return eprintln!("SKIPPED: no io_uring: {error}");
        }
        // Nothing but the kernel's notice tells the end of such a send.
        let by = || {
            let sending = Endpoint::builder().send_mode(SendMode::PerSend).io_uring(true);
            sending.reconnect_timeout(Duration::ZERO)
        };
        let ((one, to_two), (two, to_one)) = pair(by);
        let mut receive = two.recv_owned(to_one, 1, vec![0; 6 << 20]);
        // More than the kernel takes before the other side reads.
        let send = one.send_owned(to_two, 1, vec![7; 6 << 20]);
        let mut got = None;
        end_all_beside_a_leader(&one, || got = got.take().or_else(|| receive.try_wait()));
        let (done, _) = send.wait();
        done.unwrap();
        let (done, bytes) = got.unwrap_or_else(|| receive.wait());
        done.unwrap();
        assert!(bytes == [7; 6 << 20]);
    }
}
