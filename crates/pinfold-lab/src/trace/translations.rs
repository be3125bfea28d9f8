//! Recording the translations of a program's endpoints: a program that uses Pinfold is run, and
//! sends each translation of the memory that it sends from. Nothing else is watched.
//!
//! An event is a translation: its call is the level that had the memory (`tlb_hit`, `pin_hit`,
//! `pin_miss`, as the endpoint's counters have them), its object the endpoint, numbered within its
//! process, its segment the memory, and its result the bytes.

use std::{
    collections::HashMap,
    ffi::OsString,
    fs,
    io::{ErrorKind, Write},
    os::unix::{fs::DirBuilderExt, net::UnixDatagram, process::ExitStatusExt},
    path::{Path, PathBuf},
    process::{Child, Command},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use pinfold::{TranslationLevel, translate::told::Translated};

use super::{Call, Event, Kind, Object, Segment, Thread, TraceError, record::Ended, write::Writer};

/// The wait for a translation before it is looked whether the program has ended.
const LOOK: Duration = Duration::from_millis(20);
/// Processes and endpoints that are remembered; then they are looked up anew.
const REMEMBERED: usize = 4096;

/// Folders that this process has made.
static MADE: AtomicU64 = AtomicU64::new(0);

/// The results of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The end of the program.
    pub ended: Ended,
    /// Translations in the trace.
    pub events: u64,
    /// Datagrams that were no translations: of another version of Pinfold's.
    pub foreign: u64,
}

/// A socket in a folder of its own, which goes with it.
struct Place {
    socket: UnixDatagram,
    folder: PathBuf,
}

impl Place {
    fn new() -> std::io::Result<Place> {
        let made = MADE.fetch_add(1, Relaxed);
        let name = format!("pinfold-trace-{}-{made}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::DirBuilder::new().mode(0o700).create(&folder)?;
        let socket = UnixDatagram::bind(folder.join("socket"));
        let socket = socket.inspect_err(|_| _ = fs::remove_dir(&folder))?;
        // From here on the folder goes with the place.
        let place = Place { socket, folder };
        place.socket.set_read_timeout(Some(LOOK))?;
        Ok(place)
    }

    fn path(&self) -> PathBuf {
        self.folder.join("socket")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.path());
        let _ = fs::remove_dir(&self.folder);
    }
}

/// Events from translations.
struct Maker {
    began: Instant,
    threads: HashMap<u32, Arc<Thread>>,
    endpoints: HashMap<u64, Arc<Object>>,
}

/// The call that a level is in a trace.
pub fn call_of(level: TranslationLevel) -> Call {
    match level {
        TranslationLevel::Tlb => Call::TlbHit,
        TranslationLevel::PinCache => Call::PinHit,
        TranslationLevel::Pinned => Call::PinMiss,
    }
}

/// An endpoint, by its number.
pub fn endpoint(number: u64) -> Arc<Object> {
    Arc::new(Object { kind: Kind::Endpoint, device: 0, inode: number, name: String::new() })
}

impl Maker {
    fn event(&mut self, one: &Translated) -> Event {
        if self.threads.len() > REMEMBERED || self.endpoints.len() > REMEMBERED {
            self.threads.clear();
            self.endpoints.clear();
        }
        let thread = self.threads.entry(one.pid).or_insert_with(|| {
            let name = fs::read_to_string(format!("/proc/{}/comm", one.pid)).unwrap_or_default();
            Arc::new(Thread { pid: one.pid, tid: one.pid, name: name.trim_end().to_owned() })
        });
        let object = self.endpoints.entry(one.endpoint).or_insert_with(|| endpoint(one.endpoint));
        let at_ns = self.began.elapsed().as_nanos();
        Event {
            at_ns: u64::try_from(at_ns).unwrap_or(u64::MAX),
            thread: Arc::clone(thread),
            call: call_of(one.level),
            fd: -1,
            object: Arc::clone(object),
            segments: vec![Segment { address: one.address, bytes: one.bytes }],
            result: i64::try_from(one.bytes).unwrap_or(i64::MAX),
        }
    }
}

fn started(words: &[OsString], path: &Path) -> Result<Child, TraceError> {
    let (program, rest) = words.split_first().ok_or_else(|| TraceError::Start {
        program: String::new(),
        why: std::io::Error::from(ErrorKind::InvalidInput),
    })?;
    let child = Command::new(program).args(rest).env(pinfold::status::SOCKET, path).spawn();
    child.map_err(|why| TraceError::Start { program: program.display().to_string(), why })
}

fn ended(child: &mut Child) -> std::io::Result<Option<Ended>> {
    let status = child.try_wait()?;
    Ok(status.map(|status| match status.signal() {
        Some(signal) => Ended::Signalled(signal),
        None => Ended::Exited(status.code().unwrap_or(0)),
    }))
}

/// Runs a program and writes the trace of its endpoints' translations, and of those that it starts,
/// until it has ended itself. `told` is told the program's number. A program waits while its
/// translations are not taken.
///
/// If the trace cannot be written any more, the program goes on to its end nevertheless.
///
/// # Errors
/// [`TraceError::Start`], [`TraceError::Listen`], [`TraceError::Write`].
pub fn record<W: Write>(
    words: &[OsString],
    out: W,
    told: impl Fn(u32),
) -> Result<Recorded, TraceError> {
    let mut writer = Writer::new(out)?;
    let place = Place::new().map_err(TraceError::Listen)?;
    let mut maker =
        Maker { began: Instant::now(), threads: HashMap::new(), endpoints: HashMap::new() };
    let mut child = started(words, &place.path())?;
    told(child.id());
    let (mut foreign, mut failed, mut end) = (0, None, None);
    // One byte more than there should be, so that longer ones are seen.
    let mut bytes = [0; Translated::BYTES + 1];
    loop {
        match place.socket.recv(&mut bytes) {
            Ok(count) => match Translated::from_bytes(&bytes[..count]) {
                Some(one) if failed.is_none() => {
                    failed = writer.event(&maker.event(&one)).err();
                }
                Some(_) => {}
                None => foreign += 1,
            },
            Err(why) if why.kind() == ErrorKind::Interrupted => {}
            Err(why) if matches!(why.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                // All that it sent before its end has been taken.
                if end.is_some() {
                    break;
                }
                end = ended(&mut child).map_err(TraceError::Listen)?;
                if end.is_some() {
                    place.socket.set_nonblocking(true).map_err(TraceError::Listen)?;
                }
            }
            Err(why) => return Err(TraceError::Listen(why)),
        }
    }
    if let Some(why) = failed {
        return Err(why);
    }
    let (_, events) = writer.finish()?;
    Ok(Recorded { ended: end.unwrap_or(Ended::Exited(0)), events, foreign })
}

#[cfg(test)]
mod tests;
