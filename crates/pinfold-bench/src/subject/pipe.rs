//! `pipe`: one pipe in each direction, 1 MiB each if the user may have that.

use std::os::fd::{AsFd, OwnedFd};

use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};

use super::bytes::Bytes;
use crate::{
    fail::{Fail, Result},
    pair::Pair,
    terms::Side,
};

/// The largest pipe an ordinary user may ask for, unless the machine was set up otherwise.
const PIPE_BYTES: usize = 1 << 20;

pub(crate) fn set_up(pair: &mut Pair) -> Result<Bytes> {
    let (out, into) = match pair.side() {
        Side::First => {
            let (read_there, write_here) = pipe()?;
            let (read_here, write_there) = pipe()?;
            pair.tell_with(&(), &[write_there.as_fd(), read_there.as_fd()])?;
            (write_here, read_here)
        }
        Side::Second => {
            let ((), [out, into]) = pair.hear_with()?;
            (out, into)
        }
    };
    Bytes::new(out, into, pair.watch())
}

fn pipe() -> Result<(OwnedFd, OwnedFd)> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC).map_err(Fail::os("pipe"))?;
    // Beyond the user's share of pipe memory it stays at 64 KiB, as it would for any program.
    let _ = fcntl_setpipe_size(&write, PIPE_BYTES);
    Ok((read, write))
}
