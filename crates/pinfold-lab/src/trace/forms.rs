//! Traces in any of their forms, told apart by their first byte.

use std::{
    fmt,
    io::{BufRead, Write},
    str::FromStr,
};

use super::{Event, MAGIC, TraceError, read::Reader, text, write};

/// A form of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The binary file.
    Binary,
    /// Text.
    Text(text::Form),
}

const WORDS: [(&str, Form); 3] = [
    ("binary", Form::Binary),
    ("csv", Form::Text(text::Form::Csv)),
    ("json", Form::Text(text::Form::Json)),
];

impl FromStr for Form {
    type Err = String;

    fn from_str(word: &str) -> Result<Form, String> {
        let found = WORDS.iter().find(|it| it.0 == word).map(|it| it.1);
        found.ok_or_else(|| format!("{word} is none of binary, csv and json"))
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = WORDS.iter().find(|it| it.1 == *self).map_or("", |it| it.0);
        f.pad(word)
    }
}

/// Reads a trace of any form, and hands each event to `take`. Stops at the first error, also one of
/// `take`'s.
///
/// # Errors
/// Those of [`Reader`] and of [`text::read`], or that of `take`.
pub fn read(
    mut input: impl BufRead,
    mut take: impl FnMut(&Event) -> Result<(), TraceError>,
) -> Result<(), TraceError> {
    // CSV begins with the name of its first column.
    let form = match input.fill_buf().map_err(TraceError::Read)?.first() {
        Some(first) if *first == MAGIC[0] => Form::Binary,
        Some(b'{') => Form::Text(text::Form::Json),
        Some(b'a' | b'"') => Form::Text(text::Form::Csv),
        _ => return Err(TraceError::NotATrace),
    };
    match form {
        Form::Binary => Reader::new(input)?.try_for_each(|event| take(&event?)),
        Form::Text(form) => text::read(form, input, take),
    }
}

/// Writes a trace in any form.
pub enum Writer<W: Write> {
    /// The binary file.
    Binary(Box<write::Writer<W>>),
    /// Text.
    Text(text::Writer<W>),
}

impl<W: Write> Writer<W> {
    /// A writer.
    ///
    /// # Errors
    /// [`TraceError::Write`].
    pub fn new(form: Form, out: W) -> Result<Writer<W>, TraceError> {
        Ok(match form {
            Form::Binary => Writer::Binary(Box::new(write::Writer::new(out)?)),
            Form::Text(form) => Writer::Text(text::Writer::new(form, out)),
        })
    }

    /// Writes an event.
    ///
    /// # Errors
    /// [`TraceError::Write`].
    pub fn event(&mut self, event: &Event) -> Result<(), TraceError> {
        match self {
            Writer::Binary(out) => out.event(event),
            Writer::Text(out) => out.event(event),
        }
    }

    /// Writes what is left, and the end.
    ///
    /// # Errors
    /// [`TraceError::Write`].
    pub fn finish(self) -> Result<(), TraceError> {
        match self {
            Writer::Binary(out) => out.finish().map(drop),
            Writer::Text(mut out) => out.finish(),
        }
    }
}
