//! The greeting over TCP: packets of fixed sizes.
//!
//! ```text
//! connecting                        accepting
//!     Knock    ->                              versions, kind of proof, a fresh nonce
//!              <- Knock                        the same
//!     Claim    ->                              what I offer, and my proof
//!              <- Reply                        the same, or why not
//!     Confirm  ->                              my proof that I saw it, or why not
//! ```
//!
//! A Knock is the same in every version of the protocol. All packets after it end in a proof over
//! the whole greeting so far, and are looked at only if that is right.

use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
    little_endian::{U16, U32, U64},
};

use super::{
    super::hello::Malformed,
    offer::{Offer, RawOffer, Wanted},
};

type Decoded<T> = Result<T, Malformed>;

/// The oldest and the newest version of the protocol that this library speaks.
pub(crate) const VERSIONS: Versions = Versions { min: 1, max: 1 };

pub(crate) const NONCE_BYTES: usize = 32;
pub(crate) const PROOF_BYTES: usize = 32;

pub(crate) const KNOCK_BYTES: usize = size_of::<RawKnock>();
pub(crate) const CLAIM_BYTES: usize = size_of::<RawClaim>();
pub(crate) const REPLY_BYTES: usize = size_of::<RawReply>();
pub(crate) const CONFIRM_BYTES: usize = size_of::<RawConfirm>();

/// No packet is longer.
pub(crate) const PACKET_BYTES_MAX: usize = REPLY_BYTES;

/// A range of versions; none is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Versions {
    pub min: u16,
    pub max: u16,
}

impl Versions {
    /// The newest that both speak.
    pub(crate) fn newest_common(self, other: Versions) -> Option<u16> {
        let newest = self.max.min(other.max);
        (newest >= self.min.max(other.min)).then_some(newest)
    }
}

/// The kind of proof that a side may connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum AuthKind {
    /// No proof: there is no key, and both are on one host.
    None = 1,
    /// HMAC-SHA256 under a key that both have.
    Key = 2,
}

/// The side of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Role {
    Connecting = 1,
    Accepting = 2,
}

/// The first packet of either side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Knock {
    pub versions: Versions,
    /// `None`: one that this library does not know.
    pub auth: Option<AuthKind>,
    pub role: Role,
    pub nonce: [u8; NONCE_BYTES],
}

/// The reason why a side that has seen the other's proof goes no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The listening endpoint has all the peers it may have.
    Full { peers_max: u64 },
    /// The process ran out of something.
    Exhausted { errno: u32 },
    /// It does not know the session, or not as the other side does; with the process that it is.
    UnknownSession { incarnation: u64 },
    /// One side wants the connection encrypted, and the other does not.
    TlsDiffers,
    /// The other side's offer makes no sense.
    Senseless,
    /// Both are one endpoint.
    Itself,
    /// Another endpoint was expected here.
    OtherEndpoint,
    /// The endpoint is about to close.
    Closing,
}

/// The last byte is the edition: it changes with the layout of what follows.
const MAGIC: [u8; 8] = *b"PINFOLD\x0a";

/// The edition that this library speaks.
pub(crate) const EDITION: u8 = MAGIC[7];

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawKnock {
    magic: [u8; 8],
    /// Bytes of this packet.
    size: U16,
    version_min: U16,
    version_max: U16,
    auth: u8,
    role: u8,
    nonce: [u8; NONCE_BYTES],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawClaim {
    offer: RawOffer,
    proof: [u8; PROOF_BYTES],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawReply {
    verdict: RawVerdict,
    /// All zero, if it is refused.
    offer: RawOffer,
    proof: [u8; PROOF_BYTES],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawConfirm {
    verdict: RawVerdict,
    proof: [u8; PROOF_BYTES],
}

/// 0, or the code of a refusal, and its number.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawVerdict {
    code: U32,
    number: U64,
}

// Both sides may be built by different compilers: the layout is the protocol.
const _: () = {
    assert!(KNOCK_BYTES == 48);
    assert!(CLAIM_BYTES == 264);
    assert!(REPLY_BYTES == 276);
    assert!(CONFIRM_BYTES == 44);
    assert!(PACKET_BYTES_MAX >= CLAIM_BYTES);
};

/// A packet without its proof, which is added behind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet {
    bytes: [u8; PACKET_BYTES_MAX],
    len: usize,
}

impl Packet {
    fn new(raw: &(impl IntoBytes + Immutable)) -> Packet {
        let mut packet = Packet { bytes: [0; PACKET_BYTES_MAX], len: size_of_val(raw) };
        packet.bytes[..packet.len].copy_from_slice(raw.as_bytes());
        packet
    }

    /// The bytes under the proof.
    pub(crate) fn body(&self) -> &[u8] {
        &self.bytes[..self.len - PROOF_BYTES]
    }

    /// The whole packet.
    pub(crate) fn proved(&mut self, proof: &[u8; PROOF_BYTES]) -> &[u8] {
        self.bytes[self.len - PROOF_BYTES..self.len].copy_from_slice(proof);
        &self.bytes[..self.len]
    }
}

/// The bytes under the proof in a packet that has one, and the proof. `None`: it is too short.
pub(crate) fn split_proof(packet: &[u8]) -> Option<(&[u8], &[u8; PROOF_BYTES])> {
    packet.split_last_chunk()
}

impl Knock {
    pub(crate) fn encode(&self) -> [u8; KNOCK_BYTES] {
        let raw = RawKnock {
            magic: MAGIC,
            size: (KNOCK_BYTES as u16).into(),
            version_min: self.versions.min.into(),
            version_max: self.versions.max.into(),
            auth: self.auth.map_or(0, |auth| auth as u8),
            role: self.role as u8,
            nonce: self.nonce,
        };
        zerocopy::transmute!(raw)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Decoded<Knock> {
        let raw = exactly::<RawKnock>(bytes)?;
        if raw.magic != MAGIC || usize::from(raw.size.get()) != KNOCK_BYTES {
            return Err(Malformed("its greeting is not Pinfold's"));
        }
        let versions = Versions { min: raw.version_min.get(), max: raw.version_max.get() };
        if versions.min == 0 || versions.min > versions.max {
            return Err(Malformed("its range of protocol versions is empty"));
        }
        let role = match raw.role {
            1 => Role::Connecting,
            2 => Role::Accepting,
            _ => return Err(Malformed("it neither connects nor accepts")),
        };
        let auth = match raw.auth {
            1 => Some(AuthKind::None),
            2 => Some(AuthKind::Key),
            _ => None,
        };
        Ok(Knock { versions, auth, role, nonce: raw.nonce })
    }

    /// The edition of a knock that begins with these bytes, if it is another.
    pub(crate) fn other_edition(bytes: &[u8]) -> Option<u8> {
        let (name, edition) = bytes.get(..MAGIC.len())?.split_at(MAGIC.len() - 1);
        let other = name == &MAGIC[..MAGIC.len() - 1] && edition[0] != EDITION;
        other.then_some(edition[0])
    }

    /// Returns whether a knock can begin with these bytes.
    pub(crate) fn can_begin(bytes: &[u8]) -> bool {
        bytes.iter().zip(MAGIC).all(|(&is, expected)| is == expected)
    }
}

pub(crate) fn claim(offer: &Offer, wanted: &Wanted) -> Packet {
    Packet::new(&RawClaim { offer: RawOffer::new(offer, wanted), proof: [0; PROOF_BYTES] })
}

/// Decodes a Claim whose proof was right.
pub(crate) fn decode_claim(bytes: &[u8]) -> Decoded<(Offer, Wanted)> {
    exactly::<RawClaim>(bytes)?.offer.check()
}

pub(crate) fn reply(answer: Result<(&Offer, &Wanted), Refusal>) -> Packet {
    let (verdict, offer) = match answer {
        Ok((offer, wanted)) => (RawVerdict::new(None), RawOffer::new(offer, wanted)),
        Err(why) => (RawVerdict::new(Some(why)), RawOffer::nothing()),
    };
    Packet::new(&RawReply { verdict, offer, proof: [0; PROOF_BYTES] })
}

/// Decodes a Reply whose proof was right.
pub(crate) fn decode_reply(bytes: &[u8]) -> Decoded<Result<(Offer, Wanted), Refusal>> {
    let raw = exactly::<RawReply>(bytes)?;
    match raw.verdict.check()? {
        None => raw.offer.check().map(Ok),
        Some(why) if raw.offer.is_nothing() => Ok(Err(why)),
        Some(_) => Err(Malformed("it refuses and offers")),
    }
}

pub(crate) fn confirm(refusal: Option<Refusal>) -> Packet {
    Packet::new(&RawConfirm { verdict: RawVerdict::new(refusal), proof: [0; PROOF_BYTES] })
}

/// Decodes a Confirm whose proof was right.
pub(crate) fn decode_confirm(bytes: &[u8]) -> Decoded<Option<Refusal>> {
    exactly::<RawConfirm>(bytes)?.verdict.check()
}

fn exactly<T: FromBytes>(bytes: &[u8]) -> Decoded<T> {
    T::read_from_bytes(bytes).map_err(|_| Malformed("a greeting has the wrong size"))
}

impl RawVerdict {
    fn new(refusal: Option<Refusal>) -> RawVerdict {
        let (code, number) = match refusal {
            None => (0, 0),
            Some(Refusal::Full { peers_max }) => (1, peers_max),
            Some(Refusal::Exhausted { errno }) => (2, errno.into()),
            Some(Refusal::UnknownSession { incarnation }) => (3, incarnation),
            Some(Refusal::TlsDiffers) => (4, 0),
            Some(Refusal::Senseless) => (5, 0),
            Some(Refusal::Itself) => (6, 0),
            Some(Refusal::OtherEndpoint) => (7, 0),
            Some(Refusal::Closing) => (8, 0),
        };
        RawVerdict { code: U32::new(code), number: number.into() }
    }

    fn check(&self) -> Decoded<Option<Refusal>> {
        Ok(Some(match (self.code.get(), self.number.get()) {
            (0, 0) => return Ok(None),
            (1, peers_max) => Refusal::Full { peers_max },
            (2, errno @ 1..=4095) => Refusal::Exhausted { errno: errno as u32 },
            (3, incarnation) => Refusal::UnknownSession { incarnation },
            (4, 0) => Refusal::TlsDiffers,
            (5, 0) => Refusal::Senseless,
            (6, 0) => Refusal::Itself,
            (7, 0) => Refusal::OtherEndpoint,
            (8, 0) => Refusal::Closing,
            _ => return Err(Malformed("it refuses for no known reason")),
        }))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn knocks_survive_and_are_checked() {
        for role in [Role::Connecting, Role::Accepting] {
            for auth in [AuthKind::None, AuthKind::Key] {
                let versions = Versions { min: 1, max: 3 };
                let knock = Knock { versions, auth: Some(auth), role, nonce: [9; NONCE_BYTES] };
                assert_eq!(Knock::decode(&knock.encode()), Ok(knock));
            }
        }
        let knock = Knock {
            versions: VERSIONS,
            auth: Some(AuthKind::Key),
            role: Role::Connecting,
            nonce: [9; NONCE_BYTES],
        };
        let good = knock.encode();
        let with = |at: usize, byte: u8| {
            let mut bytes = good;
            bytes[at] = byte;
            Knock::decode(&bytes)
        };
        for (at, byte) in good.iter().enumerate().take(10) {
            assert!(with(at, byte ^ 1).unwrap_err().0.contains("not Pinfold's"), "byte {at}");
        }
        assert!(with(10, 0).unwrap_err().0.contains("versions"));
        assert!(with(10, 2).unwrap_err().0.contains("versions"));
        assert_eq!(with(14, 3).unwrap().auth, None);
        assert!(with(15, 3).unwrap_err().0.contains("neither"));
        for len in 0..KNOCK_BYTES {
            assert!(Knock::decode(&good[..len]).is_err());
            assert!(Knock::can_begin(&good[..len]));
        }
        assert!(Knock::decode(&[&good[..], &[0]].concat()).is_err());
        assert!(!Knock::can_begin(b"GET / HTTP/1.1\r\n\r\n"));
        assert!(!Knock::can_begin(b"PINFOLD\x05"));
    }

    #[test]
    fn the_newest_common_version() {
        let common =
            |a, b, c, d| Versions { min: a, max: b }.newest_common(Versions { min: c, max: d });
        assert_eq!(common(1, 1, 1, 1), Some(1));
        assert_eq!(common(1, 3, 2, 9), Some(3));
        assert_eq!(common(2, 9, 1, 3), Some(3));
        assert_eq!(common(1, 1, 2, 9), None);
        assert_eq!(common(2, 9, 1, 1), None);
    }

    #[test]
    fn refusals_survive_and_nothing_else_does() {
        let all = [
            Refusal::Full { peers_max: u64::MAX },
            Refusal::Exhausted { errno: 24 },
            Refusal::UnknownSession { incarnation: 77 },
            Refusal::TlsDiffers,
            Refusal::Senseless,
            Refusal::Itself,
            Refusal::OtherEndpoint,
            Refusal::Closing,
        ];
        for refusal in all {
            let mut packet = confirm(Some(refusal));
            assert_eq!(decode_confirm(packet.proved(&[1; 32])), Ok(Some(refusal)));
            let mut packet = reply(Err(refusal));
            assert_eq!(decode_reply(packet.proved(&[1; 32])), Ok(Err(refusal)));
            let mut packet = *packet.proved(&[1; 32]).first_chunk::<REPLY_BYTES>().unwrap();
            packet[100] = 1;
            assert!(decode_reply(&packet).is_err());
        }
        assert_eq!(decode_confirm(confirm(None).proved(&[1; 32])), Ok(None));
        for (code, number) in [(0, 1), (2, 0), (2, 4096), (4, 1), (8, 1), (9, 0), (u32::MAX, 0)] {
            let verdict = RawVerdict { code: code.into(), number: U64::new(number) };
            assert!(verdict.check().is_err(), "{code} {number}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_decoded_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = (Knock::decode(&bytes), decode_claim(&bytes));
            let _ = (decode_reply(&bytes), decode_confirm(&bytes), split_proof(&bytes));
        }
    }
}
