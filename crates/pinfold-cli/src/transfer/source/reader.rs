//! The thread that reads the contents to send.
//!
//! It hands out records and blocks in the order they are to be sent, ahead of the sending by as
//! many blocks as there are buffers. It stops when its pieces are not taken any more.
//!
//! The size of a file is believed where it holds. Files that the kernel makes up as they are read
//! have no size, or a meaningless one: they are read to their end, like a stream.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{Advice, CWD, Mode, OFlags, Stat, fadvise, fstat, openat},
    io::{Errno, pread},
};

use super::{Entry, FileEntry, Piece, Plan};
use crate::transfer::{
    block::{Block, Blocks},
    digest::Digester,
    extent::{data_from, data_to},
    failure::{Failure, by},
    frame::{Attributes, BLOCK_BYTES, FileOffer, Record, Totals},
    name::printable_path,
};

/// The name of a stream in messages.
const STDIN: &str = "standard input";

/// Reads a plan, piece by piece.
pub(in super::super) struct Reader {
    /// The channel for pieces; at most one failure, as the last.
    pieces: async_channel::Sender<Result<Piece, Failure>>,
    /// The maker of blocks, as long as not all of them are made.
    blocks: Blocks,
    /// The channel by which they come back from the sender.
    returned: async_channel::Receiver<Block>,
    /// A block that was taken but not needed.
    spare: Option<Block>,
}

/// A file that is being read.
pub(super) struct Source<'a> {
    entry: &'a FileEntry,
    file: OwnedFd,
    /// The file's status when it was opened.
    before: Stat,
    digester: Digester,
}

impl Reader {
    /// A reader that hands out pieces by `pieces`, in `blocks`, which come back by `returned`.
    pub(in super::super) fn new(
        pieces: async_channel::Sender<Result<Piece, Failure>>,
        blocks: Blocks,
        returned: async_channel::Receiver<Block>,
    ) -> Reader {
        Reader { pieces, blocks, returned, spare: None }
    }

    /// Reads everything in `plan`. Blocks; belongs in a thread of its own.
    pub(in super::super) fn run(mut self, plan: &Plan) {
        let done = match &plan.files {
            Some(files) => self.files(files),
            None => self.stream(io::stdin().as_fd()),
        };
        if let Err(failure) = done {
            // If the receiver of pieces is gone, the failure is not needed.
            let _ = self.pieces.send_blocking(Err(failure));
        }
    }

    fn files(&mut self, files: &[Entry]) -> Result<(), Failure> {
        let mut sent = Totals::default();
        for entry in files {
            match entry {
                Entry::File(entry) => {
                    sent.bytes += self.file(entry)?;
                    sent.files += 1;
                }
                Entry::Directory(offer) => {
                    self.put(Piece::Record(Record::Directory(offer.clone())))?;
                    sent.directories += 1;
                }
            }
        }
        self.put(Piece::Record(Record::Finish(sent)))
    }

    /// Reads one file; returns its length.
    fn file(&mut self, entry: &FileEntry) -> Result<u64, Failure> {
        let mut source = Source::open(entry)?;
        let size = source.before.st_size as u64;
        if source.is_doubtful() {
            let mut block = self.block()?;
            let ended = source.fill(&mut block)?;
            if !ended || block.len() as u64 != size {
                source.check_change()?;
                return self.rest(source, block, ended);
            }
            self.offer(&source, Some(size))?;
            source.digester.update(block.bytes());
            self.put_block(block)?;
        } else {
            self.offer(&source, Some(size))?;
            self.extents(&mut source, size)?;
            source.check_end(size)?;
        }
        source.check_change()?;
        self.end(&source)
    }

    /// Reads a file whose size is believed: its data, and not its holes.
    fn extents(&mut self, source: &mut Source<'_>, size: u64) -> Result<(), Failure> {
        let mut at = 0;
        while at < size {
            let data = data_from(&source.file, at, size);
            if data > at {
                source.digester.hole(data - at);
                self.put(Piece::Record(Record::Hole { bytes: data - at }))?;
                at = data;
                continue;
            }
            let end = data_to(&source.file, at, size);
            while at < end {
                let mut block = self.block()?;
                source.fill_at(&mut block, at, end)?;
                at += block.len() as u64;
                source.digester.update(block.bytes());
                self.put_block(block)?;
            }
        }
        Ok(())
    }

    /// Reads a file of doubtful size to its end, after its first block has been read.
    fn rest(
        &mut self,
        mut source: Source<'_>,
        mut block: Block,
        mut ended: bool,
    ) -> Result<u64, Failure> {
        self.offer(&source, None)?;
        loop {
            source.digester.update(block.bytes());
            self.put_block(block)?;
            if ended {
                break;
            }
            block = self.block()?;
            ended = source.fill(&mut block)?;
        }
        source.check_change()?;
        self.end(&source)
    }

    fn offer(&self, source: &Source<'_>, size: Option<u64>) -> Result<(), Failure> {
        let attributes =
            Attributes { mode: source.before.st_mode & 0o777, modified: modified(&source.before) };
        let offer = FileOffer { name: source.entry.name.clone(), size, attributes };
        self.put(Piece::Record(Record::File(offer)))
    }

    fn end(&self, source: &Source<'_>) -> Result<u64, Failure> {
        let bytes = source.digester.bytes();
        let digest = source.digester.finish();
        self.put(Piece::Record(Record::End { bytes, digest }))?;
        Ok(bytes)
    }

    /// Reads a stream to its end.
    pub(super) fn stream(&mut self, input: BorrowedFd<'_>) -> Result<(), Failure> {
        let failed = |why: Errno| Failure::local("reading", STDIN, by("read")(why));
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
        self.put(Piece::Record(Record::Finish(Totals { bytes, ..Totals::default() })))
    }

    /// An empty block: if there is one, a block that was used before, with its memory at hand.
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

impl Source<'_> {
    /// Opens a file of the plan. Never waits, as opening a pipe would.
    pub(super) fn open(entry: &FileEntry) -> Result<Source<'_>, Failure> {
        let failed = |call| {
            move |why: Errno| Failure::local("reading", printable_path(&entry.path), by(call)(why))
        };
        let mut flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        if !entry.follow {
            flags |= OFlags::NOFOLLOW;
        }
        let file = openat(CWD, &entry.path, flags, Mode::empty()).map_err(failed("openat"))?;
        let before = fstat(&file).map_err(failed("fstat"))?;
        // A hint only.
        let _ = fadvise(&file, 0, None, Advice::Sequential);
        let source = Source { entry, file, before, digester: Digester::default() };
        if !rustix::fs::FileType::from_raw_mode(before.st_mode).is_file() {
            return Err(source.changed("was replaced by something that is no file"));
        }
        Ok(source)
    }

    /// Returns whether the size may say nothing: it is zero, or the file is short and none of its
    /// bytes are stored.
    fn is_doubtful(&self) -> bool {
        let (size, stored) = (self.before.st_size as u64, self.before.st_blocks);
        let is_short = size <= BLOCK_BYTES as u64;
        size == 0 || (is_short && stored == 0 && data_from(&self.file, 0, size) == 0)
    }

    /// Reads until `block` is full or the file has ended; returns whether it has ended.
    fn fill(&self, block: &mut Block) -> Result<bool, Failure> {
        while !block.room().is_empty() {
            let read = rustix::io::read(&self.file, block.room());
            match self.count(read)? {
                Some(0) => return Ok(true),
                count => block.extend(count.unwrap_or(0)),
            }
        }
        Ok(false)
    }

    /// Reads the bytes from `at` to `end`, or as many as there is room for in `block`.
    fn fill_at(&self, block: &mut Block, at: u64, end: u64) -> Result<(), Failure> {
        loop {
            let at = at + block.len() as u64;
            let room = block.room();
            let len = room.len().min((end - at) as usize);
            if len == 0 {
                return Ok(());
            }
            match self.count(pread(&self.file, &mut room[..len], at))? {
                Some(0) => {
                    self.check_change()?;
                    return Err(self.untrue(at));
                }
                count => block.extend(count.unwrap_or(0)),
            }
        }
    }

    /// The number of bytes read; `None` if the call is to be tried again.
    pub(super) fn count(&self, read: Result<usize, Errno>) -> Result<Option<usize>, Failure> {
        match read {
            Ok(count) => Ok(Some(count)),
            Err(Errno::INTR) => Ok(None),
            Err(Errno::AGAIN) => Err(Failure::Unsuitable {
                what: printable_path(&self.entry.path),
                why: format!(
                    "it has nothing to read until something happens; send what comes as a \
                     stream: 'pinfold send ADDRESS < {}'",
                    printable_path(&self.entry.path)
                ),
            }),
            Err(why) => {
                let what = printable_path(&self.entry.path);
                Err(Failure::local("reading", what, by("pread64")(why)))
            }
        }
    }

    /// Checks that nothing follows the `size` bytes that have been read.
    fn check_end(&self, size: u64) -> Result<(), Failure> {
        let mut byte = [0];
        loop {
            match self.count(pread(&self.file, &mut byte, size))? {
                Some(0) => return Ok(()),
                Some(_) => {
                    self.check_change()?;
                    return Err(self.untrue(size + 1));
                }
                None => {}
            }
        }
    }

    /// Checks that the file has not changed since it was opened.
    pub(super) fn check_change(&self) -> Result<(), Failure> {
        let after = fstat(&self.file)
            .map_err(|why| Failure::local("reading", printable_path(&self.entry.path), why))?;
        Err(self.changed(match after.st_size.cmp(&self.before.st_size) {
            std::cmp::Ordering::Less => "shrank",
            std::cmp::Ordering::Greater => "grew",
            std::cmp::Ordering::Equal if modified(&after) != modified(&self.before) => "changed",
            std::cmp::Ordering::Equal => return Ok(()),
        }))
    }

    fn changed(&self, how: &str) -> Failure {
        Failure::Unsuitable {
            what: printable_path(&self.entry.path),
            why: format!("it {how} while it was read; send it when it is at rest"),
        }
    }

    /// The failure that the file still claims a size that it does not have.
    fn untrue(&self, read: u64) -> Failure {
        let (what, size) = (printable_path(&self.entry.path), self.before.st_size);
        let why = format!(
            "its size is said to be {size} bytes, which it does not have when it is read (byte \
             {read}); send it as a stream: 'pinfold send ADDRESS < {what}'"
        );
        Failure::Unsuitable { what, why }
    }
}

fn modified(stat: &Stat) -> (i64, u32) {
    (stat.st_mtime, stat.st_mtime_nsec as u32)
}

/// Reads until `block` is full or the input has ended; gives out the bytes that it has rather than
/// wait for more. Returns whether it has ended.
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
            // Standard input may be non-blocking by another process's choice.
            Err(Errno::AGAIN) => {
                readable(input, None)?;
            }
            Err(why) => return Err(why),
        }
    }
}

/// Returns whether reading would not wait: there are bytes, or the end, or an error to report.
fn readable(input: BorrowedFd<'_>, timeout: Option<&Timespec>) -> Result<bool, Errno> {
    match poll(&mut [PollFd::from_borrowed_fd(input, PollFlags::IN)], timeout) {
        Err(Errno::INTR) => Ok(false),
        other => other.map(|ready| ready > 0),
    }
}
