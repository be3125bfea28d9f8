//! `tcp`: a connection over loopback, `TCP_NODELAY`, buffers left to the kernel's own tuning.

use std::{
    net::{Ipv4Addr, TcpListener, TcpStream},
    os::fd::OwnedFd,
};

use super::bytes::Bytes;
use crate::perf::{
    fail::{Fail, Result},
    pair::Pair,
    terms::Side,
};

pub(in crate::perf) fn set_up(pair: &mut Pair) -> Result<Bytes> {
    let stream = match pair.side() {
        Side::First => {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(Fail::os("bind"))?;
            let here = listener.local_addr().map_err(Fail::os("getsockname"))?;
            pair.tell(&here.port())?;
            let there: u16 = pair.hear()?;
            // The other side is connected before it answers; a stranger's port differs.
            loop {
                let (stream, from) = listener.accept().map_err(Fail::os("accept"))?;
                if from.port() == there {
                    break stream;
                }
            }
        }
        Side::Second => {
            let port: u16 = pair.hear()?;
            let stream =
                TcpStream::connect((Ipv4Addr::LOCALHOST, port)).map_err(Fail::os("connect"))?;
            let here = stream.local_addr().map_err(Fail::os("getsockname"))?;
            pair.tell(&here.port())?;
            stream
        }
    };
    stream.set_nodelay(true).map_err(Fail::os("setsockopt"))?;
    let again = stream.try_clone().map_err(Fail::os("dup"))?;
    Bytes::new(OwnedFd::from(stream), OwnedFd::from(again), pair.watch())
}
