//! Errors in a command's words: none of the library's names, and always a remedy.

use std::time::Duration;

use pinfold::{Endpoint, NotHandled, Path, Receipt, Refusal, Untaken};

use super::*;

/// Calls and settings of the library, as its messages name them.
const OF_THE_LIBRARY: [&str; 14] = [
    "::",
    "Builder",
    "Arena",
    "PathSet",
    "SendMode",
    " Answer",
    "connect_timeout",
    "reconnect_timeout",
    "peers_max",
    "bytes_max",
    "bytes_budget",
    "key_file",
    "encrypt(",
    "this library",
];

fn os(call: &'static str, on: &str, errno: Errno) -> Error {
    Error::Os { call, on: on.into(), source: errno.into() }
}

fn greeting(reason: Ungreeted, why: &str) -> Error {
    Error::Greeting { peer: "tcp:box:7".into(), why: why.into(), reason }
}

/// One of each variant.
fn all() -> Vec<Error> {
    let (peer, name) = (|| "worker (pid 7)".to_owned(), || "local:box".to_owned());
    let endpoint = Endpoint::builder().build().unwrap();
    let other = Endpoint::builder().build().unwrap();
    drop(other);
    let unknown = endpoint.connect("local:nobody-has-this-name").unwrap_err();
    assert!(matches!(unknown, Error::NameGone { .. }), "{unknown}");
    let mut all = vec![
        unknown,
        Error::NameInUse { name: name() },
        Error::NameLost { name: name() },
        Endpoint::check_address("tcp:box").unwrap_err(),
        Error::NotAllowed { name: name(), why: "its mode".into() },
        Error::VersionMismatch {
            peer: peer(),
            ours_min: 1,
            ours_max: 1,
            theirs_min: 7,
            theirs_max: 9,
        },
        Error::LimitReached { what: "peers", limit: 5, remedy: "raise Builder::peers_max" },
        Error::NoMemory { wanted: 7, left: 1, whose: "this user".into() },
        Error::PeerGone { peer: peer(), how: Gone::Forgot },
        Error::NobodyLeft { last: peer(), how: Gone::Forgot },
        Error::PathRefused { path: Path::Cma, why: Refusal::Slower },
        Error::OutOfReach { mapped: Refusal::OtherHost, cma: Refusal::OtherNamespace },
        Error::Transfer { peer: peer(), source: Errno::MFILE.into() },
        Error::OutOfBounds { offset: 7, len: 1, size: 5 },
        Error::BadKey,
        Error::Revoked,
        Error::NotMapped { address: 7, len: 1 },
        Error::StillVisited { visitors: 1, patience: Duration::from_secs(1) },
        Error::Undelivered { patience: Duration::from_secs(1), left: Vec::new() },
        Error::Misaligned { offset: 7, size: 8 },
        Error::ReadOnly,
        Error::Withdrawn,
        Error::NotHandled { peer: peer(), id: 7, why: NotHandled::TooLong },
        Error::AlreadyAnswered,
        Error::Cancelled,
        Error::NoAnswer { name: name(), patience: Duration::from_secs(1) },
        Error::KeyNeeded { address: "tcp:box:7".into() },
        Error::UnusableKey("the key".into()),
        greeting(Ungreeted::Unencrypted, "build it with Builder::encrypt(true)"),
        Error::NotListening,
        Error::OtherType { topic: name(), ours: "8 bytes".into(), theirs: "4 bytes".into() },
        Error::NotTaken { peer: peer(), patience: Duration::from_secs(1), why: Untaken::Behind },
        Error::Timeout(Duration::from_secs(1)),
        Error::Forked,
        Error::Closed,
        os("bind", "tcp:box:7", Errno::ACCESS),
    ];
    // Only an endpoint makes an identifier of a peer; these two carry one.
    all.extend(with_a_peer());
    all
}

fn with_a_peer() -> Vec<Error> {
    let name = format!("local:words-{}", std::process::id());
    let one = Endpoint::builder().progress(pinfold::Progress::Dedicated).listen(&name);
    let one = one.build().unwrap();
    let two = Endpoint::builder().build().unwrap();
    let peer = two.connect(&name).unwrap();
    let receipt = Receipt::new(Path::Eager, 7);
    drop(one);
    vec![
        Error::UnknownPeer { peer },
        Error::Truncated { len: 7, capacity: 5, peer, tag: 1, receipt },
    ]
}

#[test]
fn no_command_names_what_is_the_librarys() {
    let all = all();
    let mut kinds: Vec<_> = all.iter().map(std::mem::discriminant).collect();
    kinds.dedup();
    // All variants are here: a new one gets a command's words as well, if need be.
    let source = include_str!("../../../../pinfold/src/error.rs");
    let of_error = source.split_once("pub enum Error {").unwrap().1;
    let of_error = of_error.split_once("\n}\n").unwrap().0;
    let is_variant = |line: &&str| {
        line.strip_prefix("    ")
            .is_some_and(|line| line.starts_with(|c: char| c.is_ascii_uppercase()))
    };
    assert_eq!(kinds.len(), of_error.lines().filter(is_variant).count());
    let more = [
        Error::NameInUse { name: "tcp:box:7".into() },
        Error::NameGone { name: "tcp:box:7".into() },
        Error::NoAnswer { name: "tcp:box:7".into(), patience: Duration::from_secs(1) },
        Error::LimitReached { what: "descriptors", limit: 5, remedy: "raise it (ulimit -n)" },
        greeting(Ungreeted::OtherKey, "another"),
        greeting(Ungreeted::NoKey, "none"),
        greeting(Ungreeted::NoKeyThere, "none"),
        greeting(Ungreeted::UnencryptedThere, "build that one with Builder::encrypt(true)"),
        greeting(Ungreeted::Full(7), "raise its Builder::peers_max"),
        os("connect", "tcp:box:7", Errno::NETUNREACH),
        os("eventfd", "the endpoint", Errno::MFILE),
    ];
    for error in all.iter().chain(&more) {
        let words = Words(error).to_string();
        assert!(!words.is_empty(), "{error:?}");
        for name in OF_THE_LIBRARY {
            assert!(!words.contains(name), "{name:?} in {words:?}");
        }
    }
}

#[test]
fn what_the_system_says_comes_with_what_to_do() {
    for (error, says) in [
        (os("bind", "tcp:box:80", Errno::ACCESS), "ports below 1024 are for root"),
        (os("bind", "tcp:10.0.0.7:80", Errno::ADDRNOTAVAIL), "see which it has: ip address"),
        (os("connect", "tcp:box:80", Errno::NETUNREACH), "ip route get box"),
        (os("connect", "tcp:box:80", Errno::TIMEDOUT), "see that the host is up"),
        (os("eventfd", "the endpoint", Errno::MFILE), "raise the limit on open files (ulimit -n)"),
        (greeting(Ungreeted::NoKey, ""), "--key FILE"),
        (greeting(Ungreeted::Unencrypted, ""), "--tls"),
        (Error::KeyNeeded { address: "tcp:box:7".into() }, "--key FILE"),
    ] {
        let words = Words(&error).to_string();
        assert!(words.contains(says), "{says:?} is not in {words:?}");
    }
    let unknown = io::Error::new(io::ErrorKind::NotFound, "there is no host of that name");
    let error = Error::Os { call: "getaddrinfo", on: "tcp:no.test:7".into(), source: unknown };
    let words = Words(&error).to_string();
    let said = "tcp:no.test:7: there is no host of that name; check the name: getent hosts no.test";
    assert_eq!(words, said);
}
