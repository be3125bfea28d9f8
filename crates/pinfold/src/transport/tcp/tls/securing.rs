//! The establishment of a channel, from the end of the greeting to the first frame: the handshake
//! of TLS, and the proof of both sides that it ends where the greeting did. No I/O.

use std::io;

use super::{
    super::key::{MAC_BYTES, is_same},
    EXPORTED_BYTES, Session,
    session::Fault,
};
use crate::wire::tcp::greeting::Role;

/// The reason why there is no channel.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The bytes that came are not the TLS of an honest peer.
    Tls(Fault),
    /// The channel ends elsewhere than the greeting: an attacker is in between.
    Unbound,
}

/// The proofs that both sides have to show, made from the channel and the greeting.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Binding {
    pub ours: [u8; MAC_BYTES],
    pub theirs: [u8; MAC_BYTES],
}

/// A channel that is being established.
#[derive(Debug)]
pub(crate) struct Securing {
    session: Session,
    /// Once the handshake is over.
    binding: Option<Binding>,
    /// The part of the other side's proof that has come.
    shown: [u8; MAC_BYTES],
    have: usize,
}

impl Securing {
    /// # Errors
    /// The kernel has no random bytes.
    pub(crate) fn new(role: Role) -> io::Result<Box<Securing>> {
        let session = Session::new(role)?;
        Ok(Box::new(Securing { session, binding: None, shown: [0; MAC_BYTES], have: 0 }))
    }

    /// The session that the connection is read into and written from.
    pub(crate) fn session(&mut self) -> &mut Session {
        &mut self.session
    }

    /// Goes on with the bytes that have come. `bind` makes both sides' proofs from the bytes that
    /// TLS exports. Returns whether the channel is there: then only the sending of waiting bytes is
    /// missing.
    ///
    /// # Errors
    /// There will be no channel.
    pub(crate) fn step(
        &mut self,
        bind: impl FnOnce(&[u8; EXPORTED_BYTES]) -> Binding,
    ) -> Result<bool, Trouble> {
        let Securing { session, binding, shown, have } = self;
        // Nothing is sent before the handshake is over, and nothing behind the proof is looked at.
        session
            .take(|bytes| {
                let len = bytes.len().min(shown.len() - *have);
                shown[*have..*have + len].copy_from_slice(&bytes[..len]);
                *have += len;
                len
            })
            .map_err(Trouble::Tls)?;
        if binding.is_none()
            && let Some(exported) = session.exported()
        {
            let made = bind(&exported);
            session.put(&made.ours);
            *binding = Some(made);
        }
        match binding {
            Some(binding) if *have == shown.len() => {
                if is_same(shown, &binding.theirs) {
                    Ok(true)
                } else {
                    Err(Trouble::Unbound)
                }
            }
            _ => Ok(false),
        }
    }

    /// The channel.
    pub(crate) fn into_session(self) -> Session {
        self.session
    }
}
