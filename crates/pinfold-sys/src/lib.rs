//! Every system call, mapping and CPU instruction Pinfold uses, as safe as each can be made.
//!
//! In the order of a connection's life:
//!
//! - [`user`], [`affinity`], [`clock`]: who and where this process is, and what time it is.
//! - [`socket`]: finding a peer, learning who it is, passing descriptors, ringing its doorbell.
//! - [`names`]: where the names of other hosts lead.
//! - [`stream`]: connections with other hosts, and sending over them by calls that do not copy.
//! - [`memfd`], [`mapping`]: memory that two processes share.
//! - [`reserved`]: addresses that nothing else comes to lie at.
//! - [`userfault`]: noticing that memory of this process is taken away, and moving pages within it.
//! - [`pin`]: keeping pages where they are; [`frames`]: which they are.
//! - [`datagram`]: sending from memory that stays where it is, and is not copied.
//! - [`send_ring`]: the same over connections, out of anybody's memory.
//! - [`refused`]: what the four before this one say when they cannot; [`failed`]: which of several
//!   calls it was.
//! - [`maps`], [`threads`]: what kind of memory is where, and in which calls this process's threads are; how
//!   threads are started.
//! - [`scheduled`]: how long threads waited for processors.
//! - [`process`]: other processes: are they alive, and what is in their memory; [`presence`]: whether that is
//!   there.
//! - [`signal`]: what becomes of signals here.
//! - [`program`]: programs that this one starts: where they run, and how long.
//! - [`barrier`], [`fork`]: memory order across processes, and noticing a `fork(2)`; `inherit`: sockets that
//!   children do not get.
//! - [`block`]: memory copied and zeroed, by every algorithm there is.
//! - [`partner`]: another core that reads, where it is measured what that costs.
//! - [`careful`]: copies where there may be no memory.
//! - [`ahead`]: pages put where somebody will write.
//! - [`poll`]: sleeping until something happens.
//! - `netns`: networks within this machine, for measurements and tests; with the feature of that name.
//! - `fabric`: libfabric, where it is installed, for measurements; with the feature of that name.
//! - [`checker`]: whether the process is run by Valgrind.
//! - [`trial`], [`child`], [`cpu`]: finding out what is allowed here, without coming to harm.
//!
//! Nothing here decides anything: a call that the kernel lacks or a filter forbids comes back
//! as the error it gave, and the caller takes another way.

pub mod affinity;
pub mod ahead;
pub mod alarm;
pub mod barrier;
pub mod block;
pub mod careful;
pub mod checker;
pub mod child;
pub mod clock;
pub mod cpu;
pub mod datagram;
#[cfg(feature = "fabric")]
pub mod fabric;
pub mod failed;
pub mod fork;
pub mod frames;
mod inherit;
pub mod lots;
pub mod mapping;
pub mod maps;
pub mod memfd;
pub mod names;
#[cfg(feature = "netns")]
pub mod netns;
mod pagemap;
pub mod partner;
pub mod pin;
pub mod poll;
pub mod presence;
pub mod process;
pub mod program;
pub mod refused;
pub mod reserved;
mod resident;
pub mod scheduled;
pub mod send_ring;
pub mod signal;
pub mod socket;
pub mod stopping;
pub mod stream;
pub mod threads;
pub mod trial;
pub mod user;
pub mod userfault;

// Addresses and lengths cross process boundaries as `u64`.
const _: () = assert!(size_of::<usize>() == 8, "Pinfold needs a 64-bit target");
