//! `tcp`: a connection, `TCP_NODELAY`, buffers left to the kernel's own tuning; over loopback, or
//! to the first process's host.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    os::fd::OwnedFd,
};

use super::bytes::Bytes;
use crate::{
    fail::{Fail, Result},
    pair::Pair,
    terms::Side,
};

pub(crate) fn set_up(pair: &mut Pair) -> Result<Bytes> {
    over(connected(pair, Ipv4Addr::LOCALHOST.into())?, pair)
}

/// Both directions of a connection.
pub(crate) fn over(stream: TcpStream, pair: &Pair) -> Result<Bytes> {
    let again = stream.try_clone().map_err(Fail::os("dup"))?;
    Bytes::new(OwnedFd::from(stream), OwnedFd::from(again), pair.watch())
}

/// A connection between the two processes; the first one listens at `ip`.
pub(crate) fn connected(pair: &mut Pair, ip: IpAddr) -> Result<TcpStream> {
    let stream = match pair.side() {
        Side::First => {
            let listener = TcpListener::bind((ip, 0)).map_err(Fail::os("bind"))?;
            let here = listener.local_addr().map_err(Fail::os("getsockname"))?;
            pair.tell(&here)?;
            let there: SocketAddr = pair.hear()?;
            // The other side is connected before it answers; a stranger's port differs.
            loop {
                let (stream, from) = listener.accept().map_err(Fail::os("accept"))?;
                if from == there {
                    break stream;
                }
            }
        }
        Side::Second => {
            let to: SocketAddr = pair.hear()?;
            let stream = TcpStream::connect(to).map_err(Fail::os("connect"))?;
            pair.tell(&stream.local_addr().map_err(Fail::os("getsockname"))?)?;
            stream
        }
    };
    stream.set_nodelay(true).map_err(Fail::os("setsockopt"))?;
    Ok(stream)
}
