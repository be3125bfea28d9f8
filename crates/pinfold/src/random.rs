//! Unpredictable bytes, from the kernel.

use std::io;

use rustix::io::Errno;

use crate::{Error, Result};

/// Draws random bytes: by `getrandom(2)`, or where that is denied from `/dev/urandom`.
///
/// # Errors
/// [`Error::Os`] where there is neither; `on` is the purpose of the bytes.
pub(crate) fn bytes<const N: usize>(on: &str) -> Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| {
        let code = error.raw_os_error().unwrap_or(Errno::NOSYS.raw_os_error());
        Error::os("getrandom", on, io::Error::from_raw_os_error(code))
    })?;
    Ok(bytes)
}
