//! `cma`: the receiver reads the sender's memory with `process_vm_readv(2)`, bare.

use pinfold_sys::process::read_remote_into;
use rustix::process::{PTracer, Pid, set_ptracer};

use super::offers::{Fetch, Offers};
use crate::{
    fail::{Fail, Result},
    pair::Pair,
};

/// The other process's memory.
pub(crate) struct Cma {
    pid: u32,
}

impl Cma {
    pub(crate) fn set_up(pair: &mut Pair) -> Result<Offers<Cma>> {
        allow(pair);
        let offers = Offers::set_up(pair, Cma { pid: pair.peer_pid() })?;
        try_it(pair)?;
        Ok(offers)
    }
}

/// Lets the other process look into this one, where only ancestors may do so (Yama).
pub(super) fn allow(pair: &Pair) {
    let peer = i32::try_from(pair.peer_pid()).ok().and_then(Pid::from_raw);
    if let Some(peer) = peer {
        let _ = set_ptracer(PTracer::ProcessID(peer));
    }
}

/// Reads a number out of the other side that only the right process has.
fn try_it(pair: &mut Pair) -> Result<()> {
    let secret = pinfold_sys::cpu::clock::now_ns().to_le_bytes();
    pair.tell(&(secret.as_ptr() as u64, secret))?;
    let (address, expected): (u64, [u8; 8]) = pair.hear()?;
    let mut found = [0; 8];
    let done = read_remote_into(pair.peer_pid(), address, &mut found);
    // Each side's copy must last until the other side has looked.
    pair.tell(&())?;
    pair.hear::<()>()?;
    done.map_err(Fail::os("process_vm_readv"))?;
    if found != std::hint::black_box(expected) {
        return Err(Fail::Said("the other process has another number here".into()));
    }
    std::hint::black_box(secret);
    Ok(())
}

impl Fetch for Cma {
    #[inline]
    fn locate(&self, message: &[u8]) -> u64 {
        message.as_ptr() as u64
    }

    #[inline]
    fn fetch(&mut self, at: u64, into: &mut [u8]) -> Result<()> {
        let (mut address, mut rest) = (at, into);
        while !rest.is_empty() {
            // One call, unless the message is longer than the 2 GiB the kernel copies in one.
            let some =
                read_remote_into(self.pid, address, rest).map_err(Fail::os("process_vm_readv"))?;
            if some == 0 {
                return Err(Fail::Gone);
            }
            address += some as u64;
            rest = &mut rest[some..];
        }
        Ok(())
    }
}
