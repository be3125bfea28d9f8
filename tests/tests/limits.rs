//! Limits: of peers, of descriptors, of the values of settings. A process that meets one is told
//! which limit it is and the remedy; connected peers go on.

use std::time::Duration;

use pinfold::{Endpoint, Error, Path, PathSet, PeerId, Source, TagMatch};
use pinfold_tests::{
    Args, Baseline, Stage,
    role::{self, PATIENCE, hear, say},
    stage::Player,
    stamp,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

pinfold_tests::roles!(
    settings,
    club,
    candidate,
    sociable,
    poor_host,
    poor_caller,
    candidate_of_the_poor,
    echo,
    small_files,
    no_files
);

// Settings.

#[test]
fn settings_out_of_range() {
    let stage = Stage::new(60);
    stage.role("settings").spawn().end_well();
}

fn settings(_: &Args) {
    let fails = |builder: pinfold::Builder, text: &str| {
        let error = builder.build().unwrap_err();
        assert_eq!(error.to_string(), text);
        match error {
            Error::LimitReached { limit, .. } => limit,
            other => panic!("{other:?}"),
        }
    };
    let label = "a label that is longer than that..";
    let text = "the label of an endpoint, in bytes, is limited to 32; choose a shorter one";
    assert_eq!(fails(Endpoint::builder().label(label), text), 32);
    Endpoint::builder().label(&label[..32]).build().unwrap();
    let text = "a message, without a path for longer ones, is limited to 56; allow eager, which \
                always works, or cma";
    assert_eq!(fails(Endpoint::builder().paths(PathSet::only(&[Path::Inline])), text), 56);
    assert_eq!(fails(Endpoint::builder().paths(PathSet::none()), text), 56);
}

// Peers.

const MEMBERS_MAX: usize = 3;
const CANDIDATES: usize = 8;

#[test]
fn a_full_endpoint_turns_callers_away() {
    let stage = Stage::new(60);
    let mut club = stage.role("club").spawn();
    club.expect("ready");
    let mut candidates: Vec<Player> =
        (0..CANDIDATES).map(|_| stage.role("candidate").spawn()).collect();
    // All candidates call at once.
    for candidate in &mut candidates {
        candidate.expect("is at the door");
    }
    for candidate in &mut candidates {
        candidate.say("go in");
    }
    let (mut inside, mut outside) = (Vec::new(), Vec::new());
    for mut candidate in candidates {
        match candidate.hear().as_str() {
            "is in" => inside.push(candidate),
            "is out" => outside.push(candidate),
            other => panic!("{other}?"),
        }
    }
    assert_eq!((inside.len(), outside.len()), (MEMBERS_MAX, CANDIDATES - MEMBERS_MAX));
    // One member leaves, and makes room for one.
    let mut leaver = inside.pop().expect("three");
    leaver.say("leave");
    leaver.end_well();
    club.expect("saw one leave");
    let mut lucky = outside.pop().expect("five");
    lucky.say("try again");
    lucky.expect("is in");
    for mut outsider in outside {
        outsider.say("try again");
        outsider.expect("is out");
        outsider.say("leave");
        outsider.end_well();
    }
    for mut insider in inside.into_iter().chain([lucky]) {
        insider.say("leave");
        insider.end_well();
    }
    club.end_well();
}

/// Sends back the messages of all peers, until all have left.
fn club(_: &Args) {
    let builder = Endpoint::builder().label("club").peers_max(MEMBERS_MAX);
    let endpoint = builder.listen("local:club").build().unwrap();
    say("ready");
    let (mut left, mut said_so) = (0, false);
    while left < MEMBERS_MAX + 1 {
        match endpoint.recv_timeout(Source::Any, TagMatch::any(), Duration::from_millis(2)) {
            Ok(message) => {
                endpoint.send(message.peer(), message.tag(), &message).unwrap();
            }
            Err(Error::Timeout(_)) => {}
            Err(error) => panic!("{error}"),
        }
        assert!(endpoint.peers().len() <= MEMBERS_MAX, "{:?}", endpoint.peers());
        left = endpoint.counters().peers_gone as usize;
        if left == 1 && !said_so {
            said_so = true;
            say("saw one leave");
        }
    }
    assert_eq!(endpoint.counters().peers_joined as usize, MEMBERS_MAX + 1);
}

fn candidate(_: &Args) {
    let endpoint = Endpoint::new().unwrap();
    say("is at the door");
    while hear() != "leave" {
        match endpoint.connect("local:club") {
            Ok(club) => {
                endpoint.send(club, 1, b"hello").unwrap();
                assert_eq!(&*endpoint.recv(club, 1).unwrap(), b"hello");
                say("is in");
            }
            Err(error) => {
                assert_eq!(
                    error.to_string(),
                    "the number of peers of the listening endpoint is limited to 3; raise \
                     peers_max there, or disconnect a peer"
                );
                assert!(matches!(error, Error::LimitReached { limit: 3, .. }));
                assert!(endpoint.peers().is_empty());
                say("is out");
            }
        }
    }
}

#[test]
fn a_full_endpoint_calls_nobody() {
    let stage = Stage::new(60);
    stage.role("sociable").spawn().end_well();
}

fn sociable(_: &Args) {
    let hosts: Vec<Endpoint> =
        (0..3).map(|i| Endpoint::listen(&format!("local:host-{i}")).unwrap()).collect();
    let answer = |host: &Endpoint| {
        let host = host.clone();
        std::thread::spawn(move || host.accept_timeout(PATIENCE).map(drop))
    };
    let endpoint = Endpoint::builder().peers_max(2).build().unwrap();
    let mut peers = Vec::new();
    for (i, host) in hosts.iter().take(2).enumerate() {
        let host = answer(host);
        peers.push(endpoint.connect(&format!("local:host-{i}")).unwrap());
        host.join().expect("no panic").unwrap();
    }
    let error = endpoint.connect("local:host-2").unwrap_err();
    assert_eq!(
        error.to_string(),
        "the number of peers of this endpoint is limited to 2; raise Builder::peers_max, or \
         disconnect some"
    );
    assert!(matches!(error, Error::LimitReached { limit: 2, .. }));
    endpoint.disconnect(peers[0]);
    let host = answer(&hosts[2]);
    endpoint.connect("local:host-2").unwrap();
    host.join().expect("no panic").unwrap();
}

// Descriptors.

/// Leaves this process so many descriptors beyond those that it has.
fn allow_descriptors(more: usize) {
    let open: Vec<u64> = std::fs::read_dir("/proc/self/fd")
        .expect("/proc")
        .filter_map(|entry| {
            let entry = entry.ok()?;
            // The listing's own will be closed again.
            let target = std::fs::read_link(entry.path()).ok()?;
            let is_kept = !target.to_string_lossy().ends_with("/fd");
            is_kept.then(|| entry.file_name().to_str()?.parse().ok())?
        })
        .collect();
    // The limit is on the numbers of descriptors: so many below it are free.
    let current = (0..).filter(|number| !open.contains(number)).nth(more);
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current, maximum }).expect("setrlimit");
}

/// Sends one message and wants it back.
fn say_hello(endpoint: &Endpoint, peer: PeerId) {
    for len in [8, 5000, 200_000] {
        let sent = endpoint.send_owned(peer, 1, stamp::bytes(len, 1));
        stamp::check(&endpoint.recv_timeout(peer, 1, PATIENCE).unwrap(), 1);
        sent.wait().0.unwrap();
    }
}

/// Sends everything back until it is told to end.
fn echo(args: &Args) {
    let name = args.text("name");
    let endpoint = Endpoint::listen(&format!("local:{name}")).unwrap();
    say("ready");
    loop {
        let message = endpoint.recv(Source::Any, TagMatch::any()).unwrap();
        if message.tag() == 9 {
            return;
        }
        endpoint.send(message.peer(), message.tag(), &message).unwrap();
    }
}

#[test]
fn a_caller_without_descriptors_is_told_so() {
    let stage = Stage::new(60);
    let mut echo = stage.role("echo").with("name", "echo").spawn();
    echo.expect("ready");
    stage.role("poor_caller").spawn().end_well();
    echo.end_well();
}

fn poor_caller(_: &Args) {
    let endpoint = Endpoint::new().unwrap();
    let first = endpoint.connect("local:echo").unwrap();
    say_hello(&endpoint, first);
    let before = Baseline::now();
    for more in 1..=12 {
        allow_descriptors(more);
        let result = endpoint.connect("local:echo");
        match result {
            // At least two of its own for a peer, and some on the way there.
            Ok(peer) => {
                assert!(more >= 3, "connected with {more} descriptors");
                say_hello(&endpoint, peer);
                endpoint.disconnect(peer);
            }
            Err(error) => {
                role::note(format_args!("{more} descriptors left: {error}"));
                assert!(is_clear(&error), "{more} descriptors left: {error:?}");
                assert!(more < 12, "with {more} descriptors left: {error}");
            }
        }
        assert_eq!(endpoint.peers().len(), 1);
        before.returns(PATIENCE);
        say_hello(&endpoint, first);
    }
    allow_descriptors(0);
    let error = Endpoint::new().unwrap_err();
    assert!(is_clear(&error), "{error:?}");
    endpoint.send(first, 9, b"").unwrap();
}

/// Returns whether an error says that descriptors have run out, and what to do or where.
fn is_clear(error: &Error) -> bool {
    let text = error.to_string();
    match error {
        Error::Os { source, .. } => {
            source.raw_os_error() == Some(libc::EMFILE) && text.contains("Too many open files")
        }
        Error::LimitReached { what, .. } => {
            what.contains("descriptors") && text.contains("ulimit -n")
        }
        _ => false,
    }
}

#[test]
fn a_listener_without_descriptors_lives() {
    poor_host_with(12);
}

#[test]
fn a_listener_with_too_few_descriptors_for_the_next_lives() {
    poor_host_with(11);
}

#[test]
fn a_listener_without_any_descriptor_lives() {
    let stage = Stage::new(60);
    let mut host = stage.role("poor_host").with("descriptors", 0).spawn();
    host.expect("ready");
    // One descriptor is kept in reserve to tell callers so, however many they are.
    for _ in 0..3 {
        let mut caller = stage.role("candidate_of_the_poor").spawn();
        assert_eq!(
            caller.hear(),
            "accept4 on a call, in the process listening at local:poor: Too many open files (os \
             error 24); raise its ulimit -n, or have it close some"
        );
        caller.end_well();
    }
    // A caller is answered once there are descriptors.
    host.say("grow rich");
    host.expect("is rich");
    let mut late = stage.role("candidate_of_the_poor").spawn();
    late.expect("is in");
    late.say("leave");
    late.end_well();
    host.say("leave");
    host.end_well();
}

fn is_about_descriptors(said: &str) -> bool {
    said.contains("descriptor") || said.contains("Too many open files")
}

/// Three of these descriptors go to each caller that comes in.
fn poor_host_with(descriptors: usize) {
    let stage = Stage::new(60);
    let mut host = stage.role("poor_host").with("descriptors", descriptors).spawn();
    host.expect("ready");
    let mut inside = Vec::new();
    let mut told = Vec::new();
    for _ in 0..8 {
        let mut caller = stage.role("candidate_of_the_poor").spawn();
        let said = caller.hear();
        if said == "is in" {
            inside.push(caller);
        } else {
            told.push(said);
            caller.end_well();
        }
    }
    println!("{} came in, others were told {told:#?}", inside.len());
    assert!((3..=4).contains(&inside.len()), "{} of 8 came in", inside.len());
    // The callers inside go on, and when one leaves there is room again.
    for caller in &mut inside {
        caller.say("talk");
        caller.expect("talked");
    }
    let mut first = inside.remove(0);
    first.say("leave");
    first.end_well();
    let mut late = stage.role("candidate_of_the_poor").spawn();
    late.expect("is in");
    for mut caller in inside.into_iter().chain([late]) {
        caller.say("leave");
        caller.end_well();
    }
    host.say("leave");
    host.end_well();
    for said in told {
        assert!(is_about_descriptors(&said), "{said}");
    }
}

fn poor_host(args: &Args) {
    let builder = Endpoint::builder().progress(pinfold::Progress::Dedicated);
    let endpoint = builder.listen("local:poor").build().unwrap();
    let before = Baseline::now();
    allow_descriptors(args.number("descriptors"));
    say("ready");
    std::thread::spawn({
        let endpoint = endpoint.clone();
        move || {
            loop {
                match endpoint.recv(Source::Any, TagMatch::any()) {
                    Ok(message) => {
                        endpoint.send(message.peer(), message.tag(), &message).map(drop).unwrap()
                    }
                    Err(Error::Closed) => return,
                    Err(error) => panic!("{error}"),
                }
            }
        }
    });
    while hear() == "grow rich" {
        let maximum = getrlimit(Resource::Nofile).maximum;
        setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).expect("setrlimit");
        say("is rich");
    }
    before.returns(PATIENCE);
    endpoint.close();
}

fn candidate_of_the_poor(_: &Args) {
    let endpoint =
        Endpoint::builder().connect_timeout(Duration::from_millis(1500)).build().unwrap();
    match endpoint.connect("local:poor") {
        Ok(peer) => {
            say_hello(&endpoint, peer);
            say("is in");
            while hear() == "talk" {
                say_hello(&endpoint, peer);
                say("talked");
            }
        }
        Err(error) => say(error),
    }
}

// Limits on file sizes.

#[test]
fn a_limit_on_file_sizes_kills_nobody() {
    let stage = Stage::new(60);
    stage.role("small_files").spawn().end_well();
}

fn small_files(_: &Args) {
    let endpoint = Endpoint::listen("local:small").unwrap();
    let before = getrlimit(Resource::Fsize);
    setrlimit(Resource::Fsize, Rlimit { current: Some(4096), ..before }).expect("setrlimit");
    let connect = || {
        std::thread::scope(|s| {
            let caller = s.spawn(|| {
                let caller = Endpoint::new().unwrap();
                caller.connect("local:small").map(|_| caller)
            });
            // The listener answers while it is called.
            while !caller.is_finished() {
                endpoint.progress().unwrap();
            }
            caller.join().unwrap()
        })
    };
    let error = connect().unwrap_err().to_string();
    // The error names the process that has the limit, and the call.
    let says = "ftruncate on a call, in the process listening at local:small: File too large";
    assert!(error.starts_with(says) && error.contains("ulimit -f"), "{error}");
    setrlimit(Resource::Fsize, before).expect("setrlimit");
    connect().unwrap();
}

/// No operation of the process ends it by a signal, and memory of peers is used all the same.
#[test]
fn a_process_that_may_have_no_files_lives() {
    for bytes in [0, 1, 4096] {
        let stage = Stage::new(60);
        let mut echo = stage.role("echo").with("name", "echo").spawn();
        echo.expect("ready");
        // It measures the cost of copies, and would keep that.
        stage.role("no_files").with("bytes", bytes).spawn().end_well();
        echo.end_well();
    }
}

fn no_files(args: &Args) {
    let bytes: u64 = args.number("bytes");
    let before = getrlimit(Resource::Fsize);
    setrlimit(Resource::Fsize, Rlimit { current: Some(bytes), ..before }).expect("setrlimit");
    let endpoint = Endpoint::new().unwrap();
    let echo = endpoint.connect("local:echo").unwrap();
    say_hello(&endpoint, echo);
    endpoint.send(echo, 9, b"").unwrap();
    let is_told = |error: Error| {
        let text = error.to_string();
        assert!(text.starts_with("ftruncate on ") && text.contains("File too large"), "{text}");
        assert!(text.contains(&format!("may have {bytes} bytes")), "{text}");
        assert!(text.contains("(ulimit -f)"), "{text}");
    };
    // The error also says how much it would take.
    is_told(pinfold::Arena::new().map(drop).unwrap_err());
    is_told(endpoint.region(5000, pinfold::Rights::Read).map(drop).unwrap_err());
    for address in ["local:small", "tcp:127.0.0.1:0"] {
        is_told(Endpoint::listen(address).map(drop).unwrap_err());
    }
}
