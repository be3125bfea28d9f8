//! Receivers that cannot map an arena: the message comes by another path, both receipts say why,
//! and once it is possible the next one comes by mapping. Receivers that have room for one arena
//! map arenas in turn.

use pinfold::{Arena, Endpoint, Path, Refusal};
use pinfold_tests::{
    Args, Stage,
    baseline::{arenas, status_bytes},
    role::{self, hear, say},
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{MIB, filled, offer, take};

/// Plays with a receiver that is limited by `how`; `paths` are those of the pair.
fn play(how: &str, paths: &str) {
    let stage = Stage::new(60);
    let cast = |role: &str| stage.role(role).with("how", how).with("paths", paths);
    let mut narrow = cast("narrow").spawn();
    narrow.expect("ready");
    let mut offering = cast("offering").spawn();
    for step in ["is poor", "is rich"] {
        offering.expect("has offered");
        narrow.say("go on");
        narrow.expect(step);
        offering.say("go on");
    }
    offering.end_well();
    narrow.end_well();
}

#[test]
fn without_descriptors() {
    play("descriptors", "inline,eager,cma,mapped");
}

#[test]
fn without_descriptors_and_cma() {
    play("descriptors", "inline,eager,mapped");
}

#[test]
fn without_address_space() {
    play("space", "inline,eager,cma,mapped");
}

#[test]
fn without_address_space_and_cma() {
    play("space", "inline,eager,mapped");
}

#[test]
fn where_the_budget_has_room_for_one() {
    play("budget", "inline,eager,cma,mapped");
}

#[test]
fn where_the_budget_has_room_for_one_without_cma() {
    play("budget", "inline,eager,mapped");
}

/// An extent for small buffers.
const EXTENT: usize = 64 * MIB;
const LENS: [usize; 4] = [9000, 200_000, 3 * MIB, 300];

pub fn offering(args: &Args) {
    let (endpoint, peer) = role::connect(args.builder(), "narrow");
    let (known, new) = (Arena::new().unwrap(), Arena::new().unwrap());
    let mut seed = 0;
    let mut offers = |arena: &Arena, len: usize| {
        seed += 1;
        offer(&endpoint, peer, &filled(arena, len, seed), seed)
    };
    assert!(offers(&known, 50_000));
    say("has offered");
    hear();
    // With room for one, each arena pushes the other out, and comes back.
    let has = [true, args.text("how") != "descriptors"];
    for len in LENS {
        for (at, arena) in [&known, &new, &known].into_iter().enumerate() {
            assert_eq!(offers(arena, len), has[at % 2], "{len} bytes, arena {at}");
        }
    }
    say("has offered");
    hear();
    assert!(offers(&new, 100_000) && offers(&known, 100_000));
    // Messages that are left to the library go that way again, too.
    let buf = filled(&known, 4 * MIB, 99);
    let mut paths = (0..500).map(|_| endpoint.send(peer, 99, &buf).unwrap().path);
    assert!(paths.any(|path| path == Path::Mapped));
    endpoint.send(peer, 98, b"").unwrap();
}

pub fn narrow(args: &Args) {
    let how = args.text("how");
    let budget = if how == "budget" { EXTENT + EXTENT / 2 } else { 1 << 40 };
    let (endpoint, peer) = role::listen(args.builder().mapped_bytes_max(budget), "narrow");
    let mut seed = 0;
    let mut takes = |len: usize, is_rich: bool| {
        seed += 1;
        let receipt = take(&endpoint, peer, len, seed);
        let refused = receipt.refused(Path::Mapped);
        assert_eq!(refused == Some(Refusal::NotMapped), receipt.path != Path::Mapped, "{receipt}");
        // Looking takes a descriptor.
        assert!(how == "descriptors" || is_rich || arenas().len() == 1);
        receipt.path == Path::Mapped
    };
    assert!(takes(50_000, false));
    hear();
    let resource = if how == "space" { Resource::As } else { Resource::Nofile };
    let before = getrlimit(resource);
    let current = match how {
        // Less address space than another extent takes.
        "space" => Some(status_bytes("VmSize") + (EXTENT / 2) as u64),
        "descriptors" => Some(0),
        _ => before.current,
    };
    setrlimit(resource, Rlimit { current, ..before }).expect("setrlimit");
    say("is poor");
    let mapped = LENS.iter().flat_map(|len| [*len; 3]).filter(|len| takes(*len, false)).count();
    // Without descriptors, messages out of the new arena come by other paths.
    assert_eq!(mapped, if how == "descriptors" { 8 } else { 12 });
    setrlimit(resource, before).expect("setrlimit");
    hear();
    say("is rich");
    assert!(takes(100_000, true) && takes(100_000, true));
    while endpoint.probe(peer, pinfold::TagMatch::masked(98, 1)).unwrap().tag == 99 {
        let receipt = endpoint.recv(peer, 99).unwrap().receipt();
        assert_eq!(receipt.bytes, 4 << 20);
    }
    endpoint.recv(peer, 98).unwrap();
    let _: &Endpoint = &endpoint;
}
