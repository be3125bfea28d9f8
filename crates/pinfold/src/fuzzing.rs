//! The decoders of peers' bytes and the greeting between hosts, for a fuzzer: each function takes
//! any bytes, and panics if something is not as it should be. `fuzz/` has a target for each, and
//! the tests here run them over random inputs.
//!
//! This is not for programs, and may change with any version.

use std::{net::Ipv6Addr, sync::Arc};

use crate::{
    policy::route::PathSet,
    transport::{
        local::Limits,
        tcp::{
            greeting::{
                Agreed, Auth, Failure, Greeting, Nonce, Step, UNPROVEN_BYTES_MAX, proof::Loopback,
            },
            key::Key,
            tls::{Binding, Securing, Trouble},
        },
    },
    wire::{
        descriptor::{Body, Kind},
        hello, list, served_rma, space,
        tcp::{
            frame::{self, Brings, Follows, Head},
            greeting as packets,
            offer::{HostIdentity, LocalName, ModeSet, Offer},
        },
    },
};

#[cfg(test)]
mod tests;

/// The greeting over TCP.
///
/// The first byte tells the meaning of the others: bytes that one side hears, or changes to the
/// packets of an honest pair (see `tampered`). No stranger gets anywhere, and no changed greeting
/// ends well.
pub fn greeting(data: &[u8]) {
    let Some((&mode, rest)) = data.split_first() else { return };
    let auth = if mode & 1 == 0 { with_key() } else { without_key() };
    let part = usize::from(mode >> 3) + 1;
    match mode >> 1 & 3 {
        0 => strange(connecting(auth, NONCES[0]), rest, part),
        1 => strange(accepting(auth, NONCES[1]), rest, part),
        2 => tampered(auth, rest, part),
        _ => packets_of(rest),
    }
}

/// Bytes in place of a TLS handshake, and behind an honest one.
///
/// The first byte says which side hears them, whether it has opened a channel before, and in what
/// pieces. No stranger gets a channel, and nothing comes out of one that the other end did not put
/// in.
pub fn tls(data: &[u8]) {
    let Some((&mode, rest)) = data.split_first() else { return };
    let (heard, other) = match mode & 1 {
        0 => (packets::Role::Connecting, packets::Role::Accepting),
        _ => (packets::Role::Accepting, packets::Role::Connecting),
    };
    let new = |role| Securing::new(role).expect("random bytes");
    let (mut side, mut honest) = (new(heard), new(other));
    let part = usize::from(mode >> 2) * 64 + 1;
    if mode & 2 == 0 {
        let _ = spoken(&mut side);
        for part in rest.chunks(part) {
            match listened(&mut side, part, heard) {
                Ok(false) => {}
                Ok(true) => panic!("a stranger has a channel"),
                Err(_) => return,
            }
        }
        return;
    }
    let (mut opened, mut theirs) = (false, false);
    while !(opened && theirs) {
        theirs |= listened(&mut honest, &spoken(&mut side), other).expect("an honest peer");
        opened |= listened(&mut side, &spoken(&mut honest), heard).expect("an honest peer");
    }
    let mut session = side.into_session();
    for part in rest.chunks(part) {
        let room = session.room();
        let len = part.len().min(room.len());
        room[..len].copy_from_slice(&part[..len]);
        session.came(len);
        if session.take(|_| panic!("a stranger is believed")).is_err() {
            return;
        }
    }
}

/// The bytes that a side has to send.
fn spoken(side: &mut Securing) -> Vec<u8> {
    let mut bytes = Vec::new();
    side.session().send(&mut bytes).expect("there is room");
    bytes
}

/// Returns whether a side that hears these bytes has its channel.
fn listened(side: &mut Securing, bytes: &[u8], role: packets::Role) -> Result<bool, Trouble> {
    let room = side.session().room();
    assert!(room.len() >= bytes.len(), "no room for {} bytes", bytes.len());
    room[..bytes.len()].copy_from_slice(bytes);
    side.session().came(bytes.len());
    side.step(|exported| match role {
        packets::Role::Connecting => Binding { ours: *exported, theirs: exported.map(|it| !it) },
        packets::Role::Accepting => Binding { ours: exported.map(|it| !it), theirs: *exported },
    })
}

/// Frames over TCP: heads and the words behind them.
pub fn frames(data: &[u8]) {
    let Some((head, rest)) = data.split_first_chunk() else { return };
    let Some(head) = Head::read(head) else { return };
    assert_eq!(Head::read(&head.bytes()), Some(head));
    let Brings::Descriptor { header, words, .. } = head.brings else { return };
    let mut body = Body::default();
    frame::read_words(&rest[..rest.len().min(8 * words)], &mut body);
    let Some((mut body, follows)) = frame::arrived(header, &body) else { return };
    // A request to the owner of a region is decoded whole: nothing is lost or made up.
    if let (Some(Kind::Use), Some(asked)) = (header.kind(), served_rma::Use::read(header, &body)) {
        let again = asked.header(header.aux());
        assert_eq!((again, served_rma::Use::read(again, &asked.body())), (header, Some(asked)));
    }
    if let (Some(Kind::Used), Some(used)) = (header.kind(), served_rma::Used::read(header, &body)) {
        let again = used.header(header.aux());
        assert_eq!((again, served_rma::Used::read(again, &used.body())), (header, Some(used)));
    }
    // A decoded descriptor names no memory of this process, and could be sent on.
    if !matches!(follows, Follows::Long(_)) {
        assert!(frame::crossing(header, &mut body).is_some());
    }
}

/// The packets of the greeting on one host, the questions and answers about exposed memory, and
/// lists of parts.
pub fn local(data: &[u8]) {
    let _ = hello::decode_versions(data);
    if let Ok(introduction) = hello::decode_hello(data) {
        let again = hello::encode_hello(&introduction);
        assert_eq!(hello::decode_hello(&again), Ok(introduction));
    }
    let _ = hello::decode_answer(data);
    if let Ok((proof, verdict)) = hello::decode_proof(data) {
        let again = hello::encode_proof(&proof, &verdict);
        assert_eq!(hello::decode_proof(&again).map(|it| it.1), Ok(verdict));
    }
    let _ = hello::decode_ready(data);
    let _ = space::Ask::read(data);
    if let Some(answer) = space::Answered::read(data) {
        assert_eq!(space::Answered::read(&space::bytes_of(&answer.words())), Some(answer));
    }
    lists(data);
}

/// The parts of a message that was given away in several: its length, and the list.
fn lists(data: &[u8]) {
    let Some((len, bytes)) = data.split_first_chunk() else { return };
    let len = u64::from_ne_bytes(*len);
    let Some(parts) = list::read(bytes, len) else { return };
    assert!((2..=list::PARTS_MAX).contains(&parts.len()));
    assert_eq!(parts.iter().map(|part| part.len).sum::<u64>(), len);
    let mut again = Vec::new();
    parts.iter().for_each(|part| list::add(*part, &mut again));
    assert_eq!(again, bytes);
}

fn with_key() -> Auth {
    Auth::Key(Arc::new(Key::from_bytes(&[7; 32]).expect("32 bytes are a key")))
}

fn without_key() -> Auth {
    let here = Loopback::of(Ipv6Addr::LOCALHOST.into());
    Auth::None(here.expect("that is this host"))
}

/// Stand-ins for the nonces of both sides.
const NONCES: [u8; 2] = [1, 2];

fn connecting(auth: Auth, nonce: u8) -> Greeting {
    Greeting::connect(auth, Nonce::fixed([nonce; 32]), "fuzzer", offer(1), None, 1)
}

fn accepting(auth: Auth, nonce: u8) -> Greeting {
    Greeting::accept(auth, Nonce::fixed([nonce; 32]), "fuzzer", 1)
}

fn offer(id: u8) -> Offer {
    Offer {
        endpoint_id: [id; 16],
        incarnation: id.into(),
        host: HostIdentity { boot: [3; 16], word: 4 },
        local: Some(LocalName { user: 5, name: "box".into() }),
        label: "label".into(),
        limits: Limits { unexpected_bytes: 6, rendezvous_max: 7 },
        paths: PathSet::all(),
        modes: ModeSet::all(),
        tls: false,
    }
}

/// A stranger without the key, which can say anything.
fn strange(mut greeting: Greeting, bytes: &[u8], part: usize) {
    let mut taken = 0;
    for part in bytes.chunks(part) {
        match greeting.feed(part) {
            Ok((used, Step::More)) => {
                assert_eq!(used, part.len(), "it takes nothing and wants more");
                taken += used;
            }
            Ok((_, step)) => panic!("a stranger got to {step:?}"),
            Err(failure) => {
                assert!(!failure.to_string().is_empty());
                assert!(matches!(greeting.feed(part), Err(Failure::Over { .. })));
                break;
            }
        }
        assert!(taken < UNPROVEN_BYTES_MAX, "{taken} bytes without a proof");
    }
}

/// An honest pair, and an attacker between them. Three bytes a change: the side and the high part
/// of the place, the low part, the bits to flip.
fn tampered(auth: Auth, changes: &[u8], part: usize) {
    let mut flipped = false;
    let (_, c_end, a_end) = converse(auth, NONCES, part, |whose, said, bytes| {
        let honest = bytes.to_vec();
        for change in changes.chunks_exact(3) {
            let at = usize::from(change[0] >> 1) << 8 | usize::from(change[1]);
            let here = at.checked_sub(said).and_then(|at| bytes.get_mut(at));
            if let (Some(byte), true) = (here, usize::from(change[0] & 1) == whose) {
                *byte ^= change[2];
            }
        }
        flipped |= bytes != honest;
    });
    match (c_end, a_end) {
        (Some(Ok(c)), Some(Ok(a))) => {
            assert!(!flipped, "a changed greeting succeeded");
            assert!(c.ticket.id == a.ticket.id && c.ticket.secret == a.ticket.secret);
        }
        (_, Some(Ok(_))) => panic!("only the accepting side succeeded"),
        _ => assert!(flipped, "an honest greeting failed"),
    }
}

/// Runs a greeting until neither side has anything to say; returns the bytes that each has said,
/// and the outcome. `between` gets the side whose bytes come, the number of its bytes before, and
/// the bytes, to be changed.
fn converse(
    auth: Auth,
    nonces: [u8; 2],
    part: usize,
    mut between: impl FnMut(usize, usize, &mut [u8]),
) -> ([Vec<u8>; 2], End, End) {
    let (mut c, mut a) = (connecting(auth.clone(), nonces[0]), accepting(auth, nonces[1]));
    let (mut c_end, mut a_end, mut said) = (None, None, [vec![], vec![]]);
    while !(c.output().is_empty() && a.output().is_empty()) {
        for whose in [0, 1] {
            let (from, to, end) = if whose == 0 {
                (&mut c, &mut a, &mut a_end)
            } else {
                (&mut a, &mut c, &mut c_end)
            };
            let mut bytes = from.output().to_vec();
            from.sent(bytes.len());
            between(whose, said[whose].len(), &mut bytes);
            for part in bytes.chunks(part) {
                hear(to, part, end);
            }
            said[whose].extend(bytes);
        }
    }
    (said, c_end, a_end)
}

type End = Option<Result<Box<Agreed>, Failure>>;

fn hear(side: &mut Greeting, mut bytes: &[u8], end: &mut End) {
    while !bytes.is_empty() && end.is_none() {
        match side.feed(bytes) {
            Ok((used, step)) => {
                bytes = &bytes[used..];
                match step {
                    Step::More => assert!(bytes.is_empty(), "it takes nothing and wants more"),
                    Step::Decide(_) => side.admit(&offer(2), None).expect("the two fit"),
                    Step::Agreed(agreed) => *end = Some(Ok(agreed)),
                }
            }
            Err(failure) => *end = Some(Err(failure)),
        }
    }
}

/// Decodes packets whose proof was right. An accepted packet is encoded as it came.
fn packets_of(bytes: &[u8]) {
    if let Ok(knock) = packets::Knock::decode(bytes)
        && knock.auth.is_some()
    {
        assert_eq!(knock.encode(), bytes);
    }
    let Some((body, proof)) = packets::split_proof(bytes) else { return };
    let same = |mut packet: packets::Packet| {
        assert_eq!(packet.body(), body);
        assert_eq!(packet.proved(proof), bytes);
    };
    if let Ok((offer, wanted)) = packets::decode_claim(bytes) {
        same(packets::claim(&offer, &wanted));
    }
    match packets::decode_reply(bytes) {
        Ok(Ok((offer, wanted))) => same(packets::reply(Ok((&offer, &wanted)))),
        Ok(Err(why)) => same(packets::reply(Err(why))),
        Err(_) => {}
    }
    if let Ok(refusal) = packets::decode_confirm(bytes) {
        same(packets::confirm(refusal));
    }
}
