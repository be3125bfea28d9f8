#![allow(unsafe_code)]
//! The other process's memory, as reached from here.
// Invariant: writes by the kernel alone go to another process, which gave the address.

use pinfold::{Path, RemoteSpace};
use pinfold_sys::process::{read_remote_into, write_remote_from};

use crate::fail::{Fail, Result};

/// The way to the other process's memory.
enum How {
    Space(RemoteSpace),
    Bare { pid: u32 },
}

/// Memory of the other process from `at` on.
pub(super) struct There {
    how: How,
    at: u64,
    expected: Path,
    /// Operations of this run, by path.
    by: [u64; Path::ALL.len()],
}

impl There {
    pub(super) fn space(space: RemoteSpace, expected: Path) -> There {
        let at = space.addresses().start;
        There { how: How::Space(space), at, expected, by: [0; Path::ALL.len()] }
    }

    /// The same by the kernel alone.
    pub(super) fn bare(pid: u32, at: u64) -> Result<There> {
        if pid == std::process::id() {
            return Err(Fail::Said("both sides are one process".into()));
        }
        Ok(There { how: How::Bare { pid }, at, expected: Path::Cma, by: [0; Path::ALL.len()] })
    }

    /// The path that operations should take.
    pub(super) fn expected(&self) -> Path {
        self.expected
    }

    /// Returns whether the other side has to look for operations.
    pub(super) fn needs_agent(&self) -> bool {
        self.expected == Path::Eager
    }

    /// Counts anew.
    pub(super) fn begin(&mut self) {
        self.by = [0; Path::ALL.len()];
    }

    /// Checks that operations went the way they should; now and then one may not.
    pub(super) fn check(&self) -> Result<()> {
        let all: u64 = self.by.iter().sum();
        let right = self.by[self.expected as usize];
        if right >= all - all / 10 {
            return Ok(());
        }
        let wanted = self.expected;
        Err(Fail::Said(format!("only {right} of {all} operations went by {wanted}")))
    }

    /// Writes bytes at an offset.
    #[inline]
    pub(super) fn write(&mut self, offset: usize, data: &[u8]) -> Result<()> {
        let at = self.at + offset as u64;
        let path = match &self.how {
            How::Space(space) => space.write(at, data)?.path,
            How::Bare { pid } => {
                // SAFETY: another process's memory.
                let done = unsafe { write_remote_from(*pid, at, data) };
                whole(done, data.len(), "process_vm_writev")?
            }
        };
        self.by[path as usize] += 1;
        Ok(())
    }

    /// Reads bytes at an offset. Returns the path.
    #[inline]
    pub(super) fn read(&mut self, offset: usize, into: &mut [u8]) -> Result<Path> {
        let at = self.at + offset as u64;
        let path = match &self.how {
            How::Space(space) => space.read(at, into)?.path,
            How::Bare { pid } => {
                let done = read_remote_into(*pid, at, into);
                whole(done, into.len(), "process_vm_readv")?
            }
        };
        self.by[path as usize] += 1;
        Ok(path)
    }
}

fn whole(done: std::io::Result<usize>, len: usize, call: &'static str) -> Result<Path> {
    match done.map_err(Fail::os(call))? {
        all if all == len => Ok(Path::Cma),
        some => Err(Fail::Said(format!("{call} copied {some} of {len} bytes"))),
    }
}
