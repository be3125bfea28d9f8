//! Two terminals: the two processes meet at an address.
//!
//! They connect through the library, which checks that they may. Over that connection the one
//! that listened names a socket of its own, through which the rest goes as between a process and
//! its child, so that every alternative can be measured in this way, too.

use std::{
    os::fd::{AsFd, OwnedFd},
    time::{Duration, Instant},
};

use pinfold::{Endpoint, PeerId};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen,
        socket_with, sockopt::socket_peercred,
    },
};

use super::{
    control::Control,
    fail::{Fail, Result},
};
use crate::console::progress::say;

/// The tag of the message that names the socket.
const TAG: u64 = 0x7065_7266;
/// Time that the two have to find each other's socket.
const PATIENCE: Duration = Duration::from_secs(20);
/// Time that the connecting side waits for the listening one to start.
const START: Duration = Duration::from_secs(5);

/// The two processes know each other.
pub(crate) struct Met {
    pub(crate) control: Control,
    /// The connection through which they met.
    pub(crate) endpoint: Endpoint,
    pub(crate) peer: PeerId,
}

/// Waits at `address` for the process that measures.
pub(crate) fn listen_at(address: &str) -> Result<Met> {
    let endpoint = Endpoint::builder().listen(address).label("pinfold perf").build()?;
    say(format_args!("waiting; in another terminal: pinfold perf --connect {address}"));
    let peer = endpoint.accept()?;
    let name = format!("pinfold-perf-{}-{}", std::process::id(), pinfold_sys::cpu::clock::now_ns());
    let listener = socket()?;
    let at = SocketAddrUnix::new_abstract_name(name.as_bytes()).map_err(Fail::os("bind"))?;
    bind(&listener, &at).map_err(Fail::os("bind"))?;
    listen(&listener, 4).map_err(Fail::os("listen"))?;
    endpoint.send(peer, TAG, name.as_bytes())?;
    let control = accept_peer(&listener, &endpoint, peer)?;
    Ok(Met { control: Control::new(control), endpoint, peer })
}

/// Goes to the process that waits at `address`.
pub(crate) fn connect_to(address: &str) -> Result<Met> {
    let endpoint = Endpoint::builder().label("pinfold perf").build()?;
    let peer = endpoint.connect_wait(address, START)?;
    let name = endpoint.recv_timeout(peer, TAG, PATIENCE).map_err(|why| {
        Fail::Said(format!("who listens at {address} does not answer as pinfold perf: {why}"))
    })?;
    let socket = socket()?;
    let at = SocketAddrUnix::new_abstract_name(&name).map_err(Fail::os("connect"))?;
    connect(&socket, &at).map_err(|why| {
        Fail::Said(format!(
            "the socket of the other process cannot be reached ({why}): are the two in different \
             network namespaces?"
        ))
    })?;
    Ok(Met { control: Control::new(socket), endpoint, peer })
}

fn socket() -> Result<OwnedFd> {
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .map_err(Fail::os("socket"))
}

/// Accepts the process behind `peer`, and no other.
fn accept_peer(listener: &OwnedFd, endpoint: &Endpoint, peer: PeerId) -> Result<OwnedFd> {
    let info = endpoint.peer(peer).ok_or(Fail::Gone)?;
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        let brief = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
        let mut fds = [PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN)];
        // The message with the socket's name may still be on its way.
        endpoint.progress()?;
        if !matches!(poll(&mut fds, Some(&brief)), Ok(1..)) {
            continue;
        }
        let socket = accept_with(listener, SocketFlags::CLOEXEC).map_err(Fail::os("accept"))?;
        let who = socket_peercred(&socket).map_err(Fail::os("SO_PEERCRED"))?;
        if who.uid.as_raw() == info.uid && who.pid.as_raw_pid() as u32 == info.pid {
            return Ok(socket);
        }
    }
    Err(Fail::Said(format!("{} connected but did not go on", info.name)))
}
