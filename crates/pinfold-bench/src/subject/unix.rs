//! `unix`: a pair of connected Unix stream sockets.

use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair, sockopt};

use super::bytes::Bytes;
use crate::{
    fail::{Fail, Result},
    pair::Pair,
    terms::Side,
};

/// Bytes asked of the kernel, which gives at most `net.core.wmem_max`.
const BUFFER_BYTES: usize = 1 << 20;

pub(crate) fn set_up(pair: &mut Pair) -> Result<Bytes> {
    let socket = match pair.side() {
        Side::First => {
            let (here, there) =
                socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
                    .map_err(Fail::os("socketpair"))?;
            pair.tell_with(&(), &[there.as_fd()])?;
            here
        }
        Side::Second => {
            let ((), [there]) = pair.hear_with()?;
            there
        }
    };
    // A Unix socket's bytes are charged to the sender.
    let _ = sockopt::set_socket_send_buffer_size(&socket, BUFFER_BYTES);
    let again: OwnedFd = socket.try_clone().map_err(Fail::os("dup"))?;
    Bytes::new(socket, again, pair.watch())
}
