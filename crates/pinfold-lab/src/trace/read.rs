//! Reading a trace, block by block.

use std::{
    io::{self, Read},
    sync::Arc,
};

use super::{
    Call, Event, Kind, MAGIC, NAME_MAX, Object, SEGMENTS_MAX, Segment, Thread, TraceError, VERSION,
    VERSION_MIN,
    varint::Bytes,
    write::{BLOCK_BYTES_MAX, CALLS, END, HEAD, Last, OBJECT, THREAD, sum},
};

/// A reader: the events in their order. After an error there are no more. Takes the memory of a
/// block.
pub struct Reader<R> {
    input: R,
    version: u16,
    /// Bytes read so far.
    at: u64,
    /// The number of the block, and of the next one.
    block: u64,
    next: u64,
    events: u64,
    payload: Vec<u8>,
    /// Bytes of the block that have been decoded.
    done: usize,
    /// Events of the block that have not.
    left: u32,
    block_at: u64,
    threads: Vec<Arc<Thread>>,
    objects: Vec<Arc<Object>>,
    last: Last,
    is_over: bool,
}

impl<R: Read> Reader<R> {
    /// A reader; reads the head of the file.
    ///
    /// # Errors
    /// [`TraceError::NotATrace`], [`TraceError::Version`], [`TraceError::Read`].
    pub fn new(input: R) -> Result<Reader<R>, TraceError> {
        let mut reader = Reader {
            input,
            version: VERSION,
            at: 0,
            block: 0,
            next: 0,
            events: 0,
            payload: Vec::new(),
            done: 0,
            left: 0,
            block_at: 0,
            threads: Vec::new(),
            objects: Vec::new(),
            last: Last::default(),
            is_over: false,
        };
        let mut head = [0; HEAD];
        let got = reader.fill(&mut head)?;
        if got < MAGIC.len() || head[..8] != MAGIC {
            return Err(TraceError::NotATrace);
        }
        if got < HEAD {
            return Err(reader.truncated());
        }
        match u16::from_le_bytes([head[8], head[9]]) {
            version @ VERSION_MIN..=VERSION => {
                reader.version = version;
                Ok(reader)
            }
            other => Err(TraceError::Version(other, VERSION_MIN, VERSION)),
        }
    }

    /// Reads until `into` is full, or the input ends. Returns the bytes read.
    fn fill(&mut self, into: &mut [u8]) -> Result<usize, TraceError> {
        let mut got = 0;
        while got < into.len() {
            match self.input.read(&mut into[got..]) {
                Ok(0) => break,
                Ok(more) => got += more,
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                Err(why) => return Err(TraceError::Read(why)),
            }
        }
        self.at += got as u64;
        Ok(got)
    }

    fn truncated(&self) -> TraceError {
        TraceError::Truncated { block: self.block, at: self.at }
    }

    fn damaged(&self, why: &'static str) -> TraceError {
        TraceError::Damaged { block: self.block, at: self.block_at, why }
    }

    /// Reads a block. Returns false at the end.
    fn read_block(&mut self) -> Result<bool, TraceError> {
        (self.block, self.block_at) = (self.next, self.at);
        self.next += 1;
        let mut head = [0; HEAD];
        if self.fill(&mut head)? < HEAD {
            return Err(self.truncated());
        }
        let word =
            |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (bytes, count) = (word(0) as usize, word(4));
        let expected = u64::from(word(8)) | u64::from(word(12)) << 32;
        if bytes > BLOCK_BYTES_MAX || count == 0 {
            return Err(self.damaged("its head has a senseless length"));
        }
        let mut payload = std::mem::take(&mut self.payload);
        payload.resize(bytes, 0);
        let got = self.fill(&mut payload)?;
        if got < bytes {
            return Err(self.truncated());
        }
        if sum(self.block, count, &payload) != expected {
            return Err(self.damaged("its sum is not that of its bytes"));
        }
        if count == END {
            let mut left = Bytes(&payload);
            if left.number() != Some(self.events) || !left.0.is_empty() {
                return Err(self.damaged("the end counts other events than there are"));
            }
            return match self.fill(&mut [0])? {
                0 => Ok(false),
                _ => Err(self.damaged("bytes follow the end")),
            };
        }
        self.payload = payload;
        (self.done, self.left) = (0, count);
        self.threads.clear();
        self.objects.clear();
        self.last = Last::default();
        Ok(true)
    }

    fn event(&mut self) -> Result<Option<Event>, TraceError> {
        if self.left == 0 {
            if self.done < self.payload.len() {
                return Err(self.damaged("bytes follow its last event"));
            }
            if !self.read_block()? {
                return Ok(None);
            }
        }
        let payload = std::mem::take(&mut self.payload);
        let mut left = Bytes(&payload[self.done..]);
        let event = self.decode(&mut left);
        self.done = payload.len() - left.0.len();
        self.payload = payload;
        self.left -= 1;
        self.events += 1;
        event.map(Some).ok_or_else(|| self.damaged("an event in it makes no sense"))
    }

    /// The next event of a block; `None` if it makes no sense.
    fn decode(&mut self, left: &mut Bytes<'_>) -> Option<Event> {
        let tag = loop {
            match left.byte()? {
                THREAD => {
                    let (pid, tid) = (left.short()?, left.short()?);
                    self.threads.push(Arc::new(Thread { pid, tid, name: name(left)? }));
                }
                OBJECT => {
                    let kind = Kind::ALL.get(usize::from(left.byte()?));
                    let kind = *kind.filter(|it| it.is_of(self.version))?;
                    let (device, inode) = (left.number()?, left.number()?);
                    self.objects.push(Arc::new(Object { kind, device, inode, name: name(left)? }));
                    self.last.segments.push((0, 0));
                }
                tag => break tag,
            }
        };
        let call = Call::ALL.get(usize::from(tag - CALLS));
        let call = *call.filter(|it| it.is_of(self.version))?;
        let at_ns = left.difference(self.last.at_ns)?;
        let thread = Arc::clone(self.threads.get(usize::try_from(left.number()?).ok()?)?);
        let number = usize::try_from(left.number()?).ok()?;
        let object = Arc::clone(self.objects.get(number)?);
        let fd = i32::try_from(left.signed()?).ok()?;
        let count = usize::try_from(left.number()?).ok().filter(|it| *it <= SEGMENTS_MAX)?;
        let last = self.last.segments.get_mut(number)?;
        let mut segments = Vec::with_capacity(count);
        let mut asked = 0u64;
        for _ in 0..count {
            *last = (left.difference(last.0)?, left.difference(last.1)?);
            segments.push(Segment { address: last.0, bytes: last.1 });
            asked = asked.wrapping_add(last.1);
        }
        let result = left.difference(asked)?.cast_signed();
        self.last.at_ns = at_ns;
        Some(Event { at_ns, thread, call, fd, object, segments, result })
    }
}

fn name(left: &mut Bytes<'_>) -> Option<String> {
    let bytes = left.number().filter(|bytes| *bytes <= NAME_MAX as u64)?;
    String::from_utf8(left.take(bytes)?.to_vec()).ok()
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Event, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let next = self.event().transpose();
        self.is_over = !matches!(next, Some(Ok(_)));
        next
    }
}
