//! Recording: a program is run and watched, and each call that moves bytes becomes an event.
//!
//! Bytes that move without a call are not seen: those of an io_uring, of mapped files, and of
//! memory that processes share. [`Recorded::io_urings`] counts the rings.

use std::{
    collections::HashMap,
    ffi::OsString,
    fs,
    io::{self, Write},
    os::unix::fs::{FileExt, FileTypeExt, MetadataExt},
    panic,
    sync::Arc,
    thread,
    time::Instant,
};

use pinfold_sys::{failed::Failed, process::read_remote_into, ptrace};

pub use pinfold_sys::ptrace::Ended;

use super::{Call, Event, Kind, Object, SEGMENTS_MAX, Segment, Thread, TraceError, write::Writer};

/// Objects and names that are remembered; then they are looked up anew.
const REMEMBERED: usize = 4096;
/// Bytes of `struct iovec`, `struct msghdr` and `struct mmsghdr`.
const IOVEC: usize = 16;
const MSGHDR: usize = 56;
const MMSGHDR: usize = 64;
/// Results from here to there are the kernel's word to itself to begin a call anew.
const RESTARTS: std::ops::RangeInclusive<i64> = -516..=-512;

/// The wishes for a recording.
#[derive(Clone, Debug)]
pub struct Wishes {
    /// The kinds of objects whose calls are kept.
    pub kinds: Vec<Kind>,
    /// Names of files, pipes and sockets are kept.
    pub names: bool,
}

impl Default for Wishes {
    /// Everything but kinds that are none of sockets, pipes, files and devices; with names.
    fn default() -> Wishes {
        let kinds = [Kind::Socket, Kind::Pipe, Kind::File, Kind::Device].to_vec();
        Wishes { kinds, names: true }
    }
}

/// The results of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The end of the program.
    pub ended: Ended,
    /// Events in the trace.
    pub events: u64,
    /// Processes that made an io_uring, whose traffic is not in the trace.
    pub io_urings: u64,
    /// Calls of 32-bit programs, which are not in the trace.
    pub foreign: u64,
    /// Calls whose memory could not be looked at; they are there without segments.
    pub unread: u64,
}

/// The calls that are watched, by their numbers.
const CALLS: [(i64, Call); 21] = [
    (libc::SYS_read, Call::Read),
    (libc::SYS_write, Call::Write),
    (libc::SYS_pread64, Call::Pread),
    (libc::SYS_pwrite64, Call::Pwrite),
    (libc::SYS_readv, Call::Readv),
    (libc::SYS_writev, Call::Writev),
    (libc::SYS_preadv, Call::Preadv),
    (libc::SYS_pwritev, Call::Pwritev),
    (libc::SYS_preadv2, Call::Preadv2),
    (libc::SYS_pwritev2, Call::Pwritev2),
    (libc::SYS_recvfrom, Call::Recvfrom),
    (libc::SYS_sendto, Call::Sendto),
    (libc::SYS_recvmsg, Call::Recvmsg),
    (libc::SYS_sendmsg, Call::Sendmsg),
    (libc::SYS_recvmmsg, Call::Recvmmsg),
    (libc::SYS_sendmmsg, Call::Sendmmsg),
    (libc::SYS_vmsplice, Call::Vmsplice),
    (libc::SYS_sendfile, Call::Sendfile),
    (libc::SYS_splice, Call::Splice),
    (libc::SYS_tee, Call::Tee),
    (libc::SYS_copy_file_range, Call::CopyFileRange),
];

/// Runs a program, with all that it starts, and writes the trace of its calls. Returns once all of
/// them have ended. `started` is told the program's number.
///
/// If the trace cannot be written any more, the program goes on to its end nevertheless.
///
/// # Errors
/// [`TraceError::Watch`], [`TraceError::Write`].
pub fn record<W: Write + Send>(
    words: &[OsString],
    wishes: &Wishes,
    out: W,
    started: impl Fn(u32) + Send,
) -> Result<Recorded, TraceError> {
    let mut recorder = Recorder {
        writer: Writer::new(out)?,
        wishes: wishes.clone(),
        failed: None,
        began: Instant::now(),
        started,
        pending: HashMap::new(),
        names: HashMap::new(),
        objects: HashMap::new(),
        io_urings: 0,
        foreign: 0,
        unread: 0,
    };
    let mut numbers: Vec<i64> = CALLS.iter().map(|it| it.0).collect();
    numbers.push(libc::SYS_io_uring_setup);
    // A thread that has no other children: the watcher waits for all of its thread's.
    let ended = thread::scope(|scope| {
        let watch = || ptrace::run(words, &numbers, &mut recorder);
        let watcher = thread::Builder::new().name("watcher".into()).spawn_scoped(scope, watch);
        let done = watcher.map_err(Failed::of("clone"))?.join();
        done.unwrap_or_else(|panic| panic::resume_unwind(panic))
    });
    let ended = ended.map_err(TraceError::Watch)?;
    let Recorder { writer, failed, io_urings, foreign, unread, .. } = recorder;
    if let Some(why) = failed {
        return Err(why);
    }
    let (_, events) = writer.finish()?;
    Ok(Recorded { ended, events, io_urings, foreign, unread })
}

/// A call that has begun: its descriptor, what that is, and the segments of each of its messages.
struct Pending {
    call: Call,
    fd: i32,
    object: Arc<Object>,
    messages: Vec<Vec<Segment>>,
}

struct Recorder<W: Write, S> {
    writer: Writer<W>,
    wishes: Wishes,
    failed: Option<TraceError>,
    began: Instant,
    started: S,
    pending: HashMap<u32, Pending>,
    /// By process: the program's name.
    names: HashMap<u32, String>,
    /// By device and inode.
    objects: HashMap<(u64, u64), Arc<Object>>,
    io_urings: u64,
    foreign: u64,
    unread: u64,
}

impl<W: Write + Send, S: Fn(u32) + Send> ptrace::Observer for Recorder<W, S> {
    fn started(&mut self, pid: u32) {
        (self.started)(pid);
    }

    fn executed(&mut self, pid: u32) {
        self.names.remove(&pid);
    }

    fn enters(&mut self, call: &ptrace::Call) {
        let Some((_, which)) = CALLS.iter().find(|it| it.0 == call.number) else {
            self.io_urings += 1;
            return;
        };
        let at = match which {
            Call::Splice | Call::CopyFileRange => 2,
            Call::Tee => 1,
            _ => 0,
        };
        let fd = call.args[at] as i32;
        let object = self.object(call.pid, fd);
        if !self.wishes.kinds.contains(&object.kind) {
            return;
        }
        let messages = messages(*which, call).unwrap_or_else(|_| {
            self.unread += 1;
            vec![Vec::new()]
        });
        self.pending.insert(call.tid, Pending { call: *which, fd, object, messages });
    }

    fn leaves(&mut self, call: &ptrace::Call, result: i64) {
        let Some(pending) = self.pending.remove(&call.tid) else { return };
        if RESTARTS.contains(&result) || self.failed.is_some() {
            return;
        }
        let at_ns = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let name = self.name(call.pid);
        let thread = Arc::new(Thread { pid: call.pid, tid: call.tid, name });
        let Pending { call: which, fd, object, mut messages } = pending;
        // Of several messages, as many were moved as the result says; each has its own length.
        let is_many = matches!(which, Call::Recvmmsg | Call::Sendmmsg) && result >= 0;
        if is_many {
            messages.truncate(result as usize);
        } else {
            messages.truncate(1);
        }
        for (at, segments) in messages.into_iter().enumerate() {
            let result = if is_many { moved_of(call, at) } else { result };
            let (thread, object) = (Arc::clone(&thread), Arc::clone(&object));
            let event = Event { at_ns, thread, call: which, fd, object, segments, result };
            self.failed = self.failed.take().or(self.writer.event(&event).err());
        }
    }

    fn foreign(&mut self, _: u32) {
        self.foreign += 1;
    }

    fn gone(&mut self, tid: u32) {
        self.pending.remove(&tid);
        self.names.remove(&tid);
    }
}

impl<W: Write, S> Recorder<W, S> {
    fn name(&mut self, pid: u32) -> String {
        if self.names.len() >= REMEMBERED {
            self.names.clear();
        }
        let read = || {
            let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
            String::from_utf8_lossy(&name).trim_end().to_owned()
        };
        self.names.entry(pid).or_insert_with(read).clone()
    }

    fn object(&mut self, pid: u32, fd: i32) -> Arc<Object> {
        let path = format!("/proc/{pid}/fd/{fd}");
        let Ok(about) = fs::metadata(&path) else {
            let (kind, name) = (Kind::Other, String::new());
            return Arc::new(Object { kind, device: 0, inode: 0, name });
        };
        if self.objects.len() >= REMEMBERED {
            self.objects.clear();
        }
        let of = about.file_type();
        let kind = match () {
            () if of.is_socket() => Kind::Socket,
            () if of.is_fifo() => Kind::Pipe,
            () if of.is_file() => Kind::File,
            () if of.is_char_device() || of.is_block_device() => Kind::Device,
            () => Kind::Other,
        };
        let (device, inode) = (about.dev(), about.ino());
        let names = self.wishes.names;
        let new = || {
            let name = fs::read_link(&path).ok().filter(|_| names);
            let name = name.map_or(String::new(), |it| it.to_string_lossy().into_owned());
            Arc::new(Object { kind, device, inode, name })
        };
        let known = self.objects.entry((device, inode)).or_insert_with(new);
        if known.kind != kind {
            *known = Arc::new(Object { kind, ..Object::clone(known) });
        }
        Arc::clone(known)
    }
}

/// Copies bytes of a process; by a file if the call for it is not allowed.
fn peek(pid: u32, address: u64, into: &mut [u8]) -> io::Result<()> {
    if read_remote_into(pid, address, into).is_ok_and(|got| got == into.len()) {
        return Ok(());
    }
    fs::File::open(format!("/proc/{pid}/mem"))?.read_exact_at(into, address)
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let eight = bytes.get(at..at + 8).and_then(|eight| eight.try_into().ok());
    u64::from_le_bytes(eight.unwrap_or_default())
}

/// The segments of an array of `struct iovec`.
fn iovecs(pid: u32, address: u64, count: u64) -> io::Result<Vec<Segment>> {
    let count = count.min(SEGMENTS_MAX as u64) as usize;
    let mut bytes = vec![0; count * IOVEC];
    peek(pid, address, &mut bytes)?;
    let one = |it: &[u8]| Segment { address: word(it, 0), bytes: word(it, 8) };
    Ok(bytes.chunks_exact(IOVEC).map(one).collect())
}

/// The segments of a `struct msghdr`.
fn of_msghdr(pid: u32, header: &[u8]) -> io::Result<Vec<Segment>> {
    iovecs(pid, word(header, 16), word(header, 24))
}

/// The segments of each message of a call.
fn messages(which: Call, call: &ptrace::Call) -> io::Result<Vec<Vec<Segment>>> {
    let (pid, args) = (call.pid, &call.args);
    let one = match which {
        Call::Read | Call::Write | Call::Pread | Call::Pwrite | Call::Recvfrom | Call::Sendto => {
            vec![Segment { address: args[1], bytes: args[2] }]
        }
        Call::Readv | Call::Writev | Call::Preadv | Call::Pwritev => iovecs(pid, args[1], args[2])?,
        Call::Preadv2 | Call::Pwritev2 | Call::Vmsplice => iovecs(pid, args[1], args[2])?,
        Call::Recvmsg | Call::Sendmsg => {
            let mut header = [0; MSGHDR];
            peek(pid, args[1], &mut header)?;
            of_msghdr(pid, &header)?
        }
        Call::Recvmmsg | Call::Sendmmsg => {
            let count = (args[2] as u32 as usize).min(SEGMENTS_MAX);
            let mut headers = vec![0; count * MMSGHDR];
            peek(pid, args[1], &mut headers)?;
            return headers.chunks_exact(MMSGHDR).map(|it| of_msghdr(pid, it)).collect();
        }
        Call::Sendfile | Call::Splice | Call::Tee | Call::CopyFileRange => Vec::new(),
        // No calls of the kernel's.
        Call::TlbHit | Call::PinHit | Call::PinMiss | Call::Put | Call::Get | Call::Message => {
            Vec::new()
        }
    };
    Ok(vec![one])
}

/// The bytes that a message of several moved, as the kernel has written it beside the message.
fn moved_of(call: &ptrace::Call, at: usize) -> i64 {
    let mut length = [0; 4];
    let address = call.args[1].wrapping_add((at * MMSGHDR + MSGHDR) as u64);
    let read = peek(call.pid, address, &mut length);
    read.map_or(0, |()| u32::from_le_bytes(length).into())
}
