//! The failures of a greeting, in words.

use std::{io, sync::Arc};

use rustix::io::Errno;

use crate::{
    error::Ungreeted,
    wire::tcp::greeting::{EDITION, Refusal, Versions},
};

/// The reason why there is no pair. Each says with which peer, what failed, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Failure {
    /// Both have a key, but not the same; or their packets were changed on the way.
    #[error(
        "{peer} has another key, or its greeting was tampered with; compare both sides' key files: sha256sum KEY"
    )]
    WrongKey { peer: Arc<str> },
    /// One has a key, and the other none.
    #[error("{}", no_key(.peer, *.whose))]
    NoKey { peer: Arc<str>, whose: Whose },
    /// No version in common.
    #[error(
        "{peer} speaks versions {} to {} of the protocol between hosts, this side {} to {}; update the older side",
        theirs.min, theirs.max, ours.min, ours.max
    )]
    Version { peer: Arc<str>, ours: Versions, theirs: Versions },
    /// A greeting that only begins as ours does.
    #[error(
        "{peer} runs another version of Pinfold (edition {theirs} of the greeting between hosts, this side has {EDITION}); update the older side"
    )]
    Edition { peer: Arc<str>, theirs: u8 },
    /// The bytes that came are no greeting.
    #[error("{peer} does not greet as a Pinfold endpoint: {what}; see what runs there")]
    Garbage { peer: Arc<str>, what: &'static str },
    /// The bytes that came are this side's own.
    #[error("{peer} sends back what it is sent; connect to another address")]
    Reflected { peer: Arc<str> },
    /// The deadline is past.
    #[error(
        "{peer} did not greet in time: {missing} did not come; see that its process runs, or allow it more time"
    )]
    TooLate { peer: Arc<str>, missing: &'static str },
    /// The connection was closed.
    #[error("{peer} closed the connection before {missing} came; {hint}")]
    Closed { peer: Arc<str>, missing: &'static str, hint: &'static str },
    /// The other side does not want to.
    #[error("{peer} refused: {}", refused(*.why))]
    Refused { peer: Arc<str>, why: Refusal },
    /// This side does not want to, and has told the other.
    #[error("{peer} was refused: {}", declined(*.why))]
    Declined { peer: Arc<str>, why: Refusal },
    /// One wants the connection encrypted, and the other does not. Both are told.
    #[error("{}", unencrypted(.peer, *.whose))]
    Unencrypted { peer: Arc<str>, whose: Whose },
    /// There is no encrypted channel to be had with it.
    #[error(
        "{peer} and this endpoint did not come to an encrypted connection: {what}; if both run the same version, somebody changes what they send"
    )]
    Tls { peer: Arc<str>, what: String },
    /// The encrypted channel ends elsewhere than the greeting.
    #[error(
        "{peer} greets with the right key, but somebody between it and this endpoint ends the encrypted connection to read what is said; nothing was; find out who is on the way: traceroute"
    )]
    Intercepted { peer: Arc<str> },
    /// It has succeeded or failed before.
    #[error("the greeting with {peer} is over; begin another")]
    Over { peer: Arc<str> },
}

impl Failure {
    /// The same, for programs.
    pub(crate) fn reason(&self) -> Ungreeted {
        match self {
            Failure::WrongKey { .. } => Ungreeted::OtherKey,
            Failure::NoKey { whose: Whose::Ours, .. } => Ungreeted::NoKey,
            Failure::NoKey { whose: Whose::Theirs, .. } => Ungreeted::NoKeyThere,
            Failure::Unencrypted { whose: Whose::Ours, .. } => Ungreeted::Unencrypted,
            Failure::Unencrypted { whose: Whose::Theirs, .. } => Ungreeted::UnencryptedThere,
            Failure::Refused { why: Refusal::Full { peers_max }, .. } => {
                Ungreeted::Full(*peers_max)
            }
            _ => Ungreeted::Other,
        }
    }
}

/// The side that has no key, or does not encrypt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    Ours,
    Theirs,
}

fn no_key(peer: &str, whose: Whose) -> String {
    match whose {
        Whose::Ours => format!(
            "{peer} asks for a key, and this endpoint has none; give it that endpoint's key file"
        ),
        Whose::Theirs => format!(
            "{peer} has no key, and this endpoint asks for one; give that endpoint this one's key file"
        ),
    }
}

fn refused(why: Refusal) -> String {
    match why {
        Refusal::Full { peers_max } => format!(
            "it may have {peers_max} peers and has them; raise its Builder::peers_max, or disconnect a peer there"
        ),
        Refusal::Exhausted { errno } => {
            let error = io::Error::from_raw_os_error(errno as i32);
            let remedy = match Errno::from_io_error(&error) {
                Some(Errno::FBIG) => "raise its limit on the size of files (ulimit -f)",
                Some(Errno::MFILE) => "raise its limit on open files (ulimit -n)",
                _ => "see what its host lacks",
            };
            format!("it ran out of something ({error}); {remedy}")
        }
        Refusal::UnknownSession { .. } => {
            "it does not know the session that broke off; connect anew, what was under way is lost"
                .into()
        }
        Refusal::TlsDiffers => "its connections are not encrypted as this one's are".into(),
        Refusal::Senseless => {
            "what this endpoint offers makes no sense to it; update the older side".into()
        }
        Refusal::Itself => itself().into(),
        Refusal::OtherEndpoint => {
            "it expected another endpoint here; connect anew, what was under way is lost".into()
        }
        Refusal::Closing => "it is about to close; connect again when it runs".into(),
    }
}

fn declined(why: Refusal) -> String {
    match why {
        Refusal::Full { peers_max } => {
            format!(
                "this endpoint may have {peers_max} peers; raise Builder::peers_max, or disconnect one"
            )
        }
        Refusal::Exhausted { errno } => format!(
            "this process ran out of something ({}); see what it lacks",
            io::Error::from_raw_os_error(errno as i32)
        ),
        Refusal::UnknownSession { .. } => {
            "it asked to go on with a session that is not known here; it has to connect anew".into()
        }
        Refusal::TlsDiffers => "its connections are not encrypted as this one's are".into(),
        Refusal::Senseless => "what it offers makes no sense; update the older side".into(),
        Refusal::Itself => itself().into(),
        Refusal::OtherEndpoint => {
            "another endpoint was expected there; connect anew, what was under way is lost".into()
        }
        Refusal::Closing => "this endpoint is about to close".into(),
    }
}

fn unencrypted(peer: &str, whose: Whose) -> String {
    match whose {
        Whose::Ours => format!(
            "{peer} speaks over encrypted connections alone, and this endpoint does not encrypt; build it with Builder::encrypt(true)"
        ),
        Whose::Theirs => format!(
            "{peer} does not encrypt, and this endpoint speaks over encrypted connections alone; build that one with Builder::encrypt(true)"
        ),
    }
}

fn itself() -> &'static str {
    "both ends are one endpoint; connect to another address"
}
