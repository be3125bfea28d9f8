//! Sockets: those by which endpoints of this host meet, and connections over the loopback.

use std::{
    io::IoSliceMut,
    mem::{ManuallyDrop, MaybeUninit},
    net::{Ipv4Addr, SocketAddrV4},
    os::fd::{AsFd, OwnedFd},
};

use pinfold_sys::{
    process,
    socket::seqpacket::{self, Socket},
};
use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketType,
};

use super::{
    super::child::{Denial, Tried, attempt},
    calls::wrong,
};

/// Closed at the end of the process that tries: the calls that its drop makes are tried by
/// themselves.
type Kept = ManuallyDrop<Socket>;

pub(super) fn peer_pidfd() -> Tried<()> {
    let (one, _two) = pair()?;
    let peer = seqpacket::peer_pidfd(&*one).map_err(Denial::of("getsockopt"))?;
    if process::pidfd_alive(&peer) { Ok(()) } else { wrong("a living process is taken for dead") }
}

pub(super) fn unix_sockets() -> Tried<()> {
    attempt("socket", || bare(AddressFamily::UNIX, SocketType::SEQPACKET).map(drop))?;
    // The library asks the kernel which socket it is, so that children do not keep it.
    attempt("getsockopt", || unix("getsockopt").map(drop))?;
    (1..=STEPS.len())
        .try_for_each(|steps| attempt(STEPS[steps - 1], || meeting(steps).map(drop)))?;
    attempt("sendmsg", || sent().map(drop))?;
    attempt("recvmsg", || {
        let (_one, two) = sent()?;
        let mut bytes = [0; 8];
        let got = seqpacket::recv(&*two, &mut bytes, 0).map_err(Denial::of("recvmsg"))?;
        match &bytes[..got.len] {
            b"ping" => Ok(()),
            _ => wrong("a message did not arrive as it was sent"),
        }
    })
}

/// The steps of a [`meeting`].
const STEPS: [&str; 4] = ["bind", "listen", "connect", "accept4"];

/// The first `steps` of a meeting, with both ends of it after all of them. The name is not in the
/// file system, which is tried elsewhere.
fn meeting(steps: usize) -> Tried<Option<(Kept, Kept)>> {
    let name = format!("pinfold-doctor-{}", std::process::id());
    let name = net::SocketAddrUnix::new_abstract_name(name.as_bytes());
    let name = name.map_err(Denial::of("bind"))?;
    let (listener, caller) = (unix("socket")?, unix("socket")?);
    net::bind(&*listener, &name).map_err(Denial::of("bind"))?;
    if steps > 1 {
        net::listen(&*listener, 1).map_err(Denial::of("listen"))?;
    }
    if steps > 2 {
        net::connect(&*caller, &name).map_err(Denial::of("connect"))?;
    }
    if steps < STEPS.len() {
        return Ok(None);
    }
    match seqpacket::accept(&*listener).map_err(Denial::of("accept4"))? {
        Some(met) => Ok(Some((caller, Kept::new(met)))),
        None => wrong("who connected did not arrive"),
    }
}

fn unix(call: &'static str) -> Tried<Kept> {
    seqpacket::unconnected().map(Kept::new).map_err(Denial::of(call))
}

/// Two ends of a connection, as between two endpoints.
fn pair() -> Tried<(Kept, Kept)> {
    match meeting(STEPS.len())? {
        Some(ends) => Ok(ends),
        None => wrong("who connected did not arrive"),
    }
}

/// A socket as the kernel makes it, before the library asks anything of it.
fn bare(family: AddressFamily, kind: SocketType) -> Tried<OwnedFd> {
    net::socket(family, kind, None).map_err(Denial::of("socket"))
}

fn inet() -> Tried<OwnedFd> {
    bare(AddressFamily::INET, SocketType::STREAM)
}

/// A socket that listens on the loopback, and one that connects to it.
pub(super) fn tcp() -> Tried<()> {
    attempt("socket", || inet().map(drop))?;
    attempt("bind", || bound().map(drop))?;
    attempt("listen", || listening().map(drop))?;
    attempt("getsockname", || address(&listening()?).map(drop))?;
    attempt("connect", || connected().map(drop))?;
    attempt("accept4", || connection().map(drop))
}

fn bound() -> Tried<OwnedFd> {
    let socket = inet()?;
    let here = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
    net::bind(&socket, &here).map_err(Denial::of("bind"))?;
    Ok(socket)
}

fn listening() -> Tried<OwnedFd> {
    let listener = bound()?;
    net::listen(&listener, 1).map_err(Denial::of("listen"))?;
    Ok(listener)
}

fn address(listener: &OwnedFd) -> Tried<net::SocketAddrAny> {
    net::getsockname(listener).map_err(Denial::of("getsockname"))
}

/// A listening socket, and a socket connected to it.
fn connected() -> Tried<(OwnedFd, OwnedFd)> {
    let (listener, one) = (listening()?, inet()?);
    net::connect(&one, &address(&listener)?).map_err(Denial::of("connect"))?;
    Ok((listener, one))
}

/// Both ends of a connection.
pub(super) fn connection() -> Tried<(OwnedFd, OwnedFd)> {
    let (listener, one) = connected()?;
    let flags = net::SocketFlags::CLOEXEC;
    let two = net::accept_with(&listener, flags).map_err(Denial::of("accept4"))?;
    Ok((one, two))
}

/// Two ends, with a message on the way to the second.
fn sent() -> Tried<(Kept, Kept)> {
    let (one, two) = pair()?;
    seqpacket::send(&*one, b"ping", &[]).map_err(Denial::of("sendmsg"))?;
    Ok((one, two))
}

pub(super) fn peer_credentials() -> Tried<()> {
    let (one, _two) = pair()?;
    let who = seqpacket::peer_credentials(&*one).map_err(Denial::of("getsockopt"))?;
    if who.uid != pinfold_sys::user::uid() {
        return wrong("the kernel names another user at the other end of this user's socket");
    }
    Ok(())
}

pub(super) fn descriptors() -> Tried<()> {
    let (one, two) = pair()?;
    seqpacket::send(&*one, b"x", &[one.as_fd()]).map_err(Denial::of("sendmsg"))?;
    // The library would not take this one.
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let (mut bytes, flags) = ([0; 8], RecvFlags::CMSG_CLOEXEC);
    net::recvmsg(&*two, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags)
        .map_err(Denial::of("recvmsg"))?;
    let mut came = control.drain();
    match came.any(|message| matches!(message, RecvAncillaryMessage::ScmRights(_))) {
        true => Ok(()),
        false => wrong("a descriptor that was passed did not arrive"),
    }
}
