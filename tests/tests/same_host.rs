//! Peers that are called by host and port and are on this very host: reached as such, or over the
//! connection, and then with the reason.

use std::{
    fs,
    net::Ipv4Addr,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use pinfold::{Builder, Endpoint, Path, PeerId, PeerInfo, Progress, Receipt, Refusal, TagMatch};
use pinfold_tests::{
    Args, Network, Stage,
    network::where_allowed,
    role::{self, PATIENCE, say},
    skip::is_root_or_skip,
    stage::{Casting, Player},
    stamp,
};
use rustix::io::Errno;

pinfold_tests::roles!(host, guest, intruder, impostor);

const NOBODY: u32 = 65534;
const KEY: [u8; 32] = [7; 32];
/// The messages that each side sends as soon as it can, in this order.
const FIRST: [usize; 7] = [8, 100_000, 0, 57, 2 << 20, 4096, 1];
/// The message whose receipt is looked at.
const LONG: usize = 1 << 20;

/// One side's view of a pair.
struct Side {
    endpoint: Endpoint,
    peer: PeerId,
}

impl Side {
    fn info(&self) -> PeerInfo {
        self.endpoint.peer(self.peer).expect("connected")
    }

    /// Sends all of [`FIRST`] at once, and gets the other side's, in their order.
    fn greets(&self, own: u64, theirs: u64) {
        thread::scope(|scope| {
            scope.spawn(|| {
                for (at, len) in FIRST.into_iter().enumerate() {
                    // All messages have one tag: one that overtakes another shows.
                    let message = stamp::bytes(len, own + at as u64);
                    self.endpoint.send(self.peer, 1, &message).unwrap();
                }
            });
            for (at, len) in FIRST.into_iter().enumerate() {
                let message = self.endpoint.recv_timeout(self.peer, 1, PATIENCE).unwrap();
                assert_eq!(message.len(), len, "message {at}");
                stamp::check(&message, theirs + at as u64);
            }
        });
    }
}

/// Two endpoints of this process; both have sent messages at once, which came in order.
fn pair(one: Builder, two: Builder) -> (Side, Side) {
    let one = one.listen("tcp:127.0.0.1:0").build().unwrap();
    let two = two.build().unwrap();
    let address = one.listens_at().unwrap();
    let (one, two) = thread::scope(|scope| {
        let there = scope.spawn(|| {
            let peer = one.accept().unwrap();
            let side = Side { endpoint: one.clone(), peer };
            side.greets(10, 20);
            side
        });
        let peer = two.connect(&address).unwrap();
        let side = Side { endpoint: two.clone(), peer };
        side.greets(20, 10);
        (there.join().unwrap(), side)
    });
    assert_eq!((one.endpoint.peers().len(), two.endpoint.peers().len()), (1, 1));
    assert_eq!(two.info().address, Some(address));
    assert_eq!(one.info().address, None);
    (one, two)
}

fn builder() -> Builder {
    Endpoint::builder().progress(Progress::Dedicated)
}

/// A long message one way, whose contents are right.
fn long(from: &Side, to: &Side) -> Receipt {
    thread::scope(|scope| {
        let sent =
            scope.spawn(|| from.endpoint.send(from.peer, 5, &stamp::bytes(LONG, 5)).unwrap());
        let message = to.endpoint.recv_timeout(to.peer, 5, PATIENCE).unwrap();
        stamp::check(&message, 5);
        sent.join().unwrap()
    })
}

#[test]
fn a_peer_on_this_host_is_reached_as_one() {
    for keyed in [false, true] {
        let with = |builder: Builder| if keyed { builder.key(&KEY) } else { builder };
        let (one, two) = pair(with(builder()), with(builder()));
        for side in [&one, &two] {
            assert_eq!((side.info().pid, side.info().cma_refused), (std::process::id(), None));
            assert!(side.info().paths.contains(Path::Mapped), "{:?}", side.info());
        }
        for receipt in [long(&one, &two), long(&two, &one)] {
            let away = [Refusal::OtherHost, Refusal::OtherNamespace];
            assert!(receipt.refusals().all(|(_, why)| !away.contains(&why)), "{receipt}");
            let local = matches!(receipt.path, Path::Cma | Path::Mapped)
                || receipt.refusals().any(|it| it == (Path::Cma, Refusal::Slower));
            assert!(local, "{receipt}");
        }
    }
}

#[test]
fn who_is_not_to_look_stays_with_the_connection() {
    let off = || builder().local_shortcut(false);
    for (one, two) in [(off(), builder()), (builder(), off()), (off(), off())] {
        let (one, two) = pair(one, two);
        for (side, other) in [(&one, &two), (&two, &one)] {
            assert_eq!((side.info().pid, side.info().cma_refused), (0, Some(Refusal::OtherHost)));
            let receipt = long(side, other);
            assert_eq!(receipt.path, Path::Eager);
            assert!(
                receipt.refusals().any(|it| it == (Path::Mapped, Refusal::OtherHost)),
                "{receipt}"
            );
        }
    }
}

#[test]
fn the_last_place_is_not_taken_twice() {
    let (one, two) = pair(builder().peers_max(1), builder().peers_max(1));
    assert_eq!((one.info().cma_refused, two.info().cma_refused), (None, None));
    // Once the peer has left, there is a place again: nothing has remained of the connection.
    let address = one.endpoint.listens_at().unwrap();
    two.endpoint.disconnect(two.peer);
    let again = two.endpoint.connect_wait(&address, PATIENCE);
    assert!(again.is_ok() || one.endpoint.peers().len() == 1, "{again:?}");
}

/// The directory where all of them look for names: under the stage, for every user.
fn place(stage: &Stage) -> PathBuf {
    stage.path().join("common")
}

fn host_on(stage: &Stage) -> Casting<'_> {
    stage.role("host").env("PINFOLD_DIR", place(stage))
}

/// The outcome of a guest's visit to a host: the reason why it stays with its connection, as each
/// side has it.
fn visit(stage: &Stage, mut host: Player, guest: Casting<'_>) -> (String, String) {
    let _ = stage;
    let address = host.expect("listens at");
    let mut guest = guest.with("address", address).spawn();
    let told = guest.expect("apart");
    guest.end_well();
    let host_told = host.expect("apart");
    host.end_well();
    (host_told, told)
}

fn says(why: Refusal) -> String {
    why.to_string()
}

#[test]
fn processes_of_one_host_find_each_other() {
    let stage = Stage::new(60);
    let guest = stage.role("guest").env("PINFOLD_DIR", place(&stage));
    assert_eq!(visit(&stage, host_on(&stage).spawn(), guest), ("no".into(), "no".into()));
}

#[test]
fn where_the_name_is_not_seen_the_connection_stays() {
    let stage = Stage::new(60);
    let guest = stage.role("guest").env("PINFOLD_DIR", stage.path().join("elsewhere"));
    let expected =
        (says(Refusal::OutOfReach(0)), says(Refusal::OutOfReach(Errno::NOENT.raw_os_error())));
    assert_eq!(visit(&stage, host_on(&stage).spawn(), guest), expected);
}

#[test]
fn other_users_stay_with_the_connection() {
    if !is_root_or_skip("letting another user connect") {
        return;
    }
    let reach = |errno: Errno| says(Refusal::OutOfReach(errno.raw_os_error()));
    for (host_uid, guest_uid) in [(0, NOBODY), (NOBODY, 0)] {
        let stage = Stage::new(60);
        let host = host_on(&stage).user(host_uid).spawn();
        let guest = stage.role("guest").user(guest_uid).env("PINFOLD_DIR", place(&stage));
        let (host, guest) = visit(&stage, host, guest);
        assert_eq!(host, says(Refusal::OutOfReach(0)));
        // The directory hides the name, or the access rule says no.
        assert!([reach(Errno::NOENT), reach(Errno::ACCESS)].contains(&guest), "{guest}");
    }
    // An admitted guest is not kept apart, though the kernel may keep the memory of both apart.
    let stage = Stage::new(60);
    let host = host_on(&stage).with("admits", NOBODY).spawn();
    let guest = stage.role("guest").user(NOBODY).env("PINFOLD_DIR", place(&stage));
    let (host, guest) = visit(&stage, host, guest);
    for told in [host, guest] {
        assert!(told == "no" || told.starts_with("denied by the kernel"), "{told}");
    }
}

#[test]
fn other_networks_are_as_other_hosts() {
    where_allowed("other_networks_are_as_other_hosts", || {
        let network = Network::new(2);
        let stage = Stage::new(60);
        let at = network.address(0);
        assert_ne!(at, Ipv4Addr::LOCALHOST);
        let host = host_on(&stage).with("at", at).inside(network.namespace(0)).spawn();
        let guest = stage.role("guest").env("PINFOLD_DIR", place(&stage));
        let told = visit(&stage, host, guest.inside(network.namespace(1)));
        assert_eq!(told, (says(Refusal::OtherNamespace), says(Refusal::OtherNamespace)));
    });
}

#[test]
fn the_local_name_is_no_way_around_the_key() {
    let stage = Stage::new(60);
    let mut host = host_on(&stage).spawn();
    let address = host.expect("listens at");
    let mut intruder = stage.role("intruder").env("PINFOLD_DIR", place(&stage)).spawn();
    intruder.expect("calls");
    intruder.expect("was kept out");
    intruder.end_well();
    // A guest that has met no peer so far.
    let mut guest =
        stage.role("guest").env("PINFOLD_DIR", place(&stage)).with("address", address).spawn();
    assert_eq!(guest.expect("apart"), "no");
    guest.end_well();
    assert_eq!(host.expect("apart"), "no");
    host.end_well();
}

/// Another endpoint has the name where the guest looks, and answers or does not. Meanwhile the host
/// waits for the last word of the guest, which it has let in; that lets in no other caller by the
/// name.
#[test]
fn who_stands_at_the_name_is_not_the_peer() {
    for (way, why) in [("answers", Errno::NOENT), ("silent", Errno::TIMEDOUT)] {
        let stage = Stage::new(60);
        let mut host = host_on(&stage).spawn();
        let address = host.expect("listens at");
        let name = names(&place(&stage)).pop().expect("a name");
        let elsewhere = stage.path().join("elsewhere");
        let impostor = stage.role("impostor").env("PINFOLD_DIR", &elsewhere);
        let mut impostor = impostor.with("name", name).with("way", way).spawn();
        impostor.expect("stands there");
        let intruder = stage.role("intruder").env("PINFOLD_DIR", place(&stage));
        let mut intruder = intruder.with("for_ms", 2500).spawn();
        intruder.expect("calls");
        let guest = stage.role("guest").env("PINFOLD_DIR", &elsewhere);
        let mut guest = guest.with("address", address).spawn();
        assert_eq!(guest.expect("apart"), says(Refusal::OutOfReach(why.raw_os_error())), "{way}");
        guest.end_well();
        assert_eq!(host.expect("apart"), says(Refusal::OutOfReach(0)), "{way}");
        host.end_well();
        intruder.expect("was kept out");
        intruder.end_well();
        impostor.say("over");
        impostor.end_well();
    }
}

/// Says why a side stays with the connection.
fn tell(side: &Side) {
    let why = side.info().cma_refused;
    say(format_args!("apart {}", why.map_or("no".into(), |why| why.to_string())));
}

fn host(args: &Args) {
    let at = if args.has("at") { args.text("at") } else { "127.0.0.1" };
    let mut builder = builder().label("host").key(&KEY).listen(&format!("tcp:{at}:0"));
    if args.has("admits") {
        builder = builder.access(pinfold::Access::same_user().user(args.number::<u32>("admits")));
    }
    let endpoint = builder.build().unwrap();
    say(format_args!("listens at {}", endpoint.listens_at().unwrap()));
    let peer = endpoint.accept_timeout(PATIENCE).unwrap();
    let side = Side { endpoint, peer };
    side.greets(30, 40);
    let message = side.endpoint.recv_timeout(peer, TagMatch::any(), PATIENCE).unwrap();
    stamp::check(&message, 5);
    assert_eq!(side.endpoint.peers().len(), 1);
    tell(&side);
    // Until the guest has left.
    assert!(side.endpoint.recv_timeout(peer, 2, PATIENCE).is_err());
}

fn guest(args: &Args) {
    let endpoint = builder().label("guest").key(&KEY).build().unwrap();
    let peer = endpoint.connect(args.text("address")).unwrap();
    let side = Side { endpoint, peer };
    side.greets(40, 30);
    let receipt = side.endpoint.send(peer, 5, &stamp::bytes(LONG, 5)).unwrap();
    role::note(format_args!("{receipt}"));
    if let Some(why) = side.info().cma_refused {
        assert_ne!(receipt.path, Path::Cma, "{why}");
    }
    tell(&side);
    thread::sleep(Duration::from_millis(100));
}

/// The names that there are.
fn names(place: &std::path::Path) -> Vec<String> {
    let names = fs::read_dir(place).unwrap().map(|it| it.unwrap().file_name());
    let names = names.map(|name| name.into_string().unwrap());
    names.filter(|name| !name.starts_with('.')).collect()
}

/// Calls every name that there is, without having called by host and port: once, or as long as it
/// is told.
fn intruder(args: &Args) {
    let place = PathBuf::from(std::env::var_os("PINFOLD_DIR").expect("a place for names"));
    let endpoint = builder().label("intruder").build().unwrap();
    let names = names(&place);
    assert_eq!(names.len(), 1, "names");
    let for_ms = if args.has("for_ms") { args.number("for_ms") } else { 0 };
    let end = Instant::now() + Duration::from_millis(for_ms);
    say("calls");
    loop {
        // The intruder may be let as far as the greeting.
        if let Ok(peer) = endpoint.connect(&format!("local:{}", names[0])) {
            assert!(endpoint.recv_timeout(peer, 1, PATIENCE).unwrap_err().is_peer_gone());
        }
        // In the end its host is not there any more.
        if Instant::now() >= end {
            break;
        }
        thread::sleep(Duration::from_millis(1));
    }
    say("was kept out");
}

/// Has the name of another endpoint, and answers callers, or has them wait.
fn impostor(args: &Args) {
    let answers = args.text("way") == "answers";
    let progress = if answers { Progress::Dedicated } else { Progress::Inline };
    let builder = builder().label("impostor").progress(progress);
    let endpoint = builder.listen(&format!("local:{}", args.text("name"))).build().unwrap();
    say("stands there");
    role::hear();
    drop(endpoint);
}
