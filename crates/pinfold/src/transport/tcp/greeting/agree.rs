//! The check that both sides' offers go together, and the terms that result.

use super::{Agreed, Failure, Greeting, SessionSecret, State, Ticket, proof, proof::Purpose};
use crate::{
    policy::route::PathSet,
    wire::{
        hello::Malformed,
        tcp::{
            greeting::{Knock, Refusal, Role},
            offer::{Offer, Reached, Resume, Wanted},
        },
    },
};

impl Greeting {
    /// The failure of a peer whose first bytes are not this edition's.
    pub(super) fn not_ours(&mut self) -> Failure {
        let theirs = Knock::other_edition(&self.input[..self.have]);
        if theirs.is_some() && self.role == Role::Accepting {
            // The other side shall see why.
            self.knock();
        }
        self.state = State::Over;
        match theirs {
            Some(theirs) => Failure::Edition { peer: self.peer.clone(), theirs },
            None => self.garbage(Malformed("its greeting is not Pinfold's")),
        }
    }

    /// Checks that the two offers go together; returns how much the peer has received, if they go
    /// on with a session.
    pub(super) fn fits(
        &self,
        us: &Offer,
        peer: &Offer,
        ticket: Option<&Ticket>,
        wanted: &Wanted,
        knocks: &[u8; 32],
    ) -> Result<Option<Reached>, Refusal> {
        if peer.endpoint_id == us.endpoint_id {
            return Err(Refusal::Itself);
        }
        if peer.tls != us.tls {
            return Err(Refusal::TlsDiffers);
        }
        let unknown = Refusal::UnknownSession { incarnation: us.incarnation };
        match (ticket, wanted) {
            (None, Wanted::New) => Ok(None),
            (Some(ticket), _) if !ticket.is_of(peer) => Err(Refusal::OtherEndpoint),
            (Some(ticket), Wanted::Resume(resume)) if ticket.id == resume.id => {
                let role = match self.role {
                    Role::Connecting => Role::Accepting,
                    Role::Accepting => Role::Connecting,
                };
                let proof = ticket.secret.prove_resuming(role, knocks, &resume.id, resume.received);
                if !proof::is_same(&proof, &resume.proof) {
                    return Err(unknown);
                }
                Ok(Some(resume.received))
            }
            _ => Err(unknown),
        }
    }

    /// The session that this side wants.
    pub(super) fn wanted(&self, ticket: Option<&Ticket>, knocks: &[u8; 32]) -> Wanted {
        let Some(Ticket { id, secret, received, .. }) = ticket else { return Wanted::New };
        let proof = secret.prove_resuming(self.role, knocks, id, *received);
        Wanted::Resume(Resume { id: *id, received: *received, proof })
    }

    /// The outcome, once Reply is taken down.
    pub(super) fn agree(
        &self,
        version: u16,
        us: &Offer,
        peer: Offer,
        ticket: Option<Ticket>,
        peer_received: Option<Reached>,
    ) -> Box<Agreed> {
        let derive = |purpose| self.auth.prove(purpose, &self.transcript);
        // A session keeps its name and its secret: Confirm may be lost, and then the two sides
        // would have different ones.
        let ticket = ticket.unwrap_or_else(|| {
            let long = derive(Purpose::SessionId);
            let (id, _) = long.split_first_chunk().expect("a name is shorter than a digest");
            Ticket {
                id: *id,
                secret: SessionSecret::new(derive(Purpose::SessionSecret)),
                endpoint_id: peer.endpoint_id,
                incarnation: peer.incarnation,
                received: Reached::default(),
            }
        });
        let common = peer.paths.iter().filter(|&path| us.paths.contains(path));
        let agreed = Agreed {
            role: self.role,
            version,
            is_proved: self.auth.is_key(),
            is_same_host: us.host == peer.host,
            paths: PathSet::only(&common.collect::<Vec<_>>()),
            modes: us.modes.and(peer.modes),
            tls: us.tls,
            ticket,
            peer_received,
            peer,
        };
        tracing::debug!(peer = %self.peer, label = agreed.peer.label, proved = agreed.is_proved,
            same_host = agreed.is_same_host, resumed = ?agreed.peer_received, "agreed");
        Box::new(agreed)
    }
}
