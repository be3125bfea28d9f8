//! Writing a trace, block by block. A block knows nothing of those before it.

use std::{collections::HashMap, hash::Hash, io::Write, sync::Arc};

use twox_hash::XxHash3_128;

use super::{
    Event, MAGIC, NAME_MAX, Object, SEGMENTS_MAX, Thread, TraceError, VERSION,
    varint::{put, put_difference, put_signed},
};

/// A block is written once it has so many bytes.
pub const BLOCK_BYTES: usize = 64 << 10;
/// Bytes that a block may have: one event more than [`BLOCK_BYTES`].
pub(super) const BLOCK_BYTES_MAX: usize = 256 << 10;
/// The number of events that marks the last block, which has none.
pub(super) const END: u32 = u32::MAX;
/// Tags in a block: a thread and an object are introduced; from here on, calls.
pub(super) const THREAD: u8 = 0;
pub(super) const OBJECT: u8 = 1;
pub(super) const CALLS: u8 = 2;
/// Bytes of a file's head, and of a block's.
pub(super) const HEAD: usize = 16;

/// The sum over a block: its number, its events and its bytes.
pub(super) fn sum(block: u64, events: u32, payload: &[u8]) -> u64 {
    let seed = block << 32 | u64::from(events);
    XxHash3_128::oneshot_with_seed(seed, payload) as u64
}

/// The state of a block, the same for writer and reader.
#[derive(Default)]
pub(super) struct Last {
    pub(super) at_ns: u64,
    /// By object: address and bytes of its last segment.
    pub(super) segments: Vec<(u64, u64)>,
}

/// A writer. [`Writer::finish`] writes what is left, and the end; without it, the trace is one
/// that was cut off. Takes the memory of a block.
pub struct Writer<W: Write> {
    out: W,
    payload: Vec<u8>,
    count: u32,
    blocks: u64,
    events: u64,
    threads: HashMap<Arc<Thread>, u64>,
    objects: HashMap<Arc<Object>, u64>,
    last: Last,
}

/// The number of a thing in this block, and if it is a new one.
fn number<T: Eq + Hash>(known: &mut HashMap<Arc<T>, u64>, one: &Arc<T>) -> (u64, bool) {
    let next = known.len() as u64;
    match known.get(one) {
        Some(number) => (*number, false),
        None => {
            known.insert(Arc::clone(one), next);
            (next, true)
        }
    }
}

fn put_name(into: &mut Vec<u8>, name: &str) {
    let mut ends = (0..=NAME_MAX.min(name.len())).rev();
    let end = ends.find(|end| name.is_char_boundary(*end));
    let name = &name[..end.unwrap_or(0)];
    put(into, name.len() as u64);
    into.extend_from_slice(name.as_bytes());
}

impl<W: Write> Writer<W> {
    /// A writer; writes the head of the file, 16 bytes.
    ///
    /// # Errors
    /// [`TraceError::Write`].
    pub fn new(mut out: W) -> Result<Writer<W>, TraceError> {
        let mut head = [0; HEAD];
        head[..8].copy_from_slice(&MAGIC);
        head[8..10].copy_from_slice(&VERSION.to_le_bytes());
        out.write_all(&head).map_err(TraceError::Write)?;
        Ok(Writer {
            out,
            payload: Vec::with_capacity(BLOCK_BYTES),
            count: 0,
            blocks: 0,
            events: 0,
            threads: HashMap::new(),
            objects: HashMap::new(),
            last: Last::default(),
        })
    }

    /// Appends an event: some eleven bytes, if its buffer was used before. Of more than 1,024
    /// segments the first ones are kept.
    ///
    /// # Errors
    /// [`TraceError::Write`].
    pub fn event(&mut self, event: &Event) -> Result<(), TraceError> {
        let (thread, is_new) = number(&mut self.threads, &event.thread);
        let into = &mut self.payload;
        if is_new {
            into.push(THREAD);
            put(into, event.thread.pid.into());
            put(into, event.thread.tid.into());
            put_name(into, &event.thread.name);
        }
        let (object, is_new) = number(&mut self.objects, &event.object);
        if is_new {
            into.extend([OBJECT, event.object.kind as u8]);
            put(into, event.object.device);
            put(into, event.object.inode);
            put_name(into, &event.object.name);
            self.last.segments.push((0, 0));
        }
        into.push(CALLS + event.call as u8);
        put_difference(into, self.last.at_ns, event.at_ns);
        put(into, thread);
        put(into, object);
        put_signed(into, event.fd.into());
        let segments = &event.segments[..event.segments.len().min(SEGMENTS_MAX)];
        put(into, segments.len() as u64);
        let mut asked = 0u64;
        let last = &mut self.last.segments[object as usize];
        for it in segments {
            put_difference(into, last.0, it.address);
            put_difference(into, last.1, it.bytes);
            *last = (it.address, it.bytes);
            asked = asked.wrapping_add(it.bytes);
        }
        put_difference(into, asked, event.result.cast_unsigned());
        self.last.at_ns = event.at_ns;
        self.count += 1;
        self.events += 1;
        if self.payload.len() >= BLOCK_BYTES { self.flush() } else { Ok(()) }
    }

    /// The events so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    fn flush(&mut self) -> Result<(), TraceError> {
        if self.count > 0 {
            self.block(self.count)?;
        }
        self.payload.clear();
        self.count = 0;
        self.threads.clear();
        self.objects.clear();
        self.last = Last::default();
        Ok(())
    }

    fn block(&mut self, count: u32) -> Result<(), TraceError> {
        let mut head = [0; HEAD];
        head[..4].copy_from_slice(&(self.payload.len() as u32).to_le_bytes());
        head[4..8].copy_from_slice(&count.to_le_bytes());
        head[8..].copy_from_slice(&sum(self.blocks, count, &self.payload).to_le_bytes());
        let written = self.out.write_all(&head).and_then(|()| self.out.write_all(&self.payload));
        self.blocks += 1;
        written.map_err(TraceError::Write)
    }

    /// Writes what is left, and the end. Returns the output, and the number of events.
    ///
    /// # Errors
    /// [`TraceError::Write`].
    pub fn finish(mut self) -> Result<(W, u64), TraceError> {
        self.flush()?;
        put(&mut self.payload, self.events);
        self.block(END)?;
        self.out.flush().map_err(TraceError::Write)?;
        Ok((self.out, self.events))
    }
}
