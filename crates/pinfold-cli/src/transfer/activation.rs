//! The socket that a service manager passes to `pinfold recv`: systemd, see `sd_listen_fds(3)`.

use std::os::fd::OwnedFd;

use pinfold_sys::socket::activated;

use super::failure::Failure;

/// Takes the socket that was passed to this process to listen at, if one was.
///
/// # Errors
/// [`Failure::Usage`]: there are several, or `address` is of a kind at which no such socket is
/// listened at.
pub(super) fn take(address: &str) -> Result<Option<OwnedFd>, Failure> {
    let mut sockets = activated::take();
    match sockets.len() {
        0 => Ok(None),
        _ if !address.starts_with("tcp:") => Err(Failure::Usage(format!(
            "a socket was passed (LISTEN_FDS), and {address} needs none: its name is there as soon \
             as the command runs; start it without the socket, or name a tcp: address"
        ))),
        1 => Ok(sockets.pop()),
        many => Err(Failure::Usage(format!(
            "{many} sockets were passed (LISTEN_FDS), and a transfer comes by one; have a service \
             for each"
        ))),
    }
}
