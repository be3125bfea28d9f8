//! The greeting over TCP as a state machine without I/O: bytes go in and come out, and in the end
//! there is a pair that agrees on everything, or a [`Failure`] that says why not. The packets are
//! in [`wire::tcp::greeting`](crate::wire::tcp::greeting).
//!
//! # What it proves
//!
//! Both sides have the same key, now. Each sends 32 fresh random bytes, and each later packet ends
//! in an HMAC-SHA256 under the key over a digest of *all* earlier packets of either side, and of
//! the packet itself: versions, kinds of proof, roles, nonces, offers with the identities in them.
//! So nothing can be replayed, since the nonces differ; nothing reflected, since each packet has a
//! domain of its own and a side knocks with its role; and nothing changed, left out or taken from
//! another greeting. The connecting side proves first: a stranger learns which versions the
//! listening side speaks and whether it has a key, and nothing else.
//!
//! Bytes after the greeting are not protected by it. An attacker that can change packets on the
//! network can still change those, and one that can read packets reads them, unless both sides want
//! the connection [encrypted](super::tls): then the encryption is [bound](Greeting::bind) to the
//! greeting.
//!
//! # What a stranger can cost
//!
//! Nothing is parsed before its proof was found right, except a knock of 48 bytes. Until then, a
//! side takes [`UNPROVEN_BYTES_MAX`] bytes, into memory that it has from the beginning, and
//! computes two HMACs. It ends at the first wrong byte of the first eight, or at its deadline.

use std::sync::Arc;

use super::tls::{Binding, EXPORTED_BYTES};
use crate::wire::{
    hello::Malformed,
    tcp::{
        greeting::{
            self as wire, CLAIM_BYTES, CONFIRM_BYTES, KNOCK_BYTES, Knock, PACKET_BYTES_MAX, Packet,
            REPLY_BYTES, Refusal, Role, VERSIONS,
        },
        offer::{Offer, Wanted},
    },
};

mod agree;
mod failure;
mod outcome;
pub(crate) mod proof;
#[cfg(test)]
mod tests;

pub(crate) use failure::{Failure, Whose};
pub(crate) use outcome::{Agreed, Asked, Ticket};
pub(crate) use proof::{Auth, Nonce, SessionSecret};
use proof::{Purpose, Transcript};

/// Bytes that a side takes from a peer before the peer has proved anything.
#[cfg(any(test, all(feature = "internals", feature = "tls")))]
pub(crate) const UNPROVEN_BYTES_MAX: usize = KNOCK_BYTES + PACKET_BYTES_MAX;

/// All that a side ever says.
const OUTPUT_BYTES_MAX: usize = KNOCK_BYTES + PACKET_BYTES_MAX + CONFIRM_BYTES;

/// One side of a greeting under way.
#[derive(Debug)]
pub(crate) struct Greeting {
    auth: Auth,
    role: Role,
    nonce: Nonce,
    /// True if this side wants the connection encrypted, as far as it has said.
    encrypts: bool,
    /// For messages.
    peer: Arc<str>,
    deadline_ns: u64,
    transcript: Transcript,
    state: State,
    /// The beginning of the next packet.
    input: [u8; PACKET_BYTES_MAX],
    have: usize,
    output: [u8; OUTPUT_BYTES_MAX],
    queued: usize,
    sent: usize,
}

#[derive(Debug)]
enum State {
    /// Connecting: Knock is sent. Accepting (`None`): nothing is.
    AwaitKnock(Option<Box<Opening>>),
    /// Accepting: Knock is sent.
    AwaitClaim { version: u16 },
    /// Accepting: the driver of this has to say whether the peer may come in.
    Deciding(Box<Known>),
    /// Connecting: Claim is sent.
    AwaitReply { version: u16, knocks: [u8; 32], opening: Box<Opening> },
    /// Accepting: Reply is sent.
    AwaitConfirm(Box<Agreed>),
    /// It succeeded or failed.
    Over,
}

/// The data with which a connecting side begins.
#[derive(Debug)]
struct Opening {
    us: Offer,
    ticket: Option<Ticket>,
}

/// The data by which an accepting side decides.
#[derive(Debug)]
struct Known {
    version: u16,
    knocks: [u8; 32],
    peer: Offer,
    wanted: Wanted,
}

/// The outcome of a step.
#[derive(Debug)]
pub(crate) enum Step {
    /// More bytes are needed, once [the output](Greeting::output) is sent.
    More,
    /// Accepting: the peer has the key. [`Greeting::admit`] or [`Greeting::decline`] it.
    Decide(Box<Asked>),
    /// It succeeded. On the connecting side, there is output to be sent first.
    Agreed(Box<Agreed>),
}

impl Greeting {
    /// The connecting side. `peer` names the other one in messages, `ticket` is of a session to go
    /// on with.
    pub(crate) fn connect(
        auth: Auth,
        nonce: Nonce,
        peer: &str,
        us: Offer,
        ticket: Option<Ticket>,
        deadline_ns: u64,
    ) -> Greeting {
        let encrypts = us.tls;
        let opening = Box::new(Opening { us, ticket });
        let state = State::AwaitKnock(Some(opening));
        let mut greeting = Greeting::new(auth, nonce, peer, Role::Connecting, state, deadline_ns);
        greeting.encrypts = encrypts;
        greeting.knock();
        greeting
    }

    /// The accepting side. `peer` names the other one in messages.
    pub(crate) fn accept(auth: Auth, nonce: Nonce, peer: &str, deadline_ns: u64) -> Greeting {
        Greeting::new(auth, nonce, peer, Role::Accepting, State::AwaitKnock(None), deadline_ns)
    }

    fn new(
        auth: Auth,
        nonce: Nonce,
        peer: &str,
        role: Role,
        state: State,
        deadline_ns: u64,
    ) -> Greeting {
        Greeting {
            auth,
            role,
            nonce,
            encrypts: false,
            peer: peer.into(),
            deadline_ns,
            transcript: Transcript::new(),
            state,
            input: [0; PACKET_BYTES_MAX],
            have: 0,
            output: [0; OUTPUT_BYTES_MAX],
            queued: 0,
            sent: 0,
        }
    }

    /// Bytes to be sent, also after it succeeded or failed.
    pub(crate) fn output(&self) -> &[u8] {
        &self.output[self.sent..self.queued]
    }

    /// Says that the first `bytes` of the output were sent.
    ///
    /// # Panics
    /// If there were not so many.
    pub(crate) fn sent(&mut self, bytes: usize) {
        assert!(bytes <= self.output().len(), "more was sent than there was");
        self.sent += bytes;
    }

    /// Takes bytes that have come: returns how many of them, and how far that led. The rest belongs
    /// to the connection after the greeting, or is to be given again after a decision.
    ///
    /// # Errors
    /// The greeting failed, and so will every later step.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Result<(usize, Step), Failure> {
        let mut used = 0;
        loop {
            let len = match self.state {
                State::AwaitKnock(_) => KNOCK_BYTES,
                State::AwaitClaim { .. } => CLAIM_BYTES,
                State::AwaitReply { .. } => REPLY_BYTES,
                State::AwaitConfirm(_) => CONFIRM_BYTES,
                State::Deciding(_) => return Ok((used, Step::More)),
                State::Over => return Err(self.over()),
            };
            let more = (bytes.len() - used).min(len - self.have);
            self.input[self.have..self.have + more].copy_from_slice(&bytes[used..used + more]);
            (self.have, used) = (self.have + more, used + more);
            let knocking = matches!(self.state, State::AwaitKnock(_));
            if knocking && !Knock::can_begin(&self.input[..self.have]) {
                return Err(self.not_ours());
            }
            if self.have < len {
                return Ok((used, Step::More));
            }
            self.have = 0;
            let packet = self.input;
            match self.take(&packet[..len])? {
                Step::More => {}
                step => return Ok((used, step)),
            }
        }
    }

    /// Accepting: the endpoint that was let in, and has the last word.
    pub(crate) fn admitted(&self) -> Option<[u8; 16]> {
        match &self.state {
            State::AwaitConfirm(agreed) => Some(agreed.peer.endpoint_id),
            _ => None,
        }
    }

    /// The time to give up.
    pub(crate) fn deadline_ns(&self) -> u64 {
        self.deadline_ns
    }

    /// The failure of a greeting that is not over at its deadline.
    pub(crate) fn expired(&mut self, now_ns: u64) -> Option<Failure> {
        if now_ns < self.deadline_ns || matches!(self.state, State::Over) {
            return None;
        }
        let failure = Failure::TooLate { peer: self.peer.clone(), missing: self.missing() };
        self.state = State::Over;
        Some(failure)
    }

    /// The failure of a greeting whose connection was closed by the peer. `None`: it was over.
    pub(crate) fn closed(&mut self) -> Option<Failure> {
        let hint = match (self.role, &self.state) {
            (_, State::Over) => return None,
            (Role::Connecting, State::AwaitReply { .. }) if self.auth.is_key() => {
                "it got our proof, so most likely its key is another; compare both: sha256sum KEY"
            }
            (Role::Accepting, State::AwaitClaim { .. }) if self.auth.is_key() => {
                "it was to prove its key, so most likely it has none, or another version"
            }
            (Role::Connecting, State::AwaitKnock(_)) => {
                "it said nothing; see that a Pinfold endpoint of the same version listens there"
            }
            _ => "see what the other side logs",
        };
        let failure = Failure::Closed { peer: self.peer.clone(), missing: self.missing(), hint };
        self.state = State::Over;
        Some(failure)
    }

    /// Accepting: lets the peer in. `us` is this side's offer, `ticket` that of the session it
    /// [asks](Asked::resumes) to go on with, if this side has it.
    ///
    /// # Errors
    /// [`Failure::Declined`] if the two do not fit. The output says so to the peer.
    pub(crate) fn admit(&mut self, us: &Offer, ticket: Option<Ticket>) -> Result<(), Failure> {
        let State::Deciding(known) = std::mem::replace(&mut self.state, State::Over) else {
            return Err(self.over());
        };
        self.encrypts = us.tls;
        let Known { version, knocks, peer, wanted } = *known;
        let peer_received = match self.fits(us, &peer, ticket.as_ref(), &wanted, &knocks) {
            Ok(received) => received,
            Err(why) => return Err(self.refuse(why)),
        };
        let ours = self.wanted(ticket.as_ref(), &knocks);
        self.send(wire::reply(Ok((us, &ours))), Purpose::Reply);
        let agreed = self.agree(version, us, peer, ticket, peer_received);
        self.state = State::AwaitConfirm(agreed);
        Ok(())
    }

    /// Accepting: keeps the peer out, and tells it the reason.
    pub(crate) fn decline(&mut self, why: Refusal) -> Failure {
        if !matches!(self.state, State::Deciding(_)) {
            return self.over();
        }
        self.state = State::Over;
        self.refuse(why)
    }

    /// The proof that both sides have to show within an encrypted channel that exports this, once
    /// both have agreed: that it ends where this greeting did.
    pub(crate) fn bind(&self, exported: &[u8; EXPORTED_BYTES]) -> Binding {
        let mut transcript = self.transcript.clone();
        transcript.absorb(exported);
        let of = |role| self.auth.prove(Purpose::Channel(role), &transcript);
        match self.role {
            Role::Connecting => Binding { ours: of(Role::Connecting), theirs: of(Role::Accepting) },
            Role::Accepting => Binding { ours: of(Role::Accepting), theirs: of(Role::Connecting) },
        }
    }

    /// Takes one packet. After an error the greeting is over.
    fn take(&mut self, packet: &[u8]) -> Result<Step, Failure> {
        match std::mem::replace(&mut self.state, State::Over) {
            State::AwaitKnock(opening) => self.on_knock(packet, opening),
            State::AwaitClaim { version } => self.on_claim(packet, version),
            State::AwaitReply { version, knocks, opening } => {
                self.on_reply(packet, version, &knocks, *opening)
            }
            State::AwaitConfirm(agreed) => self.on_confirm(packet, agreed),
            State::Deciding(_) | State::Over => Err(self.over()),
        }
    }

    /// Sends our own Knock, and takes it down.
    fn knock(&mut self) {
        let auth = Some(self.auth.kind());
        let nonce = *self.nonce.bytes();
        let knock = Knock { versions: VERSIONS, auth, role: self.role, nonce }.encode();
        self.transcript.absorb(&knock);
        self.queue(&knock);
    }

    fn on_knock(&mut self, packet: &[u8], opening: Option<Box<Opening>>) -> Result<Step, Failure> {
        let knock = Knock::decode(packet).map_err(|why| self.garbage(why))?;
        if knock.role == self.role || &knock.nonce == self.nonce.bytes() {
            return Err(Failure::Reflected { peer: self.peer.clone() });
        }
        // Both sides take down both knocks, that of the connecting side first.
        self.transcript.absorb(packet);
        if self.role == Role::Accepting {
            // Also if there is no more to say: the other side shall see the reason.
            self.knock();
        }
        let version = VERSIONS.newest_common(knock.versions).ok_or_else(|| Failure::Version {
            peer: self.peer.clone(),
            ours: VERSIONS,
            theirs: knock.versions,
        })?;
        match knock.auth {
            None => return Err(self.garbage(Malformed("its kind of proof is not known here"))),
            Some(theirs) if theirs != self.auth.kind() => {
                let whose = if self.auth.is_key() { Whose::Theirs } else { Whose::Ours };
                return Err(Failure::NoKey { peer: self.peer.clone(), whose });
            }
            Some(_) => {}
        }
        self.state = match opening {
            None => State::AwaitClaim { version },
            Some(opening) => {
                let knocks = self.transcript.digest();
                let wanted = self.wanted(opening.ticket.as_ref(), &knocks);
                self.send(wire::claim(&opening.us, &wanted), Purpose::Claim);
                State::AwaitReply { version, knocks, opening }
            }
        };
        Ok(Step::More)
    }

    /// Accepting: takes Claim.
    fn on_claim(&mut self, packet: &[u8], version: u16) -> Result<Step, Failure> {
        let knocks = self.transcript.digest();
        self.verify(packet, Purpose::Claim)?;
        let (peer, wanted) = wire::decode_claim(packet).map_err(|why| {
            self.refuse(Refusal::Senseless);
            self.garbage(why)
        })?;
        let resumes = match wanted {
            Wanted::New => None,
            Wanted::Resume(resume) => Some(resume.id),
        };
        let asked = Box::new(Asked { peer: peer.clone(), resumes });
        self.state = State::Deciding(Box::new(Known { version, knocks, peer, wanted }));
        Ok(Step::Decide(asked))
    }

    /// Connecting: takes Reply and sends Confirm.
    fn on_reply(
        &mut self,
        packet: &[u8],
        version: u16,
        knocks: &[u8; 32],
        opening: Opening,
    ) -> Result<Step, Failure> {
        self.verify(packet, Purpose::Reply)?;
        let answer = wire::decode_reply(packet).map_err(|why| {
            self.refuse(Refusal::Senseless);
            self.garbage(why)
        })?;
        let (peer, wanted) = answer.map_err(|why| self.refused(why))?;
        let Opening { us, ticket } = opening;
        let peer_received = self
            .fits(&us, &peer, ticket.as_ref(), &wanted, knocks)
            .map_err(|why| self.refuse(why))?;
        let agreed = self.agree(version, &us, peer, ticket, peer_received);
        self.send(wire::confirm(None), Purpose::Confirm);
        Ok(Step::Agreed(agreed))
    }

    /// Accepting: takes Confirm.
    fn on_confirm(&mut self, packet: &[u8], agreed: Box<Agreed>) -> Result<Step, Failure> {
        self.verify(packet, Purpose::Confirm)?;
        match wire::decode_confirm(packet).map_err(|why| self.garbage(why))? {
            None => Ok(Step::Agreed(agreed)),
            Some(why) => Err(self.refused(why)),
        }
    }

    /// Proves a packet, takes it down and sends it.
    fn send(&mut self, mut packet: Packet, purpose: Purpose) {
        self.transcript.absorb(packet.body());
        let proof = self.auth.prove(purpose, &self.transcript);
        self.transcript.absorb(&proof);
        self.queue(packet.proved(&proof));
    }

    /// Takes a packet down if its proof is right.
    fn verify(&mut self, packet: &[u8], purpose: Purpose) -> Result<(), Failure> {
        let (body, proof) = wire::split_proof(packet)
            .ok_or_else(|| self.garbage(Malformed("a greeting has the wrong size")))?;
        self.transcript.absorb(body);
        if !proof::is_same(proof, &self.auth.prove(purpose, &self.transcript)) {
            return Err(if self.auth.is_key() {
                Failure::WrongKey { peer: self.peer.clone() }
            } else {
                self.garbage(Malformed("its greeting does not fit what was said before"))
            });
        }
        self.transcript.absorb(proof);
        Ok(())
    }

    fn queue(&mut self, bytes: &[u8]) {
        self.output[self.queued..self.queued + bytes.len()].copy_from_slice(bytes);
        self.queued += bytes.len();
    }

    /// Tells a peer that has the key the reason why it goes no further.
    fn refuse(&mut self, why: Refusal) -> Failure {
        match self.role {
            Role::Accepting => self.send(wire::reply(Err(why)), Purpose::Reply),
            Role::Connecting => self.send(wire::confirm(Some(why)), Purpose::Confirm),
        }
        match why {
            Refusal::TlsDiffers => self.unlike(),
            why => Failure::Declined { peer: self.peer.clone(), why },
        }
    }

    fn refused(&self, why: Refusal) -> Failure {
        match why {
            Refusal::TlsDiffers => self.unlike(),
            why => Failure::Refused { peer: self.peer.clone(), why },
        }
    }

    /// One side wants the connection encrypted, and the other does not.
    fn unlike(&self) -> Failure {
        let whose = if self.encrypts { Whose::Theirs } else { Whose::Ours };
        Failure::Unencrypted { peer: self.peer.clone(), whose }
    }

    fn garbage(&self, why: Malformed) -> Failure {
        Failure::Garbage { peer: self.peer.clone(), what: why.0 }
    }

    fn over(&self) -> Failure {
        Failure::Over { peer: self.peer.clone() }
    }

    /// The packet that is waited for.
    fn missing(&self) -> &'static str {
        match self.state {
            State::AwaitKnock(_) => "its first packet",
            State::AwaitClaim { .. } => "its proof and what it offers",
            State::Deciding(_) => "our own decision",
            State::AwaitReply { .. } => "its answer",
            State::AwaitConfirm(_) => "its last word",
            State::Over => "nothing",
        }
    }
}
