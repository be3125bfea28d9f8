//! Messages out of memory and into memory that is unmapped, replaced, moved, discarded and split
//! between one message and the next: each has its sender's last stamp, by every path.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
};

use pinfold::Path;
use pinfold_tests::{
    Args, Stage, figures,
    ground::places,
    role,
    skip::{again, is_long},
    stamp::Random,
};

pinfold_tests::roles!(sender, receiver);

const PLACES: usize = 40;
/// Places that no message lies in; other threads change them meanwhile.
const OTHERS: usize = 8;

fn rounds() -> u64 {
    match (is_long(), figures::are_gathered()) {
        (true, _) => 300_000,
        (false, true) => 5000,
        (false, false) => again(2000),
    }
}

#[test]
fn no_message_has_what_was_there_before() {
    for paths in ["inline,eager", "inline,eager,cma", "inline,eager,cma,mapped,handoff"] {
        for dedicated in [false, true] {
            let stage = Stage::new(if is_long() { 1200 } else { 120 });
            let cast = |name| {
                let role = stage.role(name).with("paths", paths);
                if dedicated { role.with("dedicated", 1) } else { role }
            };
            stage.play([cast("sender"), cast("receiver")]);
        }
    }
}

/// The choice that both sides make alike, round by round: a place, and whether its part is one for
/// a message.
fn choose(common: &mut Random) -> usize {
    OTHERS + common.below((PLACES - OTHERS) as u64) as usize
}

/// Runs `what` while another thread changes memory.
fn beside(places: &[std::sync::Mutex<pinfold_tests::ground::Place>], what: impl FnOnce()) {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Random::new(11);
            while !over.load(Ordering::Relaxed) {
                let at = random.below(OTHERS as u64) as usize;
                places[at].lock().unwrap().change(&mut random);
            }
        });
        what();
        over.store(true, Ordering::Relaxed);
    });
}

fn sender(args: &Args) {
    let (endpoint, peer) = role::listen(args.builder(), "remapped");
    let places = places(PLACES);
    let (mut common, mut own) = (Random::new(figures::seed(1)), Random::new(figures::seed(2)));
    beside(&places, || {
        for stamp in 1..=rounds() {
            let mut place = places[choose(&mut common)].lock().unwrap();
            let part = place.any(&mut common);
            place.change(&mut own);
            place.stamp(stamp);
            endpoint.send(peer, stamp, place.bytes(&part)).unwrap();
        }
    });
    assert!(endpoint.recv(peer, 0).unwrap_err().is_peer_gone());
}

fn receiver(args: &Args) {
    let (endpoint, peer) = role::connect(args.builder(), "remapped");
    let places = places(PLACES);
    let (mut common, mut own) = (Random::new(figures::seed(1)), Random::new(figures::seed(3)));
    let mut by = BTreeMap::<Path, u64>::new();
    let mut wrong = Vec::new();
    beside(&places, || {
        for stamp in 1..=rounds() {
            let mut place = places[choose(&mut common)].lock().unwrap();
            let part = place.any(&mut common);
            place.change(&mut own);
            place.expect(stamp);
            let (right, receipt) = if stamp % 5 == 0 {
                let message = endpoint.recv(peer, stamp).unwrap();
                (place.is_right(&part, &message), message.receipt())
            } else {
                let received = endpoint.recv_into(peer, stamp, place.bytes(&part)).unwrap();
                let bytes = place.bytes(&part).to_vec();
                (place.is_right(&part, &bytes), received.receipt)
            };
            *by.entry(receipt.path).or_default() += 1;
            if !right {
                wrong.push((stamp, receipt));
            }
        }
    });
    for (path, count) in &by {
        let wrong = wrong.iter().filter(|(_, receipt)| receipt.path == *path).count();
        let way = format!("message, {path}");
        figures::add("transfers", &[("way", &way), ("count", count), ("wrong", &wrong)]);
    }
    assert!(wrong.is_empty(), "wrong: {wrong:?}");
    let allowed = endpoint.peer(peer).expect("connected").cma_refused.is_none();
    assert!(!by.contains_key(&Path::Cma) || allowed);
}
