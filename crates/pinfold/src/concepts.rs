//! Pages on what the calls have in common.

/// Memory that others can map.
///
/// An [`Arena`](crate::Arena) gives out buffers in files of memory. A peer that is sent something
/// out of one gets the file's descriptor, maps it, and copies later messages by itself, without
/// the kernel; or looks at a buffer that was given to it where it is.
///
/// ```
/// # fn main() -> pinfold::Result<()> {
/// # use pinfold::{Arena, Endpoint, Path};
/// # let name = format!("local:concept-arenas-{}", std::process::id());
/// # let endpoint = Endpoint::listen(&name)?;
/// # let (to, from) = (endpoint.connect(&name)?, endpoint.accept()?);
/// let arena = Arena::new()?;
/// let mut frame = arena.alloc(1 << 20)?;
/// frame.fill(1);
/// let given = endpoint.handoff(to, 1, frame);
/// let view = endpoint.recv_view(from, 1)?;
/// assert_eq!(view.receipt().path, Path::Handoff);
/// drop(view);
/// // Once nobody looks at it, the buffer is its owner's again, with its memory.
/// let (_, donation) = given.wait();
/// let frame = donation.into_arena_buf().expect("there is no clone of it");
/// assert_eq!(frame.len(), 1 << 20);
/// # Ok(())
/// # }
/// ```
///
/// | memory | its owner | peers | for |
/// |---|---|---|---|
/// | [`Arena`](crate::Arena) | reads and writes | read, all that lies beside it, too | messages from the same memory; frames whose memory comes back |
/// | [`SharedArena`](crate::SharedArena) | copies in and out | read and write | receives that their sender fills; buffers that both write |
/// | [`FrozenBuf`](crate::FrozenBuf) | reads | read, each its own file | what is read in place by safe code, and passed on to third processes |
///
/// Peers keep a mapping until the owner drops the arena, or they need the room. All of it is
/// memory by `memfd_create(2)`: nothing is left behind when processes die, and `/dev/shm` is not
/// used.
pub mod arenas {}

/// Which way a transfer went, and why no faster one.
///
/// Every send and receive ends with a [`Receipt`](crate::Receipt): the [`Path`](crate::Path), the
/// bytes that were copied by this library and by the kernel, and for each other path why it was
/// refused ([`Refusal`](crate::Refusal)).
///
/// ```
/// # fn main() -> pinfold::Result<()> {
/// use pinfold::{Endpoint, Path, Refusal};
///
/// # let name = format!("local:concept-receipts-{}", std::process::id());
/// # let endpoint = Endpoint::listen(&name)?;
/// # let (to, from) = (endpoint.connect(&name)?, endpoint.accept()?);
/// let receipt = endpoint.send(to, 1, &[7; 1000])?;
/// assert_eq!((receipt.path, receipt.bytes), (Path::Eager, 1000));
/// assert_eq!(receipt.refused(Path::Inline), Some(Refusal::TooLong));
/// println!("{receipt}");
/// # endpoint.recv(from, 1)?;
/// # Ok(())
/// # }
/// ```
///
/// A call that the machine denies makes a transfer slower, not wrong. Where that must not go
/// unnoticed, [`Builder::strict`](crate::Builder::strict) makes
/// [`Error::PathRefused`](crate::Error::PathRefused) of it. Paths that the program itself has
/// switched off ([`Builder::paths`](crate::Builder::paths)) do not count. `pinfold doctor` says
/// what a machine allows.
pub mod receipts {}

/// Waiting, and who makes progress.
///
/// An endpoint makes progress while it is called: a blocking call spins for a while that adapts,
/// then sleeps. Four other ways:
///
/// - *an event loop*: the endpoint is a descriptor (`AsFd`):
///   [`Endpoint::arm`](crate::Endpoint::arm) before it is polled,
///   [`Endpoint::progress`](crate::Endpoint::progress) after;
/// - *futures*: requests are futures of any runtime. The first that has to wait starts a thread
///   that drives the endpoint;
/// - *queues*: a [`CompletionQueue`](crate::CompletionQueue) takes requests of several endpoints,
///   each with a number of the program's own, and is waited on in one place;
/// - *a thread of its own*: [`Progress::Dedicated`](crate::Progress::Dedicated), for programs that
///   answer peers while they compute.
///
/// ```
/// # fn main() -> pinfold::Result<()> {
/// use pinfold::{Completed, CompletionQueue, Endpoint};
///
/// # let name = |n: u32| format!("local:concept-waiting-{n}-{}", std::process::id());
/// // One thread serves two endpoints.
/// let (one, two) = (Endpoint::listen(&name(1))?, Endpoint::listen(&name(2))?);
/// let queue = CompletionQueue::new()?;
/// # let (to_one, from_one) = (one.connect(&name(1))?, one.accept()?);
/// # let (to_two, from_two) = (two.connect(&name(2))?, two.accept()?);
/// queue.add(1, one.recv_request(from_one, ..));
/// queue.add(2, two.recv_request(from_two, ..));
/// two.send(to_two, 5, b"to the second")?;
/// let mut ended = Vec::new();
/// queue.wait(&mut ended, 16, None)?;
/// assert_eq!(ended[0].context, 2);
/// one.send(to_one, 6, b"to the first")?;
/// queue.wait(&mut ended, 16, None)?;
/// assert_eq!(ended[1].context, 1);
/// # Ok(())
/// # }
/// ```
pub mod waiting {}

/// Ends: of peers, connections and endpoints.
///
/// A peer on this host that is killed, at any instruction, is an error that names it within 0.1 s;
/// nothing of it is left behind. What it had sent can still be received, memory that it had given
/// can still be looked at.
///
/// ```
/// # fn main() -> pinfold::Result<()> {
/// use pinfold::Endpoint;
///
/// # let name = format!("local:concept-death-{}", std::process::id());
/// let server = Endpoint::listen(&name)?;
/// let client = Endpoint::new()?;
/// # let caller = client.clone();
/// # let calls = std::thread::spawn(move || caller.connect(&name));
/// # let from_client = server.accept()?;
/// # let to_server = calls.join().unwrap()?;
/// client.send(to_server, 1, b"last words")?;
/// drop(client);
/// assert_eq!(&*server.recv(from_client, 1)?, b"last words");
/// assert!(server.recv(from_client, 1).unwrap_err().is_peer_gone());
/// # Ok(())
/// # }
/// ```
///
/// - A connection to another host that breaks is made anew, and goes on where it was, for as long
///   as [`Builder::reconnect_timeout`](crate::Builder::reconnect_timeout) says.
/// - [`Endpoint::close`](crate::Endpoint::close), or the drop of the last handle, delivers what can
///   be delivered within a second or two; [`Endpoint::drain`](crate::Endpoint::drain) waits for
///   the rest, and says what is left.
/// - Memory that was given goes back when its receiver drops its view, ends, or is disconnected.
/// - In a child made by `fork(2)` an endpoint is the parent's: calls are
///   [`Error::Forked`](crate::Error::Forked).
pub mod death {}

/// The processes that may connect, and the harm that a peer can do.
///
/// - On one host the kernel says who calls. A listener admits its own user; others by
///   [`Builder::access`](crate::Builder::access).
/// - Between hosts both prove to have the same key, which is never sent
///   ([`Builder::key_file`](crate::Builder::key_file); `pinfold keygen` makes one), and
///   [`Builder::encrypt`](crate::Builder::encrypt) adds TLS 1.3 bound to it. There is no downgrade.
///
/// ```
/// # fn main() -> pinfold::Result<()> {
/// use pinfold::{Access, Endpoint};
///
/// # let name = format!("local:concept-security-{}", std::process::id());
/// let access = Access::same_user().group(100);
/// let server = Endpoint::builder().listen(&name).access(access).peers_max(64).build()?;
/// # drop(server);
/// # Ok(())
/// # }
/// ```
///
/// Bytes of a peer are copied out once and then checked; nonsense cuts it off, and harms nobody
/// else. A peer can read all of an arena that something was sent out of: use one for each group of
/// peers that may see each other's data. It can write a [`SharedArena`](crate::SharedArena) and a
/// region with that right at any time: copy out what is then checked. It cannot write an
/// [`Arena`](crate::Arena), and a [`FrozenBuf`](crate::FrozenBuf) not even its owner can: the
/// kernel refuses it.
pub mod security {}
