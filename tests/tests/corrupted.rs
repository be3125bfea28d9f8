//! A test of the tests: the check of contents that all of them make finds one byte of a message
//! that was changed on its way.

use pinfold::{Endpoint, Path, PathSet};
use pinfold_tests::{
    Args, Stage,
    baseline::segments,
    host::{peek, scribble},
    role::{self, hear, say},
    stamp,
};

pinfold_tests::roles!(forger, reader);

/// The place of longer messages' bytes towards the accepting side in a segment, and the ring of its
/// descriptors.
const BULK_AT: usize = 512 << 10;
const RING_AT: usize = 68 << 10;
/// The word that is changed.
const WORD: usize = 3;

/// Sends a message by `path`, changes it in the shared memory if `how` says so, and then has the
/// reader read it. Returns whether the reader is content.
fn is_read(path: Path, how: &str) -> bool {
    let stage = Stage::new(60);
    let mut reader = stage.role("reader").with("path", path).spawn();
    reader.expect("ready");
    let mut forger = stage.role("forger").with("path", path).with("how", how).spawn();
    forger.expect("sent");
    reader.say("read");
    let verdict = reader.hear();
    forger.say("leave");
    forger.end_well();
    reader.end_well();
    match verdict.as_str() {
        "as it was sent" => true,
        "byte 25 of 56 is not what was sent" | "byte 25 of 4000 is not what was sent" => false,
        other => panic!("{other}?"),
    }
}

#[test]
fn a_byte_changed_in_the_descriptor_is_noticed() {
    assert!(is_read(Path::Inline, "honest"));
    assert!(!is_read(Path::Inline, "in the ring"));
}

#[test]
fn a_byte_changed_in_the_ring_is_noticed() {
    assert!(is_read(Path::Eager, "honest"));
    assert!(!is_read(Path::Eager, "in the ring"));
}

#[test]
fn a_byte_changed_at_the_source_is_noticed() {
    for path in [Path::Inline, Path::Eager] {
        assert!(!is_read(path, "at the source"));
    }
}

fn len(path: Path) -> usize {
    if path == Path::Inline { 56 } else { 4000 }
}

fn forger(args: &Args) {
    let path = Path::from_name(args.text("path")).expect("a path");
    let (endpoint, peer) = role::connect(Endpoint::builder(), "reader");
    let [segment] = segments()[..] else { panic!("one segment") };
    let mut bytes = stamp::bytes(len(path), 1);
    if args.text("how") == "at the source" {
        bytes[8 * WORD + 1] ^= 1;
    }
    assert_eq!(endpoint.send_by(path, peer, 5, &bytes).unwrap().path, path);
    if args.text("how") == "in the ring" {
        let sent = u64::from_ne_bytes(bytes[8 * WORD..][..8].try_into().expect("eight"));
        let (from, to) = match path {
            Path::Inline => (RING_AT, BULK_AT - (256 << 10)),
            _ => (BULK_AT, segment.len),
        };
        let all = (segment.at + from..segment.at + to).step_by(8);
        let [at] = all.filter(|at| peek(*at) == sent).collect::<Vec<_>>()[..] else {
            panic!("the word is not there once")
        };
        scribble(at, u64::from_ne_bytes((sent ^ 1 << 8).to_ne_bytes()));
    }
    say("sent");
    hear();
}

fn reader(args: &Args) {
    let path = Path::from_name(args.text("path")).expect("a path");
    let builder = Endpoint::builder().paths(PathSet::all());
    let (endpoint, peer) = role::listen(builder, "reader");
    // Nothing is taken out of the ring before it is told to.
    hear();
    let message = endpoint.recv(peer, 5).unwrap();
    assert_eq!(message.len(), len(path));
    match stamp::wrong_at(&message, 1) {
        None => say("as it was sent"),
        Some(at) => say(format_args!("byte {at} of {} is not what was sent", message.len())),
    }
    // Wrong contents are no matter of the library's.
    assert!(endpoint.recv(peer, 6).unwrap_err().is_peer_gone());
}
