//! The receiver's side of the flow: records and blocks in, files or a stream out.
//!
//! A plain state machine over [`super::target`]: what may follow what, that lengths and digests
//! agree, and that nothing is put in place before they do.

use std::os::fd::AsFd;

use super::{
    digest::{Digest, Digester},
    failure::Failure,
    frame::{Content, Record, Totals},
    target::{Directory, Incoming, Output},
};

/// Who breaks the rules, if they are broken.
const WHO: &str = "the sender";

/// Where the contents go.
pub(super) enum Target<F> {
    /// Files, below a directory.
    Directory(Directory),
    /// A stream, to standard output.
    Output(Output<F>),
}

impl<F> Target<F> {
    /// What fits the target.
    pub(super) fn content(&self) -> Content {
        match self {
            Target::Directory(_) => Content::Files,
            Target::Output(_) => Content::Stream,
        }
    }
}

/// Takes the flow in.
pub(super) struct Intake<F> {
    target: Target<F>,
    state: State,
    done: Totals,
}

enum State {
    /// Between files.
    Idle,
    /// In a file.
    File(Incoming, Digester),
    /// In the stream.
    Stream(Digester),
    /// After the stream, of which there is only one.
    Streamed,
}

impl<F: AsFd> Intake<F> {
    /// Starts with nothing taken.
    pub(super) fn new(target: Target<F>) -> Intake<F> {
        Intake { target, state: State::Idle, done: Totals::default() }
    }

    /// Takes the next block of the file or stream.
    pub(super) fn block(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        match (&mut self.state, &mut self.target) {
            (State::File(file, digester), _) => {
                let room = file.offer().size - file.written();
                if bytes.len() as u64 > room {
                    let name = &file.offer().name;
                    return Err(Failure::protocol(WHO, format!("it sent too much of {name}")));
                }
                digester.update(bytes);
                file.write(bytes)
            }
            (State::Stream(digester), Target::Output(output)) => {
                digester.update(bytes);
                output.write(bytes)
            }
            _ => Err(Failure::protocol(WHO, "it sent contents out of place")),
        }
    }

    /// Takes the next record. Returns the totals once everything is in place.
    pub(super) fn record(&mut self, record: Record) -> Result<Option<Totals>, Failure> {
        let state = std::mem::replace(&mut self.state, State::Idle);
        self.state = match (state, record) {
            (State::Idle, Record::File(offer)) => match &mut self.target {
                Target::Directory(directory) => {
                    State::File(directory.begin(&offer)?, Digester::default())
                }
                Target::Output(_) => return Err(Failure::misplaced(WHO, &Record::File(offer))),
            },
            (State::Idle, Record::Stream) if self.target.content() == Content::Stream => {
                State::Stream(Digester::default())
            }
            (State::File(file, digester), Record::End { bytes, digest }) => {
                let what = file.offer().name.to_string();
                verify(what, &digester, (bytes, digest), file.offer().size, false)?;
                file.commit()?;
                self.done.files += 1;
                self.done.bytes += bytes;
                State::Idle
            }
            (State::Stream(digester), Record::End { bytes, digest }) => {
                verify("the stream".into(), &digester, (bytes, digest), bytes, true)?;
                self.done.bytes = bytes;
                State::Streamed
            }
            (State::Idle, Record::Finish(totals)) if self.target.content() == Content::Files => {
                return self.finish(totals).map(Some);
            }
            (State::Streamed, Record::Finish(totals)) => return self.finish(totals).map(Some),
            (_, record) => return Err(Failure::misplaced(WHO, &record)),
        };
        Ok(None)
    }

    /// Bytes written, complete or not.
    pub(super) fn written(&self) -> u64 {
        match (&self.state, &self.target) {
            (State::File(file, _), _) => self.done.bytes + file.written(),
            (_, Target::Output(output)) => output.written(),
            _ => self.done.bytes,
        }
    }

    fn finish(&self, announced: Totals) -> Result<Totals, Failure> {
        if announced == self.done {
            return Ok(self.done);
        }
        Err(Failure::Integrity {
            what: "the transfer".into(),
            how: format!(
                "{} files and {} bytes were sent, {} and {} arrived",
                announced.files, announced.bytes, self.done.files, self.done.bytes
            ),
            kept: self.target.content() == Content::Stream,
        })
    }
}

/// Compares what arrived with what the sender says it read.
fn verify(
    what: String,
    arrived: &Digester,
    (bytes, digest): (u64, Digest),
    offered: u64,
    kept: bool,
) -> Result<(), Failure> {
    let how = if arrived.bytes() != bytes || bytes != offered {
        format!("{bytes} bytes were sent, {} arrived", arrived.bytes())
    } else if arrived.finish() != digest {
        format!("XXH3 {digest} was sent, {} arrived", arrived.finish())
    } else {
        return Ok(());
    };
    Err(Failure::Integrity { what, how, kept })
}

#[cfg(test)]
mod tests;
