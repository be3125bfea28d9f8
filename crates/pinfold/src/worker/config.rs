//! The settings of an endpoint, checked.

use std::{os::fd::OwnedFd, sync::Arc, time::Duration};

use crate::{
    Error, PathSet, Result,
    protocol::active::handlers::Handlers,
    transport::{
        local::{Access, Address},
        tcp::{self, key::Key, transmit::Settings},
    },
};

/// The threads that drive an endpoint.
///
/// Threads of the library's own block all signals, so that signals sent to the process go to the
/// program's threads. A handler that runs on one, and the threads it starts, inherit that.
///
/// ```
/// use pinfold::{Endpoint, Progress};
///
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-of-progress-{}", std::process::id());
/// let server = Endpoint::builder().listen(&name).progress(Progress::Dedicated).build()?;
/// let client = Endpoint::new()?; // The client has no thread: `Progress::Inline`.
/// // No call of the server's is needed: its thread lets the client in.
/// let peer = client.connect(&name)?;
/// client.send(peer, 1, b"hello")?;
/// assert_eq!(&*server.recv(.., 1)?, b"hello");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Progress {
    /// The threads that call it, while they call: U-Net/MM's fast trap. The first future that has
    /// to wait starts a thread, since nothing else could complete it.
    #[default]
    Inline,
    /// A thread of its own: U-Net/MM's co-processor. Messages move while the program computes. The
    /// thread stands by while a call waits, which moves them as well, and takes over 0.1 to 2 ms
    /// after the last.
    Dedicated,
}

/// The default of [`Builder::lane_bytes_max`](crate::Builder::lane_bytes_max).
pub const LANE_BYTES_MAX: usize = 64 << 20;

/// The settings of an endpoint. Made by [`Builder`](crate::Builder).
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub listen: Option<Address>,
    /// The address at which it listens for other hosts.
    pub listen_tcp: Option<tcp::address::Address>,
    /// The socket that listens there already.
    pub listen_socket: Option<Arc<OwnedFd>>,
    /// True if peers that come by host and port and are on this host are to be reached as such.
    pub local_shortcut: bool,
    /// The key that peers on other hosts have to share.
    pub key: Option<Arc<Key>>,
    /// True if connections with them are encrypted.
    pub encrypts: bool,
    pub label: String,
    pub access: Access,
    pub paths: PathSet,
    pub strict: bool,
    pub progress: Progress,
    pub connect_timeout: Duration,
    /// The time that a peer on another host may be without a connection; zero: none.
    pub reconnect_timeout: Duration,
    /// Memory that lanes to peers may grow by, beyond the minimum of each.
    pub lane_bytes_max: usize,
    /// Memory for unexpected messages, over all peers.
    pub unexpected_bytes_max: usize,
    pub peers_max: usize,
    /// Address space for arenas of peers.
    pub mapped_bytes_max: usize,
    /// The most memory that is given to one peer and not back.
    pub given_bytes_max: u64,
    /// The most messages of one tag, of which the newest counts, that one peer has.
    pub frames_max: u32,
    /// Memory for active messages that were fetched for their handlers.
    pub active_bytes_max: usize,
    pub handlers: Handlers,
    /// The way long messages go to other hosts.
    pub sending: Settings,
    /// Allows pages of messages to be moved. `None`: the program has not said, so only where
    /// nothing speaks against it.
    pub moves: Option<bool>,
    /// Allows the memory of receives to be prefaulted before their messages come; `None` as above.
    pub prepares: Option<bool>,
    /// True if a shortage of processors is looked for and heeded.
    pub heeds_shortage: bool,
    /// The seed of the faults of its transports.
    #[cfg(test)]
    pub faults: Option<u64>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            listen: None,
            listen_tcp: None,
            listen_socket: None,
            local_shortcut: true,
            key: None,
            encrypts: false,
            label: String::new(),
            access: Access::same_user(),
            paths: PathSet::all(),
            strict: false,
            progress: Progress::Inline,
            connect_timeout: Duration::from_secs(30),
            reconnect_timeout: Duration::from_secs(10),
            lane_bytes_max: LANE_BYTES_MAX,
            unexpected_bytes_max: 128 << 20,
            peers_max: 1 << 20,
            mapped_bytes_max: 1 << 40,
            given_bytes_max: 512 << 20,
            frames_max: 2,
            active_bytes_max: 256 << 20,
            handlers: Handlers::default(),
            sending: Settings::default(),
            moves: None,
            prepares: None,
            heeds_shortage: true,
            #[cfg(test)]
            faults: None,
        }
    }
}

impl Config {
    pub(crate) fn check(&self) -> Result<()> {
        let limit = |what, limit, remedy| Err(Error::LimitReached { what, limit, remedy });
        if self.label.len() > 32 {
            return limit("the label of an endpoint, in bytes,", 32, "choose a shorter one");
        }
        if !self.paths.contains(crate::Path::Eager) && !self.paths.contains(crate::Path::Cma) {
            return limit(
                "a message, without a path for longer ones,",
                crate::wire::descriptor::INLINE_MAX as u64,
                "allow eager, which always works, or cma",
            );
        }
        if self.encrypts && !cfg!(feature = "tls") {
            return limit(
                "the number of connections that can be encrypted",
                0,
                "compile the library with its feature tls",
            );
        }
        if self.frames_max == 0 {
            return limit("the number of frames in flight", u32::MAX.into(), "allow 1 at least");
        }
        Ok(())
    }
}
