//! Every system call, mapping and CPU instruction Pinfold uses, as safe as each can be made.
//!
//! In the order of a connection's life:
//!
//! - [`user`], [`affinity`](crate::cpu::affinity), [`clock`](crate::cpu::clock): the user of this
//!   process, its processors, and the time.
//! - [`seqpacket`](crate::socket::seqpacket): finding a peer, learning its credentials, passing
//!   descriptors, ringing its doorbell.
//! - [`host_names`](crate::socket::host_names): where the names of other hosts lead.
//! - [`stream`](crate::socket::stream): connections with other hosts, and sending over them by
//!   calls that do not copy.
//! - [`memfd`](crate::mem::memfd), [`mapping`](crate::mem::mapping): memory that two processes
//!   share.
//! - [`reserved`](crate::mem::reserved): addresses that nothing else comes to lie at.
//! - [`userfault`](crate::mem::userfault): noticing that memory of this process is taken away, and
//!   moving pages within it.
//! - [`pin`](crate::mem::pin): keeping pages where they are; [`frames`](crate::mem::frames): which
//!   they are.
//! - [`send_ring`](crate::io::send_ring): sending over connections out of anybody's memory, without
//!   a copy.
//! - [`refused`]: the refusals of the three before this one; [`failed`]: the failed one of several
//!   calls.
//! - [`advice`](crate::mem::advice): whether advice about memory is followed.
//! - [`maps`](crate::mem::maps), [`threads`]: the kinds of memory at each address, and the calls
//!   that this process's threads are in; how threads are started.
//! - [`scheduled`](crate::cpu::scheduled): how long threads waited for processors.
//! - [`process`]: other processes: are they alive, and the contents of their memory;
//!   [`presence`](crate::mem::presence): whether that is there.
//! - [`signal`]: dispositions of signals here.
//! - [`program`]: programs that this one starts: where they run, and how long; [`ptrace`]: the
//!   system calls that they make.
//! - [`barrier`](crate::cpu::barrier), [`fork`]: memory order across processes, and noticing a
//!   `fork(2)`; `inherit`: sockets that children do not get.
//! - [`block`](crate::cpu::block): memory copied and zeroed, by every algorithm there is.
//! - [`partner`](crate::cpu::partner): another core that reads, for measurements of the cost.
//! - [`fault_safe_copy`](crate::mem::fault_safe_copy): copies where there may be no memory.
//! - [`fault_safe_change`](crate::mem::fault_safe_change): atomic changes there.
//! - [`prefault`](crate::mem::prefault): pages put where somebody will write.
//! - [`poll`](crate::io::poll): sleeping until something happens.
//! - [`checker`]: detects Valgrind.
//! - [`trial`], [`child`], [`identify`](crate::cpu::identify): finding out what is allowed here,
//!   without coming to harm.
//!
//! Nothing here decides anything: a call that the kernel lacks or a filter forbids comes back
//! as the error it gave, and the caller takes another way.

pub mod checker;
pub mod child;
pub mod cpu;
pub mod failed;
pub mod fork;
pub mod io;
pub mod mem;
pub mod process;
pub mod program;
pub mod ptrace;
pub mod refused;
pub mod shuffle;
pub mod signal;
#[cfg(test)]
mod skip;
pub mod socket;
pub mod stopping;
pub mod threads;
pub mod trial;
pub mod user;

// Addresses and lengths cross process boundaries as `u64`.
const _: () = assert!(size_of::<usize>() == 8, "Pinfold needs a 64-bit target");
