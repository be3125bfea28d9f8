//! The greeting between hosts: agreement, wrong keys, versions.

use std::{fmt::Debug, net::Ipv6Addr, sync::Arc};

use super::{
    super::key::Key,
    proof::{Loopback, Purpose, Transcript},
    *,
};
use crate::{
    policy::route::{Path, PathSet},
    transport::local::Limits,
    wire::tcp::{
        greeting::{AuthKind, NONCE_BYTES, Versions},
        offer::{HostIdentity, LocalName, ModeSet},
    },
};

mod hostile;
mod sessions;

const DEADLINE: u64 = 1_000_000;

fn key(byte: u8) -> Auth {
    Auth::Key(Arc::new(Key::from_bytes(&[byte; 40]).unwrap()))
}

fn no_key() -> Auth {
    Auth::None(Loopback::of(Ipv6Addr::LOCALHOST.into()).unwrap())
}

fn nonce(byte: u8) -> Nonce {
    Nonce::fixed([byte; NONCE_BYTES])
}

fn offer(id: u8) -> Offer {
    Offer {
        endpoint_id: [id; 16],
        incarnation: 100 + u64::from(id),
        host: HostIdentity { boot: [7; 16], word: 8 },
        local: Some(LocalName { user: 1000, name: format!("box-{id}") }),
        label: format!("endpoint {id}"),
        limits: Limits { unexpected_bytes: 1 << id, rendezvous_max: id.into() },
        paths: PathSet::all(),
        modes: ModeSet::all(),
        tls: false,
    }
}

/// One side and its outcome.
struct Side {
    greeting: Greeting,
    end: Option<Result<Box<Agreed>, Failure>>,
    /// All that it said.
    said: Vec<u8>,
}

impl Side {
    fn new(greeting: Greeting) -> Side {
        Side { greeting, end: None, said: Vec::new() }
    }

    /// All that is to be sent now.
    fn speak(&mut self) -> Vec<u8> {
        let output = self.greeting.output().to_vec();
        self.greeting.sent(output.len());
        self.said.extend(&output);
        output
    }

    /// Hears these bytes, `part` of them at a time, and decides by `decide`.
    fn hear(&mut self, bytes: &[u8], part: usize, decide: &mut dyn FnMut(&mut Greeting, &Asked)) {
        for mut rest in bytes.chunks(part) {
            while !rest.is_empty() && self.end.is_none() {
                match self.greeting.feed(rest) {
                    Ok((used, step)) => {
                        rest = &rest[used..];
                        match step {
                            Step::More => assert!(rest.is_empty(), "bytes were left"),
                            Step::Decide(asked) => decide(&mut self.greeting, &asked),
                            Step::Agreed(agreed) => {
                                assert!(rest.is_empty(), "bytes were left");
                                self.end = Some(Ok(agreed));
                            }
                        }
                    }
                    Err(failure) => self.end = Some(Err(failure)),
                }
            }
        }
    }
}

type Tamper = Box<dyn FnMut(Role, usize, &mut u8)>;

/// Both sides, and how to play them.
struct Scene {
    connecting: Side,
    accepting: Side,
    part: usize,
    /// Hears of each byte: whose, the how manieth.
    tamper: Tamper,
    /// The bytes of either side that get through.
    cut: (usize, usize),
}

impl Scene {
    fn new(connecting: Greeting, accepting: Greeting) -> Scene {
        Scene {
            connecting: Side::new(connecting),
            accepting: Side::new(accepting),
            part: usize::MAX,
            tamper: Box::new(|_, _, _| {}),
            cut: (usize::MAX, usize::MAX),
        }
    }

    fn between(connecting: Auth, accepting: Auth) -> Scene {
        Scene::new(
            Greeting::connect(connecting, nonce(1), "tcp:there:1", offer(1), None, DEADLINE),
            Greeting::accept(accepting, nonce(2), "10.0.0.9:7", DEADLINE),
        )
    }

    /// To its end; a side that has ended closes the connection.
    fn play(mut self) -> Outcome {
        self.play_with(&mut |greeting, _| greeting.admit(&offer(2), None).unwrap_or_default())
    }

    fn play_with(&mut self, decide: &mut dyn FnMut(&mut Greeting, &Asked)) -> Outcome {
        loop {
            let mut moved = false;
            for role in [Role::Connecting, Role::Accepting] {
                let (speaker, hearer, cut) = match role {
                    Role::Connecting => (&mut self.connecting, &mut self.accepting, self.cut.0),
                    Role::Accepting => (&mut self.accepting, &mut self.connecting, self.cut.1),
                };
                let before = speaker.said.len();
                let mut bytes = speaker.speak();
                moved |= !bytes.is_empty();
                for (at, byte) in bytes.iter_mut().enumerate() {
                    (self.tamper)(role, before + at, byte);
                }
                bytes.truncate(cut.saturating_sub(before));
                hearer.hear(&bytes, self.part, decide);
            }
            if !moved {
                break;
            }
        }
        // If a side says nothing more, the other learns that when the connection is closed.
        for side in [&mut self.connecting, &mut self.accepting] {
            if side.end.is_none() {
                // A greeting that was declined is over.
                let over = Failure::Over { peer: side.greeting.peer.clone() };
                side.end = Some(Err(side.greeting.closed().unwrap_or(over)));
            }
            assert!(side.greeting.closed().is_none());
            assert!(side.greeting.expired(u64::MAX).is_none());
            assert!(matches!(side.greeting.feed(&[1]), Err(Failure::Over { .. })));
        }
        Outcome {
            connecting: self.connecting.end.take().unwrap(),
            accepting: self.accepting.end.take().unwrap(),
            said: (self.connecting.said.clone(), self.accepting.said.clone()),
        }
    }
}

#[derive(Debug)]
struct Outcome {
    connecting: Result<Box<Agreed>, Failure>,
    accepting: Result<Box<Agreed>, Failure>,
    said: (Vec<u8>, Vec<u8>),
}

impl Outcome {
    fn both(self) -> (Box<Agreed>, Box<Agreed>) {
        (self.connecting.unwrap(), self.accepting.unwrap())
    }

    fn neither(self) -> (Failure, Failure) {
        (self.connecting.unwrap_err(), self.accepting.unwrap_err())
    }
}

fn says(failure: impl Debug + ToString, parts: &[&str]) {
    let said = failure.to_string();
    for part in parts {
        assert!(said.contains(part), "{part:?} is not in {said:?}");
    }
}

#[test]
fn two_sides_agree() {
    for part in [1, 7, 64, usize::MAX] {
        for (auth, is_proved) in [(key(1), true), (no_key(), false)] {
            let mut scene = Scene::between(auth.clone(), auth);
            scene.part = part;
            let outcome = scene.play();
            let lens = (KNOCK_BYTES + CLAIM_BYTES + CONFIRM_BYTES, KNOCK_BYTES + REPLY_BYTES);
            assert_eq!((outcome.said.0.len(), outcome.said.1.len()), lens);
            let (c, a) = outcome.both();
            assert_eq!((c.role, a.role), (Role::Connecting, Role::Accepting));
            assert_eq!((&c.peer, &a.peer), (&offer(2), &offer(1)));
            assert_eq!((c.ticket.id, &c.ticket.secret), (a.ticket.id, &a.ticket.secret));
            assert_eq!((c.ticket.endpoint_id, c.ticket.incarnation), ([2; 16], 102));
            assert_eq!((a.ticket.endpoint_id, a.ticket.incarnation), ([1; 16], 101));
            for agreed in [c, a] {
                assert_eq!((agreed.version, agreed.is_proved), (1, is_proved));
                assert_eq!((agreed.peer_received, agreed.tls), (None, false));
                assert_eq!((agreed.paths, agreed.modes), (PathSet::all(), ModeSet::all()));
                assert!(agreed.is_same_host);
            }
        }
    }
}

#[test]
fn what_both_can_is_agreed() {
    let us = Offer {
        paths: PathSet::only(&[Path::Eager, Path::Cma]),
        modes: ModeSet::RENDEZVOUS.with(ModeSet::ACTIVE),
        tls: true,
        ..offer(1)
    };
    let them = Offer {
        paths: PathSet::only(&[Path::Eager, Path::Mapped]),
        modes: ModeSet::ACTIVE.with(ModeSet::ATOMICS),
        host: HostIdentity { word: 9, ..us.host },
        tls: true,
        ..offer(2)
    };
    let greeting = Greeting::connect(key(1), nonce(1), "tcp:there:1", us, None, DEADLINE);
    let mut scene = Scene::new(greeting, Greeting::accept(key(1), nonce(2), "x", DEADLINE));
    let (c, a) = scene.play_with(&mut |g, _| g.admit(&them, None).unwrap()).both();
    for agreed in [c, a] {
        assert_eq!(agreed.paths, PathSet::only(&[Path::Eager]));
        assert_eq!(agreed.modes, ModeSet::ACTIVE);
        assert!(agreed.tls);
        assert!(!agreed.is_same_host);
        assert_eq!(agreed.local_address(), None);
    }
}

#[test]
fn peers_on_one_host_find_each_other() {
    let (c, a) = Scene::between(key(1), key(1)).play().both();
    assert_eq!(c.local_address().unwrap().to_string(), "local:1000/box-2");
    assert_eq!(a.local_address().unwrap().to_string(), "local:1000/box-1");
    let nameless = Offer { local: None, ..offer(2) };
    let mut scene = Scene::between(key(1), key(1));
    let (c, _) = scene.play_with(&mut |g, _| g.admit(&nameless, None).unwrap()).both();
    assert!(c.is_same_host);
    assert_eq!(c.local_address(), None);
    // The same boot, but other local endpoints: a container.
    for host in [HostIdentity { boot: [7; 16], word: 9 }, HostIdentity { boot: [8; 16], word: 8 }] {
        let elsewhere = Offer { host, ..offer(2) };
        let mut scene = Scene::between(key(1), key(1));
        let (c, a) = scene.play_with(&mut |g, _| g.admit(&elsewhere, None).unwrap()).both();
        assert!(!c.is_same_host && !a.is_same_host);
    }
}

#[test]
fn a_wrong_key_ends_it_without_a_word() {
    let outcome = Scene::between(key(1), key(2)).play();
    // Nothing but the knock: the stranger does not learn which endpoint is there.
    assert_eq!(outcome.said.1.len(), KNOCK_BYTES);
    let (c, a) = outcome.neither();
    assert!(matches!(a, Failure::WrongKey { .. }));
    says(a, &["10.0.0.9:7 has another key", "sha256sum"]);
    assert!(matches!(c, Failure::Closed { .. }));
    says(c, &["tcp:there:1 closed", "its answer", "most likely its key is another"]);
}

#[test]
fn the_accepting_side_has_to_have_the_key_too() {
    // The connecting side's claim is taken for right by a side that cannot answer it.
    let mut scene = Scene::between(key(1), key(1));
    scene.tamper = Box::new(|role, at, byte| {
        if role == Role::Accepting && at >= KNOCK_BYTES + REPLY_BYTES - 32 {
            *byte = 0;
        }
    });
    let outcome = scene.play();
    assert!(matches!(outcome.connecting, Err(Failure::WrongKey { .. })));
    assert!(matches!(outcome.accepting, Err(Failure::Closed { .. })));
}

#[test]
fn with_a_key_and_without_do_not_go_together() {
    let outcome = Scene::between(key(1), no_key()).play();
    let said = (outcome.said.0.len(), outcome.said.1.len());
    assert_eq!(said, (KNOCK_BYTES, KNOCK_BYTES));
    let (c, a) = outcome.neither();
    says(&c, &["tcp:there:1 has no key", "give that endpoint"]);
    says(&a, &["10.0.0.9:7 asks for a key", "this endpoint has none"]);
    assert!(matches!(c, Failure::NoKey { whose: Whose::Theirs, .. }));
    assert!(matches!(a, Failure::NoKey { whose: Whose::Ours, .. }));
    let (c, a) = Scene::between(no_key(), key(1)).play().neither();
    assert!(matches!(c, Failure::NoKey { whose: Whose::Ours, .. }));
    assert!(matches!(a, Failure::NoKey { whose: Whose::Theirs, .. }));
}

#[test]
fn no_key_is_needed_on_this_host_only() {
    for ip in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"] {
        assert!(Loopback::of(ip.parse().unwrap()).is_some(), "{ip}");
    }
    for ip in ["10.0.0.1", "0.0.0.0", "::", "fe80::1", "::ffff:10.0.0.1", "128.0.0.1"] {
        assert!(Loopback::of(ip.parse().unwrap()).is_none(), "{ip}");
    }
}

#[test]
fn versions_without_overlap_are_told_to_both() {
    let theirs = Versions { min: 2, max: 9 };
    let knock = |role| Knock { versions: theirs, auth: Some(AuthKind::Key), role, nonce: [9; 32] };
    let mut accepting = Side::new(Greeting::accept(key(1), nonce(2), "peer", DEADLINE));
    accepting.hear(&knock(Role::Connecting).encode(), 9, &mut |_, _| {});
    let failure = accepting.end.take().unwrap().unwrap_err();
    says(&failure, &["peer speaks versions 2 to 9", "this side 1 to 1", "update"]);
    // The other side is told which versions there are.
    let answer = Knock::decode(&accepting.speak()).unwrap();
    assert_eq!((answer.versions, answer.role), (VERSIONS, Role::Accepting));
    let greeting = Greeting::connect(key(1), nonce(1), "peer", offer(1), None, DEADLINE);
    let mut connecting = Side::new(greeting);
    connecting.hear(&knock(Role::Accepting).encode(), 9, &mut |_, _| {});
    let failure = connecting.end.unwrap().unwrap_err();
    assert!(matches!(failure, Failure::Version { theirs: it, .. } if it == theirs));
    // A newer side that still speaks ours is fine so far.
    let newer = Knock { versions: Versions { min: 1, max: 9 }, ..knock(Role::Connecting) };
    let mut accepting = Side::new(Greeting::accept(key(1), nonce(2), "peer", DEADLINE));
    accepting.hear(&newer.encode(), 9, &mut |_, _| {});
    assert!(accepting.end.is_none());
}

#[test]
fn a_kind_of_proof_that_is_not_known_is_named() {
    let knock = Knock { versions: VERSIONS, auth: None, role: Role::Connecting, nonce: [9; 32] };
    let mut accepting = Side::new(Greeting::accept(key(1), nonce(2), "peer", DEADLINE));
    accepting.hear(&knock.encode(), 9, &mut |_, _| {});
    says(accepting.end.unwrap().unwrap_err(), &["peer does not greet", "kind of proof"]);
}

#[test]
fn refusals_are_told() {
    let all = [
        (Refusal::Full { peers_max: 17 }, "17 peers"),
        (Refusal::Exhausted { errno: 24 }, "Too many open files"),
        (Refusal::UnknownSession { incarnation: 5 }, "session"),
        (Refusal::Closing, "about to close"),
    ];
    for (why, word) in all {
        let mut scene = Scene::between(key(1), key(1));
        let mut declined = None;
        let outcome = scene.play_with(&mut |greeting, asked| {
            assert_eq!((&asked.peer, asked.resumes), (&offer(1), None));
            declined = Some(greeting.decline(why));
        });
        let refused = outcome.connecting.unwrap_err();
        assert_eq!(refused, Failure::Refused { peer: "tcp:there:1".into(), why });
        says(refused, &["tcp:there:1 refused: ", word]);
        says(declined.unwrap(), &["10.0.0.9:7 was refused: ", word]);
    }
}

#[test]
fn what_does_not_go_together_is_told_to_both() {
    let (there, here) = (|| "tcp:there:1".into(), || "10.0.0.9:7".into());
    let why = Refusal::Itself;
    for (them, refused, declined) in [
        (
            Offer { tls: true, ..offer(2) },
            Failure::Unencrypted { peer: there(), whose: Whose::Ours },
            Failure::Unencrypted { peer: here(), whose: Whose::Theirs },
        ),
        (
            Offer { endpoint_id: [1; 16], ..offer(2) },
            Failure::Refused { peer: there(), why },
            Failure::Declined { peer: here(), why },
        ),
    ] {
        let mut scene = Scene::between(key(1), key(1));
        let mut said = None;
        let outcome = scene.play_with(&mut |g, _| said = Some(g.admit(&them, None).unwrap_err()));
        assert_eq!((said.unwrap(), outcome.connecting.unwrap_err()), (declined, refused));
    }
}

#[test]
fn who_has_the_key_and_offers_nonsense_is_told() {
    // Sides that differ from ours in nothing but their offer.
    let nonsense = Offer { incarnation: 0, ..offer(1) };
    let greeting = Greeting::connect(key(1), nonce(1), "there", nonsense, None, DEADLINE);
    let mut scene = Scene::new(greeting, Greeting::accept(key(1), nonce(2), "here", DEADLINE));
    let (c, a) = scene.play_with(&mut |_, _| panic!("it was taken for sense")).neither();
    assert_eq!(c, Failure::Refused { peer: "there".into(), why: Refusal::Senseless });
    says(a, &["here does not greet", "which endpoint"]);
    let mut scene = Scene::between(key(1), key(1));
    let nonsense = Offer { incarnation: 0, ..offer(2) };
    let (c, a) = scene.play_with(&mut |g, _| g.admit(&nonsense, None).unwrap()).neither();
    assert!(matches!(c, Failure::Garbage { .. }));
    assert_eq!(a, Failure::Refused { peer: "10.0.0.9:7".into(), why: Refusal::Senseless });
}

#[test]
fn nonces_are_fresh_and_secrets_differ() {
    let (one, other) = (Nonce::fresh().unwrap(), Nonce::fresh().unwrap());
    assert_ne!(one.bytes(), other.bytes());
    let greet = |nonce| {
        let greeting = Greeting::connect(key(1), nonce, "there", offer(1), None, DEADLINE);
        Scene::new(greeting, Greeting::accept(key(1), super::Nonce::fixed([9; 32]), "x", DEADLINE))
            .play()
            .both()
            .0
            .ticket
    };
    let (one, other) = (greet(one), greet(other));
    assert_ne!(one.id, other.id);
    assert!(one.secret != other.secret);
    assert_eq!(format!("{:?}", one.secret), "SessionSecret(hidden)");
    assert!(!format!("{:?}", Scene::between(key(1), key(1)).connecting.greeting).contains("Key(["));
}

#[test]
fn each_proof_is_for_one_purpose() {
    let mut transcript = Transcript::new();
    transcript.absorb(b"all that was said");
    let mut proofs = Purpose::ALL.map(|purpose| key(1).prove(purpose, &transcript)).to_vec();
    proofs.extend(Purpose::ALL.map(|purpose| no_key().prove(purpose, &transcript)));
    proofs.push(key(2).prove(Purpose::Claim, &transcript));
    transcript.absorb(b".");
    proofs.push(key(1).prove(Purpose::Claim, &transcript));
    let all = proofs.len();
    proofs.sort_unstable();
    proofs.dedup();
    assert_eq!(proofs.len(), all);
}

#[test]
fn a_side_decides_when_it_is_asked() {
    let mut greeting = Greeting::accept(key(1), nonce(2), "peer", DEADLINE);
    let over = Failure::Over { peer: "peer".into() };
    assert_eq!(greeting.decline(Refusal::Closing), over);
    assert!(greeting.output().is_empty());
}

#[test]
fn what_follows_the_greeting_is_left() {
    let scene = Scene::between(key(1), key(1));
    let (mut c, mut a) = (scene.connecting, scene.accepting);
    a.hear(&c.speak(), 99, &mut |_, _| {});
    c.hear(&a.speak(), 99, &mut |_, _| {});
    let mut claim = c.speak();
    claim.extend(b"what comes before the answer is none of its business");
    let Ok((used, Step::Decide(_))) = a.greeting.feed(&claim) else { panic!("no decision") };
    assert_eq!(used, CLAIM_BYTES);
    assert!(matches!(a.greeting.feed(&claim[used..]), Ok((0, Step::More))));
    a.greeting.admit(&offer(2), None).unwrap();
    let mut reply = a.speak();
    reply.extend(b"frames");
    let Ok((used, Step::Agreed(_))) = c.greeting.feed(&reply) else { panic!("no pair") };
    assert_eq!(&reply[used..], b"frames");
    let mut confirm = c.speak();
    confirm.extend(b"frames");
    let Ok((used, Step::Agreed(_))) = a.greeting.feed(&confirm) else { panic!("no pair") };
    assert_eq!(&confirm[used..], b"frames");
}
