//! The copy of a part of a message out of its sender's memory, in the engine or outside of it.

use crate::{
    copy::CopyBytes,
    memory::scatter::Scatter,
    protocol::{
        rendezvous::transfer::{There, errno_of},
        rma::cma::{CmaAccess, Way},
    },
};

/// The result of copying a part.
#[derive(Clone, Copy, Default)]
pub(crate) struct Got {
    /// Bytes that came.
    pub bytes: u64,
    /// The `errno` that stopped the copy; 0 if none did.
    pub errno: u32,
    /// True if memory of an arena that should have been present was missing.
    pub again: bool,
}

/// Copies `len` bytes of a message, from `at` on, to byte `to` of `memory`.
pub(crate) fn get_part(
    source: &There,
    cma_access: &CmaAccess,
    (memory, to): (&Scatter, u64),
    (at, len): (u64, u64),
    copier: &mut impl CopyBytes,
) -> Got {
    let mut got = Got::default();
    while got.bytes < len {
        let (from, to, len) = (at + got.bytes, to + got.bytes, len - got.bytes);
        let copied = match source {
            There::Remote(remote) => {
                cma_access.copy(Way::WeRead, || memory.get(to, cma_access.pid, (remote, from), len))
            }
            There::Lent => Err(rustix::io::Errno::AGAIN.into()),
            There::Mapped { mapping, offset } => {
                memory.copy_out_of(copier, mapping, offset + from, to, len)
            }
            There::ExportedParts(exported_parts) => {
                exported_parts.copy((memory, to), copier, from, len)
            }
        };
        let is_fickle = || match source {
            There::Remote(_) | There::Lent => false,
            There::Mapped { mapping, .. } => mapping.is_fickle(),
            There::ExportedParts(exported_parts) => exported_parts.are_fickle(),
        };
        match copied {
            Ok(bytes) => got.bytes += bytes,
            Err(_) if is_fickle() => {
                got.again = true;
                break;
            }
            Err(error) => {
                got.errno = errno_of(&error);
                break;
            }
        }
    }
    got
}
