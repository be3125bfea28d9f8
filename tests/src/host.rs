#![allow(unsafe_code)]
//! The services of the system that the tests need and safe code cannot give.
//!
//! **Invariant.** A [`Bytes`] names bytes inside its own box, which stays where it is; the rest is
//! system calls on memory that the caller found mapped in this very process. Tests that scribble
//! over shared memory do it to memory that the library reaches as untrusted anyway.

use std::{
    io,
    ops::{Deref, DerefMut},
    os::fd::BorrowedFd,
    path::Path,
    process::Command,
    sync::Mutex,
};

use pinfold::{ArenaBuf, OwnedBuf, OwnedBufMut, SharedBuf};
use rustix::process::{Pid, Signal, WaitOptions, waitpid};

/// A part of some memory that operations can own.
pub struct Bytes {
    whole: Whole,
    at: usize,
    len: usize,
}

/// Memory that does not move with this.
pub enum Whole {
    /// On the heap.
    Heap(Box<[u8]>),
    /// In an arena.
    Arena(ArenaBuf),
}

impl Deref for Whole {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Whole::Heap(whole) => whole,
            Whole::Arena(whole) => whole,
        }
    }
}

impl DerefMut for Whole {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Whole::Heap(whole) => whole,
            Whole::Arena(whole) => whole,
        }
    }
}

impl Bytes {
    /// `len` bytes of `whole`, from `at`.
    pub fn new(whole: Whole, at: usize, len: usize) -> Bytes {
        assert!(at + len <= whole.len());
        Bytes { whole, at, len }
    }

    /// The bytes.
    pub fn get(&self) -> &[u8] {
        &self.whole[self.at..self.at + self.len]
    }

    /// The bytes.
    pub fn get_mut(&mut self) -> &mut [u8] {
        &mut self.whole[self.at..self.at + self.len]
    }

    /// The bytes before and behind them.
    pub fn around(&self) -> (&[u8], &[u8]) {
        (&self.whole[..self.at], &self.whole[self.at + self.len..])
    }
}

// SAFETY: the bytes do not move with the struct; nothing else reaches them.
unsafe impl OwnedBuf for Bytes {
    fn bytes(&self) -> (*const u8, usize) {
        (self.get().as_ptr(), self.len)
    }
}

// SAFETY: as above.
unsafe impl OwnedBufMut for Bytes {
    fn bytes_mut(&mut self) -> (*mut u8, usize) {
        let len = self.len;
        (self.get_mut().as_mut_ptr(), len)
    }
}

/// Part of a buffer that peers may write, to be handed to an operation.
pub struct SharedPart {
    buf: SharedBuf,
    at: usize,
    len: usize,
}

impl SharedPart {
    /// `len` bytes of `buf` from `at` on.
    ///
    /// # Panics
    /// If they are not all inside.
    pub fn new(buf: SharedBuf, at: usize, len: usize) -> SharedPart {
        assert!(at <= buf.len() && len <= buf.len() - at);
        SharedPart { buf, at, len }
    }

    /// All of the buffer.
    pub fn into_buf(self) -> SharedBuf {
        self.buf
    }
}

// SAFETY: the part is inside by construction, and the bytes of its buffer do not move with it.
unsafe impl OwnedBuf for SharedPart {
    fn bytes(&self) -> (*const u8, usize) {
        (self.buf.bytes().0.wrapping_add(self.at), self.len)
    }
}

// SAFETY: as above.
unsafe impl OwnedBufMut for SharedPart {
    fn bytes_mut(&mut self) -> (*mut u8, usize) {
        (self.buf.bytes_mut().0.wrapping_add(self.at), self.len)
    }
}

/// Copies a program to where another user can run it.
///
/// The copy is made by another process: a descriptor of this one for writing would be in every
/// child that it forks meanwhile, and the kernel runs no file that is being written.
///
/// # Panics
/// If it cannot be copied.
pub fn copy_program(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    let copied = Command::new("cp").arg(from.as_ref()).arg(to.as_ref()).status();
    assert!(copied.expect("cp").success(), "cp {}", from.as_ref().display());
}

/// How a forked child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It returned this.
    Code(i32),
    /// This signal killed it.
    Signal(i32),
}

/// Runs `child` in a forked copy of this process and waits for its end. Only for processes of one
/// thread.
pub fn fork(child: impl FnOnce() -> i32) -> Ended {
    // SAFETY: glibc leaves a child of a process with several threads its allocator; of all else
    // that other threads may have been in the middle of, the child uses endpoints alone, which are
    // made for that. It ends without running anything of the parent's.
    match unsafe { libc::fork() } {
        0 => {
            let run = std::panic::AssertUnwindSafe(child);
            let code = std::panic::catch_unwind(run).unwrap_or(101);
            // SAFETY: ends the process.
            unsafe { libc::_exit(code) }
        }
        pid => {
            let pid = Pid::from_raw(pid).expect("fork");
            let (_, status) =
                waitpid(Some(pid), WaitOptions::empty()).expect("waitpid").expect("it");
            match (status.exit_status(), status.terminating_signal()) {
                (Some(code), _) => Ended::Code(code),
                (_, Some(signal)) => Ended::Signal(signal),
                _ => panic!("{status:?}"),
            }
        }
    }
}

/// How a process is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copying {
    /// By `fork(3)`, with the handlers of `pthread_atfork(3)`.
    Fork,
    /// By `clone(2)` alone: no handler runs, and the child keeps everything of its parent's.
    Clone,
}

/// Makes a copy of this process that does nothing, for a minute if it is not killed: an orphan, as
/// its parent is killed. Returns its process id. Only for processes of which the child needs
/// nothing.
pub fn leave_orphan(by: Copying) -> u32 {
    let flags = libc::c_long::from(libc::SIGCHLD);
    // SAFETY: without a stack, or memory shared, it is a fork; the child makes system calls alone.
    let pid = unsafe {
        match by {
            Copying::Fork => libc::c_long::from(libc::fork()),
            Copying::Clone => libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0),
        }
    };
    if pid == 0 {
        // SAFETY: sleeps, with nothing of the director's pipes kept open, and ends the process.
        unsafe {
            for fd in 0..3 {
                libc::close(fd);
            }
            libc::sleep(60);
            libc::_exit(0)
        }
    }
    u32::try_from(pid).ok().filter(|pid| *pid > 0).expect("fork")
}

/// Pages of the file behind a mapping that are in memory, no matter which process touched them.
pub fn resident_pages(at: usize, len: usize) -> usize {
    let mut pages = vec![0u8; len.div_ceil(4096)];
    // SAFETY: the kernel writes one byte for each page of the range into `pages`.
    let done = unsafe { libc::mincore(at as *mut _, len, pages.as_mut_ptr()) };
    assert_eq!(done, 0, "mincore: {}", io::Error::last_os_error());
    pages.iter().filter(|page| **page & 1 != 0).count()
}

/// Puts a page of memory of its own at `at`, where nothing is mapped.
///
/// # Panics
/// If something is.
pub fn occupy(at: usize) {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
    let flags = MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE;
    // SAFETY: replaces nothing.
    let got =
        unsafe { mmap_anonymous(at as *mut _, 4096, ProtFlags::READ | ProtFlags::WRITE, flags) };
    assert_eq!(got.expect("the place is free") as usize, at);
}

/// Writes 8 bytes at `at`, which is mapped and writable.
pub fn scribble(at: usize, word: u64) {
    // SAFETY: callers pass addresses inside a segment found in `/proc/self/maps`, which nothing
    // reaches by reference.
    unsafe { (at as *mut u64).write_unaligned(word) };
}

/// Reads 8 bytes at `at`, which is mapped.
pub fn peek(at: usize) -> u64 {
    // SAFETY: as in `scribble`.
    unsafe { (at as *const u64).read_unaligned() }
}

/// Takes all capabilities from this thread, so that it is denied the same as other processes of the
/// user.
///
/// # Errors
/// The kernel's error.
pub fn give_up_capabilities() -> io::Result<()> {
    use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    Ok(set_capabilities(None, sets)?)
}

/// This process is killed when its parent ends.
///
/// # Errors
/// The kernel's error.
pub fn end_with_parent() -> io::Result<()> {
    Ok(rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?)
}

/// No process without capabilities gets at the memory of this one from now on.
///
/// # Errors
/// The kernel's error.
pub fn hide_memory() -> io::Result<()> {
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// Gives this process a view of its own of the mounted file systems.
///
/// # Errors
/// `EPERM` for any user but root.
pub fn unshare_mounts() -> io::Result<()> {
    use rustix::mount::{MountPropagationFlags, mount_change};
    // SAFETY: changes no memory and no descriptors.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    Ok(())
}

/// Filled into memory that no code may touch any more.
const DEAD: u8 = 0xdd;

/// The bytes of dropped [`Mortal`]s.
static GRAVES: Mutex<Vec<Box<[u8]>>> = Mutex::new(Vec::new());

/// A buffer whose memory is not given back when it is dropped but kept under watch: late reads find
/// nonsense, and [`check_graves`] finds late writes.
pub struct Mortal(Box<[u8]>);

impl Mortal {
    /// A buffer with these bytes.
    pub fn new(bytes: Vec<u8>) -> Mortal {
        Mortal(bytes.into_boxed_slice())
    }

    /// The bytes.
    pub fn get(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Mortal {
    fn drop(&mut self) {
        let mut bytes = std::mem::take(&mut self.0);
        bytes.fill(DEAD);
        GRAVES.lock().expect("no panic").push(bytes);
    }
}

// SAFETY: a box's contents do not move with it, and nothing else reaches them while it is owned.
unsafe impl OwnedBuf for Mortal {
    fn bytes(&self) -> (*const u8, usize) {
        (self.0.as_ptr(), self.0.len())
    }
}

// SAFETY: as above.
unsafe impl OwnedBufMut for Mortal {
    fn bytes_mut(&mut self) -> (*mut u8, usize) {
        (self.0.as_mut_ptr(), self.0.len())
    }
}

/// Bytes lying in graves.
pub fn bytes_in_graves() -> usize {
    GRAVES.lock().expect("no panic").iter().map(|grave| grave.len()).sum()
}

/// Gives the graves' memory back.
///
/// # Panics
/// If any of it was written after its buffer was dropped.
#[track_caller]
pub fn check_graves() {
    for grave in GRAVES.lock().expect("no panic").drain(..) {
        // The writer would be another process or a raw pointer: the compiler's knowledge of the
        // bytes does not count.
        let grave = std::hint::black_box(grave);
        for (page, bytes) in grave.chunks(4096).enumerate() {
            if bytes != &[DEAD; 4096][..bytes.len()] {
                let at = bytes.iter().position(|byte| *byte != DEAD).unwrap_or(0);
                panic!(
                    "byte {} of a dropped buffer of {} was written",
                    4096 * page + at,
                    grave.len()
                );
            }
        }
    }
}

/// Sends a packet, with descriptors, over a socket of this process given by number.
///
/// # Errors
/// The error of `sendmsg(2)`.
pub fn send_raw(socket: i32, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    // SAFETY: callers take the number from `/proc/self/fd` and close nothing meanwhile.
    let socket = unsafe { BorrowedFd::borrow_raw(socket) };
    let mut space = vec![std::mem::MaybeUninit::uninit(); 512];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(descriptors)), "too many");
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    sendmsg(socket, &[io::IoSlice::new(bytes)], &mut control, flags)?;
    Ok(())
}

/// Bytes of a connection that the other side has not acknowledged, sent or not. See `SIOCOUTQ` in
/// `tcp(7)`.
///
/// # Panics
/// If it is none.
pub fn unacknowledged(stream: &std::net::TcpStream) -> usize {
    use std::os::fd::AsRawFd;
    let mut count: libc::c_int = 0;
    // SAFETY: the kernel writes one integer.
    let done = unsafe { libc::ioctl(stream.as_raw_fd(), libc::TIOCOUTQ, &raw mut count) };
    assert_eq!(done, 0, "SIOCOUTQ: {}", io::Error::last_os_error());
    usize::try_from(count).expect("a count")
}

/// Has this thread, and those that it starts, read `file` as `/etc/hosts`.
///
/// # Errors
/// `EPERM` if this is not root.
pub fn own_hosts(file: &Path) -> io::Result<()> {
    use rustix::mount::{MountPropagationFlags, mount_bind, mount_change};
    // SAFETY: from here on this thread has mounts of its own, and there is no other.
    if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
        return Err(io::Error::last_os_error());
    }
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    Ok(mount_bind(file, "/etc/hosts")?)
}
