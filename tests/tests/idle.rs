//! The costs of an endpoint while nothing happens: no processor time, little memory, two
//! descriptors a peer; and how its memory grows with use, but not beyond its budget.

use std::{fs, thread, time::Duration};

use pinfold::{Endpoint, Error, Path, PathSet, PeerId, Progress, Source};
use pinfold_tests::{
    Args, Baseline, Stage,
    baseline::{segments, status_bytes},
    block_on,
    host::resident_pages,
    role::{self, PATIENCE, hear, say},
    stage::{Player, all_end_well},
    stamp,
};
use rustix::event::{PollFd, PollFlags, poll};

pinfold_tests::roles!(idler, waker, hub, leaf);

const PAGE: usize = 4096;

// Processor time.

/// The ways to have nothing to do.
const WAYS: [&str; 6] = ["recv", "accept", "descriptor", "thread", "future", "nothing"];

/// Figures of the threads of a process: processor time in ticks, and how often they went to sleep,
/// which is how often they were awake.
#[derive(Clone, Copy, Debug)]
struct Used {
    ticks: u64,
    sleeps: u64,
}

fn used(pid: u32) -> Used {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("/proc");
    // Behind the name, which is in parentheses, the state is field 3; 14 and 15 are the times.
    let (_, fields) = stat.rsplit_once(')').expect("a name");
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let number = |field: usize| fields[field - 3].parse::<u64>().expect("a number");
    let mut sleeps = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task")).expect("/proc") {
        let status = fs::read_to_string(task.expect("/proc").path().join("status")).expect("/proc");
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        sleeps += line.expect("a count").trim().parse::<u64>().expect("a number");
    }
    Used { ticks: number(14) + number(15), sleeps }
}

#[test]
fn an_idle_endpoint_uses_no_processor_time() {
    let stage = Stage::new(60);
    let mut idlers: Vec<Player> =
        WAYS.iter().map(|way| stage.role("idler").with("way", way).spawn()).collect();
    for idler in &mut idlers {
        idler.expect("ready");
    }
    let mut wakers: Vec<Player> =
        WAYS.iter().map(|way| stage.role("waker").with("way", way).spawn()).collect();
    for player in idlers.iter_mut().chain(&mut wakers) {
        player.expect("is about to do nothing");
    }
    // Until the last of them sleeps.
    thread::sleep(Duration::from_millis(500));
    let all: Vec<u32> = idlers.iter().chain(&wakers).map(Player::pid).collect();
    let before: Vec<Used> = all.iter().map(|pid| used(*pid)).collect();
    thread::sleep(Duration::from_secs(2));
    let after: Vec<Used> = all.iter().map(|pid| used(*pid)).collect();
    let names: Vec<String> = ["idler", "waker"]
        .iter()
        .flat_map(|role| WAYS.iter().map(move |way| format!("{role}, {way}")))
        .collect();
    for ((name, before), after) in names.iter().zip(before).zip(after) {
        assert!(after.ticks - before.ticks <= 1, "{name}: {before:?}, then {after:?}");
        assert!(after.sleeps - before.sleeps <= 2, "{name} wakes up: {before:?}, then {after:?}");
    }
    // The threads slept, but not for ever.
    for waker in &mut wakers {
        waker.say("go on");
    }
    all_end_well(&mut idlers);
    all_end_well(&mut wakers);
}

const WAKE: u64 = 7;
const CHAT: u64 = 1000;

/// Enough messages for both sides to learn that spinning pays.
fn chat(endpoint: &Endpoint, peer: PeerId, begins: bool) {
    for turn in 0..CHAT {
        if begins {
            endpoint.send(peer, turn, b"and?").unwrap();
        }
        endpoint.recv(peer, turn).unwrap();
        if !begins {
            endpoint.send(peer, turn, b"well").unwrap();
        }
    }
}

fn idler(args: &Args) {
    let way = args.text("way");
    let progress = if way == "thread" { Progress::Dedicated } else { Progress::Inline };
    let (endpoint, peer) = role::listen(Endpoint::builder().progress(progress), way);
    chat(&endpoint, peer, false);
    say("is about to do nothing");
    match way {
        "recv" => assert_eq!(&*endpoint.recv(peer, WAKE).unwrap(), b"wake up"),
        "accept" => {
            // No caller comes, but the peer's messages have to be seen to meanwhile.
            match endpoint.accept_timeout(Duration::from_secs(5)) {
                Err(Error::Timeout(_)) => {}
                other => panic!("{other:?}"),
            }
            assert_eq!(&*endpoint.recv(peer, WAKE).unwrap(), b"wake up");
        }
        "descriptor" => {
            let mut request = endpoint.recv_request(peer, WAKE);
            let message = loop {
                if let Some(message) = request.try_wait() {
                    break message;
                }
                if endpoint.arm().unwrap() {
                    poll(&mut [PollFd::new(&endpoint, PollFlags::IN)], None).unwrap();
                }
                endpoint.progress().unwrap();
            };
            assert_eq!(&*message.unwrap(), b"wake up");
        }
        "future" => {
            let message = block_on(endpoint.recv_request(peer, WAKE)).unwrap();
            assert_eq!(&*message, b"wake up");
        }
        // Connected, and the program is elsewhere.
        "thread" | "nothing" => {
            let request = endpoint.recv_request(peer, WAKE);
            hear_or_end();
            assert_eq!(&*request.wait().unwrap(), b"wake up");
        }
        other => panic!("{other}?"),
    }
    endpoint.send(peer, WAKE, b"good morning").unwrap();
    // The peer is not gone before that is read.
    assert!(endpoint.recv(peer, WAKE).unwrap_err().is_peer_gone());
}

/// Waits until the director has nothing more to say.
fn hear_or_end() {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("stdin");
}

fn waker(args: &Args) {
    let (endpoint, peer) = role::connect(Endpoint::builder(), args.text("way"));
    chat(&endpoint, peer, true);
    say("is about to do nothing");
    hear();
    endpoint.send(peer, WAKE, b"wake up").unwrap();
    assert_eq!(&*endpoint.recv(peer, WAKE).unwrap(), b"good morning");
}

// Memory and descriptors.

const PEERS: usize = 96;
/// The most that an idle peer may cost.
const IDLE_PEER_BYTES: usize = 16 << 10;
/// The cost of a peer that has been talked with both ways, without any budget: the page that both
/// sides control each other with, and each way a page of descriptors and one of bytes.
const USED_PEER_BYTES: usize = 5 * PAGE;
const DESCRIPTORS_A_PEER: usize = 2;

#[test]
fn idle_peers_cost_little() {
    grow(64 << 20);
}

#[test]
fn lanes_stay_within_their_budget() {
    grow(1 << 20);
}

#[test]
fn lanes_work_without_any_budget() {
    grow(0);
}

/// Has a hub with this budget meet its leaves, and then send a lot to all of them.
fn grow(budget: usize) {
    let stage = Stage::new(90);
    let mut hub = stage.role("hub").with("budget", budget).spawn();
    hub.expect("ready");
    let mut leaf = stage.role("leaf").spawn();
    hub.end_well();
    leaf.end_well();
}

/// Memory of all segments, bytes, no matter which process touched it.
fn shared_bytes() -> usize {
    segments().iter().map(|segment| PAGE * resident_pages(segment.at, segment.len)).sum()
}

/// A message that fills a lane, if the lane may grow.
const LONG: usize = 400_000;
const ROUNDS: u64 = 3;

fn only_copied() -> PathSet {
    PathSet::only(&[Path::Inline, Path::Eager])
}

/// All the peers that connect, in the order of their labels.
fn hub(args: &Args) {
    let budget: usize = args.number("budget");
    let builder = Endpoint::builder().paths(only_copied()).lane_bytes_max(budget);
    let endpoint = builder.listen("local:hub").build().unwrap();
    let before = Baseline::now();
    let private_before = status_bytes("RssAnon");
    say("ready");
    let peers: Vec<PeerId> =
        (0..PEERS).map(|_| endpoint.accept_timeout(PATIENCE).expect("a leaf")).collect();
    // Every leaf has sent a message, and nothing is under way.
    for peer in &peers {
        assert_eq!(endpoint.recv(*peer, 0).unwrap().len(), 8);
    }
    let shared = shared_bytes();
    let private = status_bytes("RssAnon").saturating_sub(private_before) as usize;
    let each = (shared + private) / PEERS;
    role::note(format_args!("an idle peer: {shared} bytes shared by all {PEERS}, {private} own"));
    assert!(each <= IDLE_PEER_BYTES, "{each} bytes for an idle peer, {shared} shared in all");
    let descriptors = Baseline::now().descriptors() - before.descriptors();
    assert_eq!(descriptors, DESCRIPTORS_A_PEER * PEERS);
    assert_eq!(segments().len(), PEERS);

    for round in 0..ROUNDS {
        let sends: Vec<_> = peers
            .iter()
            .map(|peer| endpoint.send_owned(*peer, round, stamp::bytes(LONG, round)))
            .collect();
        for send in sends {
            assert_eq!(send.wait().0.unwrap().path, Path::Eager);
            let all = shared_bytes();
            assert!(
                all <= PEERS * USED_PEER_BYTES + budget,
                "{all} bytes with {budget} to grow by"
            );
        }
    }
    let grown = shared_bytes() - shared;
    role::note(format_args!("grown by {grown} bytes with a budget of {budget}"));
    if budget >= 1 << 20 {
        assert!(grown > PEERS * PAGE, "nothing has grown, with {budget} bytes to grow by");
    }
    for peer in &peers {
        stamp::check(&endpoint.recv(*peer, 1).unwrap(), 1);
    }
    // A peer that goes gives its part back.
    for peer in &peers {
        endpoint.disconnect(*peer);
    }
    before.returns(PATIENCE);
    assert_eq!(shared_bytes(), 0);
}

/// Many endpoints in one process. Their lanes do not grow, so that the hub's growth alone is seen.
fn leaf(_: &Args) {
    let leaves: Vec<(Endpoint, PeerId)> = (0..PEERS)
        .map(|_| role::connect(Endpoint::builder().paths(only_copied()).lane_bytes_max(0), "hub"))
        .collect();
    for (leaf, hub) in &leaves {
        leaf.send(*hub, 0, b"a leaf  ").unwrap();
    }
    for round in 0..ROUNDS {
        for (leaf, hub) in &leaves {
            let message = leaf.recv(*hub, round).unwrap();
            assert_eq!(message.len(), LONG);
            stamp::check(&message, round);
        }
    }
    for (leaf, hub) in &leaves {
        leaf.send(*hub, 1, &stamp::bytes(9000, 1)).unwrap();
    }
    for (leaf, _) in &leaves {
        assert!(leaf.recv(Source::Any, 2).unwrap_err().is_peer_gone());
    }
}
