//! An endpoint's part behind the lock.

use std::{cell::RefMut, collections::VecDeque, sync::Arc};

use pinfold::{Claimed, Completion, CompletionQueue, Endpoint};
use rustc_hash::FxHashMap;

use crate::{
    access::Memory,
    address::{Address, own_ip},
    attr,
    av::Av,
    cntr::Cntr,
    contacts::Contacts,
    cq::{Cq, Event, Failure},
    ep::Ep,
    fence::Fence,
    ffi::flags::*,
    guard::{Answer, Code},
    lock::Held,
    msg::SILENT,
    newest::{self, Newest},
    op::{Key, Op, Ops},
    receive::Deferred,
};

/// The state of an endpoint.
pub struct State {
    pub endpoint: Endpoint,
    pub address: Address,
    pub is_enabled: bool,
    pub av: Option<Arc<Av>>,
    pub tx: Side,
    pub rx: Side,
    pub counters: Vec<(u64, Arc<Cntr>)>,
    pub min_multi_recv: usize,
    pub contacts: Contacts,
    pub ops: Ops,
    pub fence: Fence,
    /// Receives that are not posted yet, in order.
    pub deferred: VecDeque<Deferred>,
    /// The receive behind all others, as long as it is not posted.
    pub newest: Option<Newest>,
    /// Room for a short message on its way in or out.
    pub short: Box<[u8; newest::BYTES_MAX]>,
    /// Messages that were claimed, by context.
    pub claims: FxHashMap<usize, Claimed>,
    /// Messages of peers that have not said who they are yet.
    pub parked: VecDeque<(Key, Completion)>,
    /// Sends that wait for their receivers' word.
    pub unconfirmed: Vec<Key>,
    /// The regions of peers, and news of what they do with this side's.
    pub memory: Memory,
    pub turns: u32,
    pub batch: Vec<Completion>,
}

/// One direction of an endpoint.
#[derive(Default)]
pub struct Side {
    pub cq: Option<Arc<Cq>>,
    /// True if only operations that ask for it are reported.
    pub is_selective: bool,
    pub op_flags: u64,
    /// The most operations under way.
    pub size: usize,
}

impl Side {
    /// Returns whether an operation with these flags is reported.
    pub fn reports(&self, flags: u64) -> bool {
        let wants = !self.is_selective || flags & FI_COMPLETION != 0;
        self.cq.is_some() && wants && flags & SILENT == 0
    }
}

/// An endpoint, entered: its state, and the lock that is held.
pub struct Inside<'a> {
    pub held: &'a Held<'a>,
    pub ep: &'a Arc<Ep>,
    pub state: RefMut<'a, State>,
}

/// The code of an error of the library's.
pub fn code(error: &pinfold::Error) -> Code {
    use pinfold::Error as E;
    Code(match error {
        E::Cancelled => libc::ECANCELED,
        E::Truncated { .. } => FI_ETRUNC,
        E::PeerGone { .. } | E::UnknownPeer { .. } | E::NobodyLeft { .. } => libc::ECONNRESET,
        E::NameGone { .. } | E::NameLost { .. } => libc::ECONNREFUSED,
        E::NameInUse { .. } => libc::EADDRINUSE,
        E::NoAnswer { .. } | E::Timeout(_) => libc::ETIMEDOUT,
        E::NotAllowed { .. } | E::KeyNeeded { .. } | E::UnusableKey(_) => libc::EACCES,
        E::Greeting { .. } | E::VersionMismatch { .. } => libc::ECONNREFUSED,
        E::BadAddress { .. } => libc::EINVAL,
        E::LimitReached { .. } | E::NoMemory { .. } => libc::ENOMEM,
        E::Closed | E::Forked => FI_EOPBADSTATE,
        E::Os { .. } => libc::EHOSTUNREACH,
        _ => libc::EIO,
    })
}

/// Makes an endpoint that listens at its address, and at a port for other hosts if there is a key.
pub fn listen(address: Address) -> Answer<(Endpoint, Address)> {
    // Peers may compute for hours before they look.
    let patience = std::time::Duration::from_secs(24 * 3600);
    let mut builder =
        Endpoint::builder().listen(&address.local()).label("libfabric").connect_timeout(patience);
    if let Some(mode) = attr::send_mode() {
        builder = builder.send_mode(mode);
    }
    let mut ip = None;
    if let Some(key) = attr::key_file() {
        ip = own_ip();
        if let Some(ip) = ip {
            let port = address.socket().map_or(0, |at| at.port());
            let at = std::net::SocketAddr::new(ip, port);
            builder = builder.key_file(key).listen(&format!("tcp:{at}"));
        }
    }
    let endpoint = builder.build().map_err(|error| {
        tracing::warn!(%error, "an endpoint of libfabric could not be made");
        code(&error)
    })?;
    let listens = endpoint.listens_at().and_then(|at| at.strip_prefix("tcp:")?.parse().ok());
    match listens.or_else(|| ip.and(address.socket())) {
        Some(at) => Ok((endpoint, address.listening(at))),
        None => Ok((endpoint, address)),
    }
}

impl Inside<'_> {
    pub fn queue(&self) -> &CompletionQueue {
        &self.ep.queue
    }

    /// Fails unless the endpoint is enabled.
    pub fn check(&self) -> Answer {
        if self.state.is_enabled { Ok(()) } else { Err(Code(FI_EOPBADSTATE)) }
    }

    /// The contact that a program's number stands for.
    pub fn contact(&mut self, number: u64) -> Answer<usize> {
        let state = &mut *self.state;
        let av = state.av.as_ref().ok_or(Code(FI_ENOAV))?;
        state.contacts.of_number(&av.table.open(self.held), number)
    }

    /// The program's number of a contact, or none.
    pub fn number_of(&mut self, contact: usize) -> u64 {
        let state = &mut *self.state;
        let Some(av) = state.av.as_ref() else { return FI_ADDR_UNSPEC };
        state.contacts.number(&av.table.open(self.held), contact).unwrap_or(FI_ADDR_UNSPEC)
    }

    /// Tells the program of the end of an operation, and counts it.
    pub fn report(&mut self, op: &Op, result: Result<Event, Failure>) {
        let flags = op.event.flags;
        self.report_as(flags, op.reports, result);
    }

    /// As [`Inside::report`], of an operation with these flags.
    pub fn report_as(&mut self, flags: u64, reports: bool, result: Result<Event, Failure>) {
        let kinds = flags & (FI_SEND | FI_RECV | FI_READ | FI_WRITE);
        for (counted, counter) in &self.state.counters {
            if counted & kinds != 0 {
                match result {
                    Ok(_) => counter.count(),
                    Err(_) => counter.count_failed(),
                }
            }
        }
        let side = if flags & FI_RECV != 0 { &self.state.rx } else { &self.state.tx };
        if let Some(cq) = &side.cq
            && (reports || result.is_err())
        {
            cq.push(self.held, result);
        }
    }

    /// Tells the program that an operation has failed.
    pub fn fail(&mut self, op: &Op, code: Code) {
        self.report(op, Err(Failure { event: op.event, code, beyond: 0 }));
    }

    /// Takes an operation off the table and tells the program that it has failed.
    pub fn fail_key(&mut self, key: Key, code: Code) {
        if let Some(op) = self.state.ops.remove(key) {
            self.fail(&op, code);
        }
    }
}
