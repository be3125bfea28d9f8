//! Traces as text: CSV and lines of JSON, there and back.
//!
//! Both have an event a line with the same fields: `at_ns`, `pid`, `tid`, `process`, `call`, `fd`,
//! `kind`, `device`, `inode`, `name`, `result`, `segments`. In CSV the segments are
//! `ADDRESS+BYTES`, the address in hexadecimal behind `0x`, a space between two; in JSON they are
//! pairs of numbers.

use std::{
    collections::HashMap,
    hash::Hash,
    io::{BufRead, Read, Write},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use super::{Event, Object, SEGMENTS_MAX, Segment, Thread, TraceError};

/// Threads and objects that are remembered, so that events share them.
const REMEMBERED: usize = 4096;

/// A form of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Comma-separated values, a head first (RFC 4180).
    Csv,
    /// A JSON object a line.
    Json,
}

/// An event's fields.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields<S> {
    at_ns: u64,
    pid: u32,
    tid: u32,
    process: String,
    call: String,
    fd: i32,
    kind: String,
    device: u64,
    inode: u64,
    name: String,
    result: i64,
    segments: S,
}

impl<S> Fields<S> {
    fn of(event: &Event, segments: S) -> Fields<S> {
        let (thread, object) = (&event.thread, &event.object);
        Fields {
            at_ns: event.at_ns,
            pid: thread.pid,
            tid: thread.tid,
            process: thread.name.clone(),
            call: event.call.to_string(),
            fd: event.fd,
            kind: object.kind.to_string(),
            device: object.device,
            inode: object.inode,
            name: object.name.clone(),
            result: event.result,
            segments,
        }
    }
}

fn spelled(segments: &[Segment]) -> String {
    let words: Vec<String> =
        segments.iter().map(|it| format!("{:#x}+{}", it.address, it.bytes)).collect();
    words.join(" ")
}

fn unspelled(text: &str) -> Result<Vec<Segment>, String> {
    let one = |word: &str| {
        let (address, bytes) = word.split_once('+')?;
        let address = u64::from_str_radix(address.strip_prefix("0x")?, 16).ok()?;
        Some(Segment { address, bytes: bytes.parse().ok()? })
    };
    let all = text.split_ascii_whitespace();
    all.map(|word| one(word).ok_or_else(|| format!("{word} is no segment; write 0xADDRESS+BYTES")))
        .collect()
}

/// Writes events as text.
pub enum Writer<W: Write> {
    /// As CSV.
    Csv(Box<csv::Writer<W>>),
    /// As JSON.
    Json(W),
}

impl<W: Write> Writer<W> {
    /// A writer.
    pub fn new(form: Form, out: W) -> Writer<W> {
        match form {
            Form::Csv => Writer::Csv(Box::new(csv::Writer::from_writer(out))),
            Form::Json => Writer::Json(out),
        }
    }

    /// Writes a line.
    ///
    /// # Errors
    /// [`TraceError::Write`].
    pub fn event(&mut self, event: &Event) -> Result<(), TraceError> {
        match self {
            Writer::Csv(out) => out
                .serialize(Fields::of(event, spelled(&event.segments)))
                .map_err(|why| TraceError::Write(why.into())),
            Writer::Json(out) => {
                let pairs: Vec<_> =
                    event.segments.iter().map(|it| (it.address, it.bytes)).collect();
                let line = serde_json::to_writer(&mut *out, &Fields::of(event, pairs));
                let line = line.map_err(std::io::Error::from);
                line.and_then(|()| out.write_all(b"\n")).map_err(TraceError::Write)
            }
        }
    }

    /// Writes what is left.
    ///
    /// # Errors
    /// [`TraceError::Write`].
    pub fn finish(&mut self) -> Result<(), TraceError> {
        match self {
            Writer::Csv(out) => out.flush(),
            Writer::Json(out) => out.flush(),
        }
        .map_err(TraceError::Write)
    }
}

/// Things that events share.
struct Shared<T>(HashMap<Arc<T>, ()>);

impl<T: Eq + Hash> Shared<T> {
    fn get(&mut self, one: T) -> Arc<T> {
        if self.0.len() >= REMEMBERED {
            self.0.clear();
        }
        if let Some((known, ())) = self.0.get_key_value(&one) {
            return Arc::clone(known);
        }
        let one = Arc::new(one);
        self.0.insert(Arc::clone(&one), ());
        one
    }
}

/// Reads text, and hands each event to `take`. Stops at the first error, also one of `take`'s.
///
/// # Errors
/// [`TraceError::Line`], [`TraceError::Read`], or that of `take`.
pub fn read(
    form: Form,
    input: impl BufRead,
    mut take: impl FnMut(&Event) -> Result<(), TraceError>,
) -> Result<(), TraceError> {
    let (mut threads, mut objects) = (Shared(HashMap::new()), Shared(HashMap::new()));
    let mut event = |line: u64, fields: Fields<Vec<Segment>>| {
        let event = (|| {
            if fields.segments.len() > SEGMENTS_MAX {
                return Err(format!("more than {SEGMENTS_MAX} segments"));
            }
            let Fields { at_ns, pid, tid, fd, device, inode, result, segments, .. } = fields;
            let thread = threads.get(Thread { pid, tid, name: fields.process });
            let kind = fields.kind.parse()?;
            let object = objects.get(Object { kind, device, inode, name: fields.name });
            let call = fields.call.parse()?;
            Ok(Event { at_ns, thread, call, fd, object, segments, result })
        })();
        take(&event.map_err(|why: String| TraceError::Line { line, why })?)
    };
    match form {
        Form::Csv => read_csv(input, &mut event),
        Form::Json => read_json(input, &mut event),
    }
}

type Take<'a> = &'a mut dyn FnMut(u64, Fields<Vec<Segment>>) -> Result<(), TraceError>;

fn with_segments<S>(fields: Fields<S>, segments: Vec<Segment>) -> Fields<Vec<Segment>> {
    let Fields { at_ns, pid, tid, process, call, fd, kind, device, inode, name, result, .. } =
        fields;
    Fields { at_ns, pid, tid, process, call, fd, kind, device, inode, name, result, segments }
}

fn read_csv(input: impl Read, take: Take<'_>) -> Result<(), TraceError> {
    let mut rows = csv::Reader::from_reader(input);
    let head = rows.headers().map_err(of_csv)?.clone();
    let mut row = csv::StringRecord::new();
    while rows.read_record(&mut row).map_err(of_csv)? {
        let line = row.position().map_or(0, csv::Position::line);
        let wrong = |why: String| TraceError::Line { line, why };
        let fields: Fields<String> =
            row.deserialize(Some(&head)).map_err(|why| wrong(why.to_string()))?;
        let segments = unspelled(&fields.segments).map_err(wrong)?;
        take(line, with_segments(fields, segments))?;
    }
    Ok(())
}

fn of_csv(why: csv::Error) -> TraceError {
    let line = why.position().map_or(1, csv::Position::line);
    match why.into_kind() {
        csv::ErrorKind::Io(why) => TraceError::Read(why),
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            TraceError::Line { line, why: format!("{len} fields in place of {expected_len}") }
        }
        other => TraceError::Line { line, why: format!("{other:?}") },
    }
}

fn read_json(mut input: impl BufRead, take: Take<'_>) -> Result<(), TraceError> {
    let (mut text, mut line) = (String::new(), 0);
    loop {
        text.clear();
        line += 1;
        match input.read_line(&mut text) {
            Ok(0) => return Ok(()),
            Ok(_) if text.trim().is_empty() => continue,
            Ok(_) => {}
            Err(why) if why.kind() == std::io::ErrorKind::InvalidData => {
                return Err(TraceError::Line { line, why: "it is not UTF-8".into() });
            }
            Err(why) => return Err(TraceError::Read(why)),
        }
        let fields: Fields<Vec<(u64, u64)>> = serde_json::from_str(&text)
            .map_err(|why| TraceError::Line { line, why: why.to_string() })?;
        let of = |&(address, bytes): &(u64, u64)| Segment { address, bytes };
        let segments = fields.segments.iter().map(of).collect();
        take(line, with_segments(fields, segments))?;
    }
}
