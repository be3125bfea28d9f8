//! Peers that greet like any other and then write bytes of their own into all they share, forge
//! descriptors, garble the socket, or fall silent. Their victim neither crashes nor hangs nor
//! leaks, and its traffic with an honest peer meanwhile stays intact.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use pinfold::{Arena, Endpoint, Error, Path, Progress, Replier, SendRequest, Source, TagMatch};
use pinfold_tests::{
    Args, Baseline, Stage,
    baseline::{arenas, status_bytes},
    figures,
    role::{self, hear, say},
    skip::is_long,
    stage::Player,
    stamp::{self, Random, mix},
};

mod alone;
mod attackers;
mod cancels;
mod donations;
mod freezes;
mod fuse;
mod gaps;
mod holes;
mod hollow;
mod liar;
mod loops;
mod parts;
mod put_places;
mod regions;
mod spaces;
mod toggles;
mod violations;
mod walls;

use self::{
    alone::computer,
    attackers::{
        CONTROL, KIND, LINE, RINGS, SEQ, SLOT, SLOTS, attacker, consumed, is_cut_off, newest,
        newest_in, odd_number, sockets, spin, stranger,
    },
    cancels::{bored, canceller},
    donations::{flooded, flooder},
    freezes::{beset, caller, friend, hoarder, lingerer},
    gaps::Gaps,
    holes::{beggar, poor},
    hollow::{boaster, gullible},
    loops::{looped, looper},
    parts::{lists, picks},
    put_places::{giver, judge, liar, taker},
    regions::{asked, asker, false_owner, guesser},
    spaces::{exploiter, exposer},
    toggles::{besieged, toggler},
    violations::{accuser, author, patient, reporter},
    walls::{walled, warden},
};

pinfold_tests::roles!(
    victim,
    honest,
    attacker,
    stranger,
    flooded,
    flooder,
    poor,
    beggar,
    giver,
    taker,
    judge,
    liar,
    asker,
    false_owner,
    asked,
    guesser,
    exposer,
    exploiter,
    picks,
    lists,
    bored,
    canceller,
    looped,
    looper,
    computer,
    beset,
    friend,
    hoarder,
    lingerer,
    caller,
    accuser,
    author,
    patient,
    reporter,
    besieged,
    toggler,
    warden,
    walled,
    boaster,
    gullible,
);

/// The tags of attackers have this bit; an honest peer's messages are never matched with theirs.
const HOSTILE: u64 = 1 << 63;
const BYE: u64 = 1 << 62;

/// Handlers of the victim's: a first that answers, a second that asks back, a third that answers
/// later.
const ECHO: u32 = 1;
const CALL_BACK: u32 = 2;
const LATER: u32 = 3;

/// How long an attack lasts.
const ATTACK: Duration = Duration::from_millis(120);
/// How long an honest answer may take.
const PATIENCE: Duration = Duration::from_secs(20);

const ATTACKS: [&str; 13] = [
    "anywhere",
    "control",
    "rings",
    "headers",
    "forge",
    "claims",
    "closed",
    "socket",
    "silence",
    "answers",
    "arenas",
    "exported extents",
    "rooms",
];

fn play(attacks: &[&str], how: &str) {
    let stage = Stage::new(120);
    let mut victim = stage.role("victim").with("progress", how).spawn();
    victim.expect("ready");
    let mut honest = stage.role("honest").spawn();
    honest.expect("ready");
    rest(&mut honest, &stage);
    let rounds = if is_long() { 60 } else { 8 };
    for round in 0..rounds {
        for attack in attacks {
            honest.say(attack);
            let seed = figures::seed(mix(round)) >> 32;
            let mut attacker =
                stage.role("attacker").with("how", attack).with("seed", seed).spawn();
            // Some attackers are killed in the act, some kill themselves, and some crash when their
            // own endpoint is cut off and lets the memory go; the others live in each case.
            attacker.expect("attacking");
            if round % 2 == 0 {
                thread::sleep(ATTACK / 2);
                attacker.kill();
            }
            attacker.end();
        }
    }
    honest.say("strangers");
    let mut stranger = stage.role("stranger").spawn();
    stranger.end_well();
    honest.say("end");
    honest.end_well();
    victim.end_well();
}

/// For comparison, where figures are gathered: rounds for as long, without an attack.
fn rest(honest: &mut Player, stage: &Stage) {
    if !figures::are_gathered() {
        return;
    }
    for others in ["nobody", "nobody, beside 1 that computes"] {
        honest.say(others);
        for _ in 0..8 {
            let mut computer = stage.role("computer").spawn();
            if others == "nobody" {
                computer.kill();
            }
            thread::sleep(ATTACK);
        }
    }
}

#[test]
fn scribblers() {
    play(&ATTACKS[..4], "inline");
}

#[test]
fn forgers() {
    play(&ATTACKS[4..10], "inline");
}

#[test]
fn givers_of_bad_arenas() {
    play(&ATTACKS[10..], "inline");
}

#[test]
fn all_of_them_beside_a_thread_that_drives() {
    play(&ATTACKS, "dedicated");
}

// The victim.

fn victim(args: &Args) {
    let progress = match args.text("progress") {
        "dedicated" => Progress::Dedicated,
        _ => Progress::Inline,
    };
    let (tell, later) = mpsc::channel();
    let builder = Endpoint::builder()
        .label("victim")
        .progress(progress)
        .active_bytes_max(4 << 20)
        .handle(ECHO, |active| {
            // A peer that is gone wants no answer.
            let _ = active.reply(active.payload());
        })
        .handle(CALL_BACK, |active| {
            let _ = active.call(active.peer(), ECHO, active.payload());
            drop(active.endpoint().request(active.peer(), ECHO, active.payload()));
            let _ = active.reply(b"");
        })
        .handle(LATER, move |active| drop(tell.send(active.reply_later())));
    let (endpoint, honest) = role::listen(builder, "victim");
    let before = Baseline::now();
    let memory_before = status_bytes("VmRSS");
    role::go(&endpoint, honest);
    let mut from_honest = endpoint.recv_request(honest, TagMatch::masked(0, !HOSTILE));
    let hostile = TagMatch::masked(HOSTILE, !HOSTILE);
    let mut from_hostile = endpoint.recv_request(Source::Any, hostile);
    let mut to_honest = VecDeque::new();
    let mut to_hostile = VecDeque::<SendRequest<Vec<u8>>>::new();
    let mut ends = BTreeMap::<String, u32>::new();
    let (mut came, mut refused, mut met) = (0u64, 0u64, 0u64);
    // A request that only the honest peer may answer.
    let ask = |turn| endpoint.request(honest, ECHO, &stamp::bytes(40, turn));
    let mut asked = (0, ask(0));
    for turn in 0u64.. {
        if let Some(answer) = asked.1.try_wait() {
            let answer = answer.expect("the honest peer answers");
            assert_eq!(answer.peer(), honest);
            stamp::check(&answer, asked.0);
            asked = (turn, ask(turn));
        }
        if let Some(result) = from_honest.try_wait() {
            let message = result.expect("the honest peer is there");
            stamp::check(&message, message.tag());
            let tag = message.tag();
            to_honest.push_back(endpoint.send_owned(honest, tag, message.into_vec()));
            if tag == BYE {
                break;
            }
            from_honest = endpoint.recv_request(honest, TagMatch::masked(0, !HOSTILE));
        }
        while let Some(done) = to_honest.front_mut().and_then(|request| request.try_wait()) {
            done.0.expect("the honest peer listens");
            to_honest.pop_front();
        }
        if let Some(result) = from_hostile.try_wait() {
            match result {
                // A message of any kind is there as a whole.
                Ok(message) => came += u64::from(parity(&message) != 0),
                Err(_) => refused += 1,
            }
            from_hostile = endpoint.recv_request(Source::Any, hostile);
        } else if turn % 4096 == 0 {
            // A message that will never be whole is given up.
            from_hostile = endpoint.recv_request(Source::Any, hostile);
        }
        match endpoint.accept_timeout(Duration::ZERO) {
            Ok(newcomer) => {
                met += 1;
                // The use that it makes of these is its own business.
                for len in [40, 3000, 150_000, 900_000] {
                    let bytes = stamp::bytes(len, 1);
                    to_hostile.push_back(endpoint.send_owned(newcomer, HOSTILE, bytes));
                }
            }
            Err(Error::Timeout(_)) => {}
            Err(error) => panic!("{error}"),
        }
        if turn % 64 == 0 {
            later.try_iter().flatten().for_each(|answer: Replier| drop(answer.reply(b"late")));
        }
        to_hostile.retain_mut(|request| match request.try_wait() {
            Some((Err(Error::PeerGone { how, .. }), _)) => {
                *ends.entry(how.to_string()).or_insert(0) += 1;
                false
            }
            Some(_) => false,
            None => true,
        });
        while to_hostile.len() > 32 {
            to_hostile.pop_front();
        }
    }
    drop((from_hostile, to_hostile));
    for request in to_honest {
        request.wait().0.expect("the honest peer listens");
    }
    role::note(format_args!(
        "met {met} attackers, {came} of their messages came, {refused} did not; {} were handled",
        endpoint.counters().handled
    ));
    for (end, count) in &ends {
        role::note(format_args!("{count} sends ended: {end}"));
    }
    assert!(met > 0 && came > 0, "met {met}, {came} came");
    let caught = ends.keys().filter(|end| end.contains("broke the protocol")).count();
    // Most attackers end before they are found out, on a busy machine nearly all.
    assert!(caught > 0 || refused > 0, "nothing was found out: {ends:?}");
    // A dead attacker is gone without a trace.
    let end = Instant::now() + PATIENCE;
    while endpoint.peers().len() > 1 || !arenas().is_empty() {
        endpoint.progress().unwrap();
        assert!(Instant::now() < end, "{:?} {:?} are still there", endpoint.peers(), arenas());
    }
    before.returns(Duration::from_secs(2));
    let grown = status_bytes("VmRSS").saturating_sub(memory_before);
    assert!(grown < 200 << 20, "{grown} bytes of memory are left behind");
    // The honest peer goes last.
    endpoint.send(honest, BYE, b"").unwrap();
    assert!(endpoint.recv(honest, HOSTILE).unwrap_err().is_peer_gone());
}

/// The parity of all bytes, or of one byte a page where a gap would be this program's own work.
fn parity(bytes: &[u8]) -> u8 {
    let step = if figures::are_gathered() { 4096 } else { 1 };
    bytes.iter().step_by(step).fold(1, |a, b| a ^ b)
}

/// Sends all kinds of messages and wants them back, until the director says so.
fn honest(_: &Args) {
    let builder = Endpoint::builder().label("honest").handle(ECHO, |active| {
        active.reply(active.payload()).expect("the victim is there");
    });
    let (endpoint, victim) = role::connect(builder, "victim");
    role::await_go(&endpoint, victim);
    say("ready");
    let (tell, told) = std::sync::mpsc::channel();
    thread::spawn(move || while tell.send(hear()).is_ok() {});
    let mut random = Random::new(figures::seed(5));
    let mut count = 0u64;
    let mut mapped = 0u64;
    let mut gaps = Gaps::with(&endpoint, victim);
    gaps.begin("nobody");
    let arena = Arena::new().expect("an arena");
    let mut exchange = |tag: u64, len: usize| {
        let mut bytes = arena.alloc(len).expect("memory");
        stamp::fill(&mut bytes, tag);
        let request = endpoint.send_owned(victim, tag, bytes);
        let back = endpoint.recv_timeout(victim, tag, PATIENCE).expect("the victim answers");
        assert_eq!(back.len(), len);
        stamp::check(&back, tag);
        let asked = endpoint.request(victim, ECHO, &stamp::bytes(len, !tag)).wait();
        let answer = asked.expect("the victim answers");
        assert_eq!(answer.len(), len);
        stamp::check(&answer, !tag);
        let receipt = request.wait().0.expect("the victim listens");
        mapped += u64::from(receipt.path == Path::Mapped);
        count += 1;
    };
    loop {
        match told.try_recv().as_deref() {
            Ok("end") => break,
            Ok(attack) => gaps.begin(attack),
            Err(_) => {}
        }
        let len = random.pick(&[0, 8, 8, 56, 57, 57, 1000, 1000, 9000, 9000, 70_000, 300_000]);
        exchange(random.next() >> 2, len);
        gaps.end_of_round();
    }
    gaps.tell();
    // The victim lets go of the arena, too.
    drop(arena);
    endpoint.send(victim, BYE, &stamp::bytes(100, BYE)).expect("the victim listens");
    stamp::check(&endpoint.recv_timeout(victim, BYE, PATIENCE).expect("it answers"), BYE);
    endpoint.recv_timeout(victim, BYE, PATIENCE).expect("the victim says goodbye");
    role::note(format_args!("{count} honest exchanges, {mapped} messages by mapping"));
}
