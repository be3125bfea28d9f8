//! What a sender reads: a plan of the files to send, and the thread that reads them.
//!
//! The thread hands out records and blocks in the order they are to be sent, ahead of the sending
//! by as many blocks as there are buffers. It stops when nobody takes what it reads any more.

use std::{
    collections::HashSet,
    fs::{FileType, Metadata},
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::{ffi::OsStrExt, fs::FileTypeExt},
    },
    path::{Path, PathBuf},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{Access, Advice, AtFlags, CWD, Mode, OFlags, Stat, accessat, fadvise, fstat, openat},
    io::Errno,
};
use walkdir::WalkDir;

use super::{
    block::{Block, Blocks},
    digest::Digester,
    failure::Failure,
    frame::{BLOCK_BYTES, Content, FileOffer, Record, Totals},
    name::{RelativeName, printable, printable_path},
};

/// What a stream is called in messages.
const STDIN: &str = "standard input";

/// What is to be sent.
#[derive(Debug)]
pub(super) struct Plan {
    /// The files, or `None` for standard input.
    files: Option<Vec<Entry>>,
    /// How much it is, as far as known.
    pub(super) expected: Totals,
    /// What lies in the directories but is not sent, and why.
    pub(super) skipped: Vec<(PathBuf, &'static str)>,
}

/// A file to send.
#[derive(Debug)]
struct Entry {
    path: PathBuf,
    name: RelativeName,
    /// Whether `path` may be a symbolic link: it was named on the command line.
    follow: bool,
}

/// Something to send, in order.
#[derive(Debug)]
pub(super) enum Piece {
    /// A record of the flow.
    Record(Record),
    /// A block of contents, never empty.
    Block(Block),
}

impl Plan {
    /// Finds what `files` name, without opening any of them.
    ///
    /// # Errors
    ///
    /// [`Failure::Usage`] for combinations that make no sense, [`Failure::Local`] and
    /// [`Failure::Unsuitable`] for what is missing, unreadable or neither file nor directory.
    pub(super) fn new(files: &[PathBuf]) -> Result<Plan, Failure> {
        let is_stdin = |path: &PathBuf| path.as_os_str() == "-";
        if files.is_empty() || matches!(files, [one] if is_stdin(one)) {
            return Ok(Plan { files: None, expected: Totals::default(), skipped: Vec::new() });
        }
        if files.iter().any(is_stdin) {
            return Err(Failure::Usage(
                "'-' is standard input, a stream, which is sent alone; write ./- for a file".into(),
            ));
        }
        let mut plan =
            Plan { files: Some(Vec::new()), expected: Totals::default(), skipped: Vec::new() };
        for path in files {
            plan.add(path)?;
        }
        plan.refuse_duplicates()?;
        Ok(plan)
    }

    /// What to announce.
    pub(super) fn content(&self) -> Content {
        if self.files.is_some() { Content::Files } else { Content::Stream }
    }

    fn add(&mut self, path: &Path) -> Result<(), Failure> {
        let metadata =
            path.metadata().map_err(|why| Failure::local("reading", printable_path(path), why))?;
        let base = path.file_name().map(Path::new);
        if metadata.is_file() {
            return self.add_file(path, base.unwrap_or(path), &metadata, true);
        }
        if !metadata.is_dir() {
            let why = format!(
                "it is {}; only files and directories are sent, for what it yields use \
                 'pinfold send ADDRESS < {}'",
                what_it_is(metadata.file_type()),
                printable_path(path)
            );
            return Err(Failure::Unsuitable { what: printable_path(path), why });
        }
        // "." and ".." have no name of their own: what lies in them is sent without a prefix.
        let prefix = base.unwrap_or(Path::new(""));
        for found in WalkDir::new(path).sort_by_file_name() {
            let found = found.map_err(|why| {
                let what = printable_path(why.path().unwrap_or(path));
                Failure::local("reading the directory", what, io::Error::from(why))
            })?;
            let kind = found.file_type();
            if kind.is_dir() {
                continue;
            }
            if !kind.is_file() {
                self.skipped.push((found.path().to_owned(), what_it_is(kind)));
                continue;
            }
            let metadata = found.metadata().map_err(|why| {
                Failure::local("reading", printable_path(found.path()), io::Error::from(why))
            })?;
            let below = found.path().strip_prefix(path).unwrap_or(found.path());
            self.add_file(found.path(), &prefix.join(below), &metadata, false)?;
        }
        Ok(())
    }

    fn add_file(
        &mut self,
        path: &Path,
        name: &Path,
        metadata: &Metadata,
        follow: bool,
    ) -> Result<(), Failure> {
        // Better now than after gigabytes. What changes until it is opened is found then.
        accessat(CWD, path, Access::READ_OK, AtFlags::empty())
            .map_err(|why| Failure::local("reading", printable_path(path), why))?;
        let name = RelativeName::new(name.as_os_str().as_bytes()).map_err(|why| {
            let why = format!("its name cannot be sent: {why}");
            Failure::Unsuitable { what: printable_path(path), why }
        })?;
        self.expected.files += 1;
        self.expected.bytes = self.expected.bytes.saturating_add(metadata.len());
        let entry = Entry { path: path.to_owned(), name, follow };
        self.files.get_or_insert_default().push(entry);
        Ok(())
    }

    fn refuse_duplicates(&self) -> Result<(), Failure> {
        let mut seen = HashSet::new();
        for entry in self.files.iter().flatten() {
            if !seen.insert(&entry.name) {
                return Err(Failure::Usage(format!(
                    "two of the files would arrive as {}; send them apart",
                    entry.name
                )));
            }
        }
        Ok(())
    }
}

/// What a thing that is neither file nor directory is called.
fn what_it_is(kind: FileType) -> &'static str {
    if kind.is_symlink() {
        "a symbolic link"
    } else if kind.is_fifo() {
        "a pipe"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    }
}

/// Reads a plan, piece by piece.
pub(super) struct Reader {
    /// Where the pieces go; at most one failure, as the last.
    pub(super) pieces: async_channel::Sender<Result<Piece, Failure>>,
    /// Where blocks are made, as long as not all of them are.
    blocks: Blocks,
    /// Where they come back to from the sender.
    returned: async_channel::Receiver<Block>,
    /// One that was taken but not needed.
    spare: Option<Block>,
}

impl Reader {
    /// A reader that hands out pieces by `pieces`, in `blocks`, which come back by `returned`.
    pub(super) fn new(
        pieces: async_channel::Sender<Result<Piece, Failure>>,
        blocks: Blocks,
        returned: async_channel::Receiver<Block>,
    ) -> Reader {
        Reader { pieces, blocks, returned, spare: None }
    }

    /// Reads everything in `plan`. Blocks; belongs in a thread of its own.
    pub(super) fn run(mut self, plan: &Plan) {
        let done = match &plan.files {
            Some(files) => self.files(files),
            None => self.stream(io::stdin().as_fd()),
        };
        if let Err(failure) = done {
            // Nobody is there to take it: then nobody needs it.
            let _ = self.pieces.send_blocking(Err(failure));
        }
    }

    fn files(&mut self, files: &[Entry]) -> Result<(), Failure> {
        let mut sent = Totals::default();
        for entry in files {
            sent.bytes += self.file(entry)?;
            sent.files += 1;
        }
        self.put(Piece::Record(Record::Finish(sent)))
    }

    /// Reads one file; returns its length.
    fn file(&mut self, entry: &Entry) -> Result<u64, Failure> {
        let what = printable_path(&entry.path);
        let failed = |why: Errno| Failure::local("reading", what.clone(), why);
        let changed = |how: &str| Failure::Unsuitable {
            what: what.clone(),
            why: format!("it {how} while it was read; send it when it is at rest"),
        };
        let (file, before) = open(entry).map_err(failed)?;
        if !rustix::fs::FileType::from_raw_mode(before.st_mode).is_file() {
            return Err(changed("was replaced by something that is no file"));
        }
        let size = before.st_size as u64;
        self.put(Piece::Record(Record::File(offer(entry.name.clone(), &before))))?;
        let mut digester = Digester::default();
        loop {
            let mut block = self.block()?;
            let ended = fill(file.as_fd(), &mut block).map_err(failed)?;
            digester.update(block.bytes());
            if digester.bytes() > size {
                return Err(changed("grew"));
            }
            self.put_block(block)?;
            if ended {
                break;
            }
        }
        if digester.bytes() < size {
            return Err(changed("shrank"));
        }
        let after = fstat(&file).map_err(failed)?;
        if (after.st_size, modified(&after)) != (before.st_size, modified(&before)) {
            return Err(changed("changed"));
        }
        self.put(Piece::Record(Record::End { bytes: size, digest: digester.finish() }))?;
        Ok(size)
    }

    /// Reads a stream to its end.
    fn stream(&mut self, input: BorrowedFd<'_>) -> Result<(), Failure> {
        let failed = |why: Errno| Failure::local("reading", STDIN, why);
        // Fewer wake-ups on both ends of a pipe. Anything else refuses, and that is fine.
        let _ = rustix::pipe::fcntl_setpipe_size(input, BLOCK_BYTES);
        self.put(Piece::Record(Record::Stream))?;
        let mut digester = Digester::default();
        loop {
            let mut block = self.block()?;
            let ended = fill_from_stream(input, &mut block).map_err(failed)?;
            digester.update(block.bytes());
            self.put_block(block)?;
            if ended {
                break;
            }
        }
        let bytes = digester.bytes();
        self.put(Piece::Record(Record::End { bytes, digest: digester.finish() }))?;
        self.put(Piece::Record(Record::Finish(Totals { files: 0, bytes })))
    }

    /// An empty block: one that was used before, whose memory is at hand, if there is one.
    fn block(&mut self) -> Result<Block, Failure> {
        let at_hand = self.spare.take().or_else(|| self.returned.try_recv().ok());
        let mut block = match at_hand.or_else(|| self.blocks.make()) {
            Some(block) => block,
            None => self.returned.recv_blocking().map_err(|_| Failure::Unfinished)?,
        };
        block.clear();
        Ok(block)
    }

    fn put_block(&mut self, block: Block) -> Result<(), Failure> {
        if block.is_empty() {
            self.spare = Some(block);
            return Ok(());
        }
        self.put(Piece::Block(block))
    }

    fn put(&self, piece: Piece) -> Result<(), Failure> {
        self.pieces.send_blocking(Ok(piece)).map_err(|_| Failure::Unfinished)
    }
}

/// Opens a file of the plan. Never waits, as opening a pipe would.
fn open(entry: &Entry) -> Result<(OwnedFd, Stat), Errno> {
    let mut flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    if !entry.follow {
        flags |= OFlags::NOFOLLOW;
    }
    let file = openat(CWD, &entry.path, flags, Mode::empty())?;
    let stat = fstat(&file)?;
    // A hint only.
    let _ = fadvise(&file, 0, None, Advice::Sequential);
    Ok((file, stat))
}

fn offer(name: RelativeName, stat: &Stat) -> FileOffer {
    FileOffer {
        name,
        size: stat.st_size as u64,
        mode: stat.st_mode & 0o777,
        modified: modified(stat),
    }
}

fn modified(stat: &Stat) -> (i64, u32) {
    (stat.st_mtime, stat.st_mtime_nsec as u32)
}

/// Reads until `block` is full or the input has ended; returns whether it has ended.
fn fill(input: BorrowedFd<'_>, block: &mut Block) -> Result<bool, Errno> {
    while block.len() < BLOCK_BYTES {
        if read_some(input, block)? == 0 {
            return Ok(true);
        }
    }
    Ok(false)
}

/// As [`fill`], but gives out what there is rather than wait for more.
fn fill_from_stream(input: BorrowedFd<'_>, block: &mut Block) -> Result<bool, Errno> {
    loop {
        if read_some(input, block)? == 0 {
            return Ok(true);
        }
        if block.len() == BLOCK_BYTES || !readable(input, Some(&Timespec::default()))? {
            return Ok(false);
        }
    }
}

/// Reads into the room left in `block`; 0 at the end of the input.
fn read_some(input: BorrowedFd<'_>, block: &mut Block) -> Result<usize, Errno> {
    debug_assert!(!block.room().is_empty());
    loop {
        match rustix::io::read(input, block.room()) {
            Ok(count) => {
                block.extend(count);
                return Ok(count);
            }
            Err(Errno::INTR) => {}
            // Standard input may be non-blocking by someone else's choice.
            Err(Errno::AGAIN) => {
                readable(input, None)?;
            }
            Err(why) => return Err(why),
        }
    }
}

/// Whether reading would not wait: there are bytes, or the end, or an error to report.
fn readable(input: BorrowedFd<'_>, timeout: Option<&Timespec>) -> Result<bool, Errno> {
    match poll(&mut [PollFd::from_borrowed_fd(input, PollFlags::IN)], timeout) {
        Err(Errno::INTR) => Ok(false),
        other => other.map(|ready| ready > 0),
    }
}

/// A note for a person about something that was not sent.
pub(super) fn skipped_note(path: &Path, what: &str) -> String {
    format!("{}: skipped, it is {what}", printable(path.as_os_str().as_bytes()))
}

#[cfg(test)]
mod tests;
