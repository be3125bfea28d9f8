//! The greeting: the messages two peers exchange over their socket before anything else.
//!
//! ```text
//! connecting                                   accepting
//!     Hello    ->                                           who I am, what I grant
//!              <- Welcome + segment, pidfd                  the same, and my proof about you
//!     Proof    -> + pidfd                                   my proof about you, my verdict on yours
//!              <- Ready                                     my verdict on yours
//! ```
//!
//! or, instead of Welcome or Ready, Refuse. Each message is one packet of a fixed size, in the
//! host's byte order. The first sixteen bytes of a message, its [`Head`], are the same in every
//! version of the protocol, and so is all of Refuse.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::policy::route::{Path, PathSet, Refusal};

mod refuse;
#[cfg(test)]
mod tests;

#[cfg(test)]
use self::refuse::CALLS;
pub(crate) use self::refuse::{Refuse, decode_refusal, encode_refuse};

/// The version of the protocol this library speaks.
pub(crate) const VERSION: u32 = 2;

/// The longest label, bytes.
pub(crate) const LABEL_MAX: usize = 32;

/// No message of the greeting is longer, bytes.
pub(crate) const MESSAGE_MAX: usize = 512;

/// The fault of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed(pub &'static str);

type Decoded<T> = Result<T, Malformed>;

/// The amounts that the sender of this record lets the other side have under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Bytes of unexpected messages; at most `i64::MAX`.
    pub unexpected_bytes: u64,
    /// Messages that wait in the memory of the other side.
    pub rendezvous_max: u32,
}

/// The facts that one side tells about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Introduction {
    /// Drawn at random when the endpoint was made.
    pub endpoint_id: [u8; 16],
    /// The user's name for the endpoint; at most 32 bytes, no control characters.
    pub label: String,
    /// Its process id in its own namespace.
    pub pid: u32,
    /// The paths it has not switched off.
    pub paths: PathSet,
    /// True if it takes part in global memory barriers.
    pub barrier_global: bool,
    /// The limits that it grants the reader of this.
    pub limits: Limits,
    /// The address of its nonce, followed by `mark`.
    pub nonce_addr: u64,
    /// The address of its scratch.
    pub scratch_addr: u64,
    /// Drawn at random for this greeting; memory that holds it behind the nonce is the sender's.
    pub mark: [u8; 16],
}

/// The accesses by one side to the other's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Proof {
    /// The nonce it read, or the reason why it could not.
    pub read: Result<[u8; 16], Refusal>,
    /// The token it wrote to the scratch, or the reason why it could not.
    pub write: Result<[u8; 16], Refusal>,
}

/// The parts of a proof that were right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// `Ok` if the nonce was read.
    pub read: Result<(), Refusal>,
    /// `Ok` if the scratch was written.
    pub write: Result<(), Refusal>,
}

impl Verdict {
    /// True if any was.
    pub(crate) fn reaches(&self) -> bool {
        self.read.is_ok() || self.write.is_ok()
    }
}

/// A message that answers a Hello.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The connection goes on: the sender's introduction, and its proof about the reader.
    Welcome(Introduction, Proof),
    /// The connection is refused.
    Refused(Refuse),
}

const MAGIC: u32 = u32::from_le_bytes(*b"PNFD");

const HELLO: u32 = 1;
const WELCOME: u32 = 2;
const PROOF: u32 = 3;
const READY: u32 = 4;
const REFUSE: u32 = 5;

/// The beginning of every message, in every version.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Head {
    magic: u32,
    kind: u32,
    version_min: u32,
    version_max: u32,
}

const FLAG_BARRIER_GLOBAL: u32 = 1;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct RawIntroduction {
    endpoint_id: [u8; 16],
    mark: [u8; 16],
    nonce_addr: u64,
    scratch_addr: u64,
    unexpected_bytes: u64,
    rendezvous_max: u32,
    pid: u32,
    flags: u32,
    paths: u16,
    label_len: u16,
    label: [u8; LABEL_MAX],
}

/// An outcome is 0 or the [`code`] of a refusal.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct RawProof {
    nonce: [u8; 16],
    token: [u8; 16],
    read: i32,
    write: i32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct RawVerdict {
    read: i32,
    write: i32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct HelloMessage {
    head: Head,
    introduction: RawIntroduction,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct WelcomeMessage {
    head: Head,
    introduction: RawIntroduction,
    proof: RawProof,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct ProofMessage {
    head: Head,
    proof: RawProof,
    verdict: RawVerdict,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct ReadyMessage {
    head: Head,
    verdict: RawVerdict,
}

// Both sides may be built by different compilers: the layout is the protocol.
const _: () = {
    assert!(size_of::<Head>() == 16);
    assert!(size_of::<RawIntroduction>() == 104);
    assert!(size_of::<HelloMessage>() == 120);
    assert!(size_of::<WelcomeMessage>() == 160);
    assert!(size_of::<ProofMessage>() == 64);
    assert!(size_of::<ReadyMessage>() == 24);
    assert!(size_of::<WelcomeMessage>() <= MESSAGE_MAX);
};

/// The versions the sender of a Hello speaks, oldest and newest. Any later version's Hello can
/// be read this far.
pub(crate) fn decode_versions(bytes: &[u8]) -> Decoded<(u32, u32)> {
    let head = head(bytes, HELLO)?;
    Ok((head.version_min, head.version_max))
}

/// True if a peer that speaks `min` to `max` speaks ours.
pub(crate) fn speaks_ours(min: u32, max: u32) -> bool {
    (min..=max).contains(&VERSION)
}

pub(crate) fn encode_hello(us: &Introduction) -> Vec<u8> {
    let introduction = RawIntroduction::from(us);
    HelloMessage { head: Head::new(HELLO), introduction }.as_bytes().to_vec()
}

/// Decodes a Hello whose versions were found to include ours.
pub(crate) fn decode_hello(bytes: &[u8]) -> Decoded<Introduction> {
    head(bytes, HELLO)?;
    exactly::<HelloMessage>(bytes)?.introduction.check()
}

pub(crate) fn encode_welcome(us: &Introduction, about_you: &Proof) -> Vec<u8> {
    let introduction = RawIntroduction::from(us);
    let proof = RawProof::from(about_you);
    WelcomeMessage { head: Head::new(WELCOME), introduction, proof }.as_bytes().to_vec()
}

/// Decodes the answer to a Hello.
pub(crate) fn decode_answer(bytes: &[u8]) -> Decoded<Answer> {
    if head(bytes, REFUSE).is_ok() {
        return Ok(Answer::Refused(refuse::decode(bytes)?));
    }
    chosen(head(bytes, WELCOME)?)?;
    let welcome = exactly::<WelcomeMessage>(bytes)?;
    Ok(Answer::Welcome(welcome.introduction.check()?, welcome.proof.check()?))
}

pub(crate) fn encode_proof(about_you: &Proof, on_yours: &Verdict) -> Vec<u8> {
    let (proof, verdict) = (RawProof::from(about_you), RawVerdict::from(on_yours));
    ProofMessage { head: Head::new(PROOF), proof, verdict }.as_bytes().to_vec()
}

pub(crate) fn decode_proof(bytes: &[u8]) -> Decoded<(Proof, Verdict)> {
    chosen(head(bytes, PROOF)?)?;
    let message = exactly::<ProofMessage>(bytes)?;
    Ok((message.proof.check()?, message.verdict.check()?))
}

pub(crate) fn encode_ready(on_yours: &Verdict) -> Vec<u8> {
    let verdict = RawVerdict::from(on_yours);
    ReadyMessage { head: Head::new(READY), verdict }.as_bytes().to_vec()
}

pub(crate) fn decode_ready(bytes: &[u8]) -> Decoded<Verdict> {
    chosen(head(bytes, READY)?)?;
    exactly::<ReadyMessage>(bytes)?.verdict.check()
}

/// A label fit to be sent: control characters replaced, cut at a character within 32 bytes.
pub(crate) fn fit_label(label: &str) -> String {
    let mut fit = String::new();
    for char in label.chars() {
        let char = if char.is_control() { '?' } else { char };
        if fit.len() + char.len_utf8() > LABEL_MAX {
            break;
        }
        fit.push(char);
    }
    fit
}

/// Paths as bits, the first path the lowest.
pub(crate) fn path_bits(paths: PathSet) -> u16 {
    paths.iter().fold(0, |bits, path| bits | 1 << path as u16)
}

/// The paths that these bits name.
pub(crate) fn paths_of(bits: u16) -> Decoded<PathSet> {
    if bits & !path_bits(PathSet::all()) != 0 {
        return Err(Malformed("it names paths that do not exist"));
    }
    let named = Path::ALL.into_iter().filter(|&path| bits & 1 << path as u16 != 0);
    Ok(named.fold(PathSet::none(), PathSet::with))
}

impl Head {
    fn new(kind: u32) -> Head {
        Head { magic: MAGIC, kind, version_min: VERSION, version_max: VERSION }
    }
}

/// The head of a message that has to be of this kind.
fn head(bytes: &[u8], kind: u32) -> Decoded<Head> {
    let (head, _) =
        Head::read_from_prefix(bytes).map_err(|_| Malformed("a greeting is cut short"))?;
    if head.magic != MAGIC {
        return Err(Malformed("its greeting is not Pinfold's"));
    }
    if head.kind != kind {
        return Err(Malformed("a greeting came out of turn"));
    }
    if head.version_min == 0 || head.version_min > head.version_max {
        return Err(Malformed("its range of protocol versions is empty"));
    }
    Ok(head)
}

/// After Hello, the version is settled.
fn chosen(head: Head) -> Decoded<()> {
    if (head.version_min, head.version_max) == (VERSION, VERSION) {
        Ok(())
    } else {
        Err(Malformed("it chose a protocol version that was not offered"))
    }
}

fn exactly<T: FromBytes>(bytes: &[u8]) -> Decoded<T> {
    T::read_from_bytes(bytes).map_err(|_| Malformed("a greeting has the wrong size"))
}

impl From<&Introduction> for RawIntroduction {
    fn from(us: &Introduction) -> RawIntroduction {
        let fit = fit_label(&us.label);
        let mut label = [0; LABEL_MAX];
        label[..fit.len()].copy_from_slice(fit.as_bytes());
        RawIntroduction {
            endpoint_id: us.endpoint_id,
            mark: us.mark,
            nonce_addr: us.nonce_addr,
            scratch_addr: us.scratch_addr,
            unexpected_bytes: us.limits.unexpected_bytes.min(i64::MAX as u64),
            rendezvous_max: us.limits.rendezvous_max,
            pid: us.pid,
            flags: if us.barrier_global { FLAG_BARRIER_GLOBAL } else { 0 },
            paths: path_bits(us.paths),
            label_len: fit.len() as u16,
            label,
        }
    }
}

impl RawIntroduction {
    fn check(&self) -> Decoded<Introduction> {
        let label = self
            .label
            .get(..usize::from(self.label_len))
            .and_then(|label| std::str::from_utf8(label).ok())
            .filter(|label| !label.chars().any(char::is_control))
            .ok_or(Malformed("its label is not text"))?;
        let paths = paths_of(self.paths)?;
        if self.flags & !FLAG_BARRIER_GLOBAL != 0 {
            return Err(Malformed("it sets flags that do not exist"));
        }
        if self.pid == 0 || self.pid > i32::MAX as u32 {
            return Err(Malformed("its process id cannot be one"));
        }
        if self.unexpected_bytes > i64::MAX as u64 {
            return Err(Malformed("it grants more bytes than can be"));
        }
        // Only the kernel ever follows these, but no address of a process looks otherwise.
        for addr in [self.nonce_addr, self.scratch_addr] {
            if addr == 0 || addr % 8 != 0 || addr > i64::MAX as u64 {
                return Err(Malformed("it gives an address that cannot be one"));
            }
        }
        Ok(Introduction {
            endpoint_id: self.endpoint_id,
            label: label.to_owned(),
            pid: self.pid,
            paths,
            barrier_global: self.flags & FLAG_BARRIER_GLOBAL != 0,
            limits: Limits {
                unexpected_bytes: self.unexpected_bytes,
                rendezvous_max: self.rendezvous_max,
            },
            nonce_addr: self.nonce_addr,
            scratch_addr: self.scratch_addr,
            mark: self.mark,
        })
    }
}

const ERRNO_MAX: i32 = 4095;
const WRONG_PROCESS: i32 = -1;
const SWITCHED_OFF: i32 = -2;
const CONFINED: i32 = -3;
const FICKLE: i32 = -4;

/// A refusal in a proof or verdict, as a number other than 0.
fn code(why: Refusal) -> i32 {
    match why {
        Refusal::Denied(errno) => errno.clamp(1, ERRNO_MAX),
        Refusal::WrongProcess => WRONG_PROCESS,
        Refusal::Confined => CONFINED,
        Refusal::Fickle => FICKLE,
        // No other reason keeps a path from being tried.
        _ => SWITCHED_OFF,
    }
}

fn outcome<T>(code: i32, value: T) -> Decoded<Result<T, Refusal>> {
    match code {
        0 => Ok(Ok(value)),
        1..=ERRNO_MAX => Ok(Err(Refusal::Denied(code))),
        WRONG_PROCESS => Ok(Err(Refusal::WrongProcess)),
        SWITCHED_OFF => Ok(Err(Refusal::SwitchedOff)),
        CONFINED => Ok(Err(Refusal::Confined)),
        FICKLE => Ok(Err(Refusal::Fickle)),
        _ => Err(Malformed("the outcome of its trial cannot be one")),
    }
}

impl From<&Proof> for RawProof {
    fn from(proof: &Proof) -> RawProof {
        RawProof {
            nonce: proof.read.unwrap_or_default(),
            token: proof.write.unwrap_or_default(),
            read: proof.read.err().map_or(0, code),
            write: proof.write.err().map_or(0, code),
        }
    }
}

impl RawProof {
    fn check(&self) -> Decoded<Proof> {
        Ok(Proof { read: outcome(self.read, self.nonce)?, write: outcome(self.write, self.token)? })
    }
}

impl From<&Verdict> for RawVerdict {
    fn from(verdict: &Verdict) -> RawVerdict {
        RawVerdict {
            read: verdict.read.err().map_or(0, code),
            write: verdict.write.err().map_or(0, code),
        }
    }
}

impl RawVerdict {
    fn check(&self) -> Decoded<Verdict> {
        Ok(Verdict { read: outcome(self.read, ())?, write: outcome(self.write, ())? })
    }
}
