//! Long unexpected messages lie in pieces of the library's memory, and are handed out in a row: by
//! moving their pages where that may and can be done, else by copying. Receipts say which, and why.

use std::{cell::RefCell, thread};

use pinfold::{
    Builder, Endpoint, Message, Path, PathSet, PeerId,
    reassembly::fold::{Place, Receipt, Unmoved},
};
use pinfold_sys::mem::userfault::{self, Reason, Stop};
use pinfold_tests::{
    Args, Stage,
    filter::{deny, deny_if, kill, kill_if},
    host::{Ended, fork},
    pair,
    role::{self, say},
    skip::is_root_or_skip,
    stamp,
};
use rustix::{
    io::Errno,
    process::{Resource, Rlimit, getrlimit, setrlimit},
};

pinfold_tests::roles!(takes, forks, filtered);

const NOBODY: u32 = 65_534;
const HUGE: usize = 2 << 20;
/// The longest message that the library's memory can hold.
const LEN: usize = 8 << 20;

/// By the default costs, which are the same everywhere, a message in so few pieces is moved.
fn play(role: &str, way: &str, with: &[(&str, &str)], user: Option<u32>) {
    let stage = Stage::new(120);
    let mut role = stage.role(role).with("way", way).unmeasured();
    for (key, value) in with {
        role = role.with(key, value);
    }
    if let Some(user) = user {
        role = role.user(user);
    }
    let mut player = role.spawn();
    player.expect("done");
    player.end_well();
}

fn both_ways(with: &[(&str, &str)]) {
    for way in ["eager", "tcp"] {
        play("takes", way, with, None);
    }
}

#[test]
fn pages_are_moved() {
    both_ways(&[]);
}

#[test]
fn as_nobody() {
    if is_root_or_skip("to become nobody") {
        for way in ["eager", "tcp"] {
            play("takes", way, &[], Some(NOBODY));
        }
    }
}

/// A filter that kills a caller is not provoked: the call is not made.
#[test]
fn nobody_asks_where_a_filter_is() {
    both_ways(&[("denied", "kill")]);
}

/// A program whose filter lets the calls pass says so, and its pages are moved.
#[test]
fn whoever_knows_the_filter_asks() {
    both_ways(&[("denied", "other"), ("moves", "true")]);
}

#[test]
fn a_filter_that_denies_it_has_all_copied() {
    both_ways(&[("denied", "userfaultfd"), ("moves", "true")]);
}

#[test]
fn nothing_is_moved_that_the_program_does_not_want_moved() {
    both_ways(&[("moves", "false")]);
}

/// A resource that is used up is asked for again, later.
#[test]
fn without_a_descriptor_all_is_copied_until_there_is_one() {
    both_ways(&[("denied", "descriptors")]);
}

#[test]
fn forks_of_a_process_with_such_messages() {
    play("forks", "eager", &[], None);
}

/// Pages that were moved before a filter came are given back without a call that it may kill for.
#[test]
fn a_filter_comes_while_messages_are_held() {
    play("filtered", "eager", &[], None);
}

fn builder(args: &Args) -> Builder {
    let only = PathSet::only(&[Path::Inline, Path::Eager]);
    let builder = Endpoint::builder().paths(only).local_shortcut(false);
    if args.has("moves") { builder.move_pages(args.number("moves")) } else { builder }
}

/// Two endpoints of this process.
fn meet(args: &Args) -> (Endpoint, PeerId, Endpoint, PeerId) {
    if args.text("way") == "eager" {
        return pair("folded", builder(args), builder(args));
    }
    let a = builder(args).listen("tcp:127.0.0.1:0").build().expect("a free port");
    let b = builder(args).build().expect("an endpoint");
    let address = a.listens_at().expect("it listens");
    let (from_b, to_a) = thread::scope(|scope| {
        let there = scope.spawn(|| b.connect(&address).expect("to connect"));
        (a.accept().expect("a peer"), there.join().expect("no panic"))
    });
    (a, from_b, b, to_a)
}

/// The ends of a pair, and the messages that are held.
struct Play {
    a: (Endpoint, PeerId),
    b: (Endpoint, PeerId),
    held: Vec<(u64, Message)>,
    seed: u64,
}

impl Play {
    fn new(args: &Args) -> Play {
        let (a, from_b, b, to_a) = meet(args);
        Play { a: (a, from_b), b: (b, to_a), held: Vec::new(), seed: 0 }
    }

    fn next(&mut self, len: usize) -> (u64, Message) {
        self.seed += 1;
        let bytes = stamp::bytes(len, self.seed);
        let (a, b) = (&self.a, &self.b);
        let message = thread::scope(|scope| {
            scope.spawn(|| b.0.send(b.1, 1, &bytes).expect("to send"));
            a.0.recv(a.1, 1).expect("a message")
        });
        stamp::check(&message, self.seed);
        (self.seed, message)
    }

    /// Leaves holes of 2 MiB in the library's memory. No part of that is in pieces.
    fn make_holes(&mut self) {
        for _ in 0..15 {
            let next = self.next(HUGE);
            assert!(next.1.folded().is_none(), "{:?}", next.1.folded());
            self.held.push(next);
        }
        self.held.retain(|(seed, _)| seed % 2 == 0);
    }

    /// A message in pieces, and the account of what was done with them.
    fn in_pieces(&mut self) -> (u64, Message, Receipt) {
        let (seed, message) = self.next(LEN);
        let folded = *message.folded().expect("it came in pieces");
        let Receipt { bytes, moved, mapped, copied, .. } = folded;
        assert_eq!((bytes, mapped, moved + copied), (LEN as u64, 0, LEN as u64), "{folded}");
        let receipt = message.receipt();
        if receipt.path == Path::Eager && self.b.0.peer(self.b.1).expect("there").address.is_none()
        {
            assert_eq!(receipt.copied_user, LEN as u64 + copied, "{receipt}; {folded}");
        } else {
            assert!(receipt.copied_user >= copied, "{receipt}; {folded}");
        }
        (seed, message, folded)
    }

    fn check(&self) {
        self.held.iter().for_each(|(seed, message)| stamp::check(message, *seed));
    }
}

/// Descriptors of a userfaultfd that this process has.
fn userfaultfds() -> usize {
    let links = std::fs::read_dir("/proc/self/fd").expect("/proc").flatten();
    let targets = links.filter_map(|link| std::fs::read_link(link.path()).ok());
    targets.filter(|target| target.to_string_lossy().contains("userfaultfd")).count()
}

fn can_move() -> bool {
    let can = userfault::probe().is_ok_and(|support| support.moves);
    if !can {
        role::skip("pages are moved nowhere here");
    }
    can
}

fn takes(args: &Args) {
    let denied = if args.has("denied") { args.text("denied") } else { "" };
    let can = denied == "kill" || denied == "userfaultfd" || can_move();
    let mut play = Play::new(args);
    match denied {
        "kill" => kill(&[libc::SYS_userfaultfd]),
        "userfaultfd" => {
            deny(&[libc::SYS_userfaultfd], libc::EPERM);
            // Root could go by the device.
            deny_if(libc::SYS_ioctl, 1, u64::from(u32::MAX), 0xaa00, libc::EPERM);
        }
        "other" => deny(&[libc::SYS_bpf], libc::EPERM),
        _ => {}
    }
    play.make_holes();
    assert_eq!(userfaultfds(), 0, "asked for before it was of use");
    let limit = (denied == "descriptors").then(no_more_descriptors);
    let unmoved = match denied {
        _ if args.has("moves") && args.text("moves") == "false" => Some(Unmoved::Unwanted),
        "kill" => Some(Unmoved::Filtered),
        "userfaultfd" => Some(Unmoved::Refused(Reason::Denied, Errno::PERM)),
        "descriptors" => Some(Unmoved::Refused(Reason::Exhausted, Errno::MFILE)),
        _ => None,
    };
    let mut expect = |unmoved: Option<Unmoved>| {
        let (seed, message, folded) = play.in_pieces();
        if !can {
            return folded;
        }
        assert_eq!(folded.unmoved, unmoved, "{folded}");
        let (place, moved) = (folded.place == Place::Window, folded.moved);
        assert_eq!((place, moved > 0), (unmoved.is_none(), unmoved.is_none()), "{folded}");
        if denied != "descriptors" {
            assert_eq!(userfaultfds(), usize::from(unmoved.is_none()), "{folded}");
        }
        stamp::check(&message, seed);
        stamp::check(&message.into_vec(), seed);
        folded
    };
    (0..4).for_each(|_| _ = expect(unmoved));
    if let Some(limit) = limit {
        setrlimit(Resource::Nofile, limit).expect("the limit that was");
        let mut copies = 4;
        while can && play.in_pieces().2.moved == 0 {
            copies += 1;
            assert!(copies <= 100, "never asked again");
        }
        assert!(copies > 4, "asked again at once");
    }
    play.check();
    say("done");
}

/// Has the next descriptor be refused. Returns the limit that was in force.
fn no_more_descriptors() -> Rlimit {
    let limit = getrlimit(Resource::Nofile);
    let next = rustix::io::dup(std::io::stdin()).expect("a descriptor");
    let current = Some(std::os::fd::AsRawFd::as_raw_fd(&next) as u64);
    setrlimit(Resource::Nofile, Rlimit { current, ..limit }).expect("a limit");
    limit
}

/// A child reads a view that its parent was handed out; the parent has it afterwards, and the parts
/// that were in pieces when it forked are copied, since the child has its pages, too.
fn forks(args: &Args) {
    let can = can_move();
    let mut play = Play::new(args);
    play.make_holes();
    let (seed, message, folded) = play.in_pieces();
    assert_eq!(folded.moved > 0, can, "{folded}");
    // A message that is here, and not handed out yet.
    let waiting = play.a.0.recv_request(play.a.1, 2);
    let bytes = stamp::bytes(LEN, 1000);
    thread::scope(|scope| {
        let sent = scope.spawn(|| play.b.0.send(play.b.1, 2, &bytes).expect("to send"));
        while !sent.is_finished() {
            play.a.0.progress().expect("open");
        }
        (0..100).for_each(|_| _ = play.a.0.progress().expect("open"));
    });
    let messages = RefCell::new(Some(message));
    let ended = fork(|| {
        let well =
            messages.borrow().as_deref().is_some_and(|it| stamp::wrong_at(it, seed).is_none());
        let held = play.held.iter().all(|(seed, it)| stamp::wrong_at(it, *seed).is_none());
        drop(messages.take());
        i32::from(!well) + 2 * i32::from(!held)
    });
    assert_eq!(ended, Ended::Code(0));
    stamp::check(messages.borrow().as_deref().expect("the parent's"), seed);
    let waited = waiting.wait().expect("a message");
    stamp::check(&waited, 1000);
    let copied = waited.folded().expect("it came in pieces");
    assert_eq!((copied.copied, copied.moved), (LEN as u64, 0), "{copied}");
    assert_eq!(copied.stop, can.then_some(Stop::Busy), "{copied}");
    drop(messages.take());
    drop(waited);
    // Its pages are this process's alone again, once a new message has come to them.
    for _ in 0..6 {
        let (seed, message, folded) = play.in_pieces();
        assert_eq!(folded.moved > 0, can, "{folded}");
        stamp::check(&message, seed);
    }
    play.check();
    say("done");
}

fn filtered(args: &Args) {
    let can = can_move();
    let mut play = Play::new(args);
    play.make_holes();
    let (seed, message, folded) = play.in_pieces();
    assert_eq!(folded.moved > 0, can, "{folded}");
    // UFFDIO_REGISTER, UFFDIO_MOVE.
    kill_if(libc::SYS_ioctl, 1, u64::from(u32::MAX), &[0xc020_aa00, 0xc028_aa05]);
    stamp::check(&message, seed);
    drop(message);
    for _ in 0..3 {
        let (seed, message, folded) = play.in_pieces();
        assert_eq!((folded.moved, folded.unmoved), (0, Some(Unmoved::Filtered)), "{folded}");
        stamp::check(&message, seed);
    }
    play.check();
    say("done");
}
