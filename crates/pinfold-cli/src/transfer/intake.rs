//! The receiver's side of the flow: records and blocks in, files or a stream out.
//!
//! A plain state machine over [`super::target`]: it checks the order of records, and that lengths
//! and digests agree, and puts nothing in place before they do.

use std::{os::fd::AsFd, sync::Arc};

use super::{
    digest::{Digest, Digester},
    failure::Failure,
    frame::{Content, FileOffer, Record, Totals},
    target::{Directory, Incoming, Output, Unkept},
};

/// The side that breaks the rules, if they are broken.
const WHO: &str = "the sender";

/// The target of the contents.
pub(super) enum Target<F> {
    /// Files, below a directory.
    Directory(Directory),
    /// A stream, to standard output.
    Output(Output<F>),
}

impl<F> Target<F> {
    /// The kind of contents that fits the target.
    pub(super) fn content(&self) -> Content {
        match self {
            Target::Directory(_) => Content::Files,
            Target::Output(_) => Content::Stream,
        }
    }

    /// The count of modes and times of files and directories that could not be kept.
    pub(super) fn unkept(&self) -> Option<Arc<Unkept>> {
        match self {
            Target::Directory(directory) => Some(directory.unkept()),
            Target::Output(_) => None,
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
    /// The state after the stream, of which there is only one.
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
                check_room(file, bytes.len() as u64)?;
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
            (State::Idle, Record::Directory(offer)) => match &mut self.target {
                Target::Directory(directory) => {
                    directory.make(&offer)?;
                    self.done.directories += 1;
                    State::Idle
                }
                Target::Output(_) => {
                    return Err(Failure::misplaced(WHO, &Record::Directory(offer)));
                }
            },
            // Contents without a size have no holes either.
            (State::File(mut file, mut digester), Record::Hole { bytes })
                if file.offer().size.is_some() =>
            {
                check_room(&file, bytes)?;
                digester.hole(bytes);
                file.skip(bytes);
                State::File(file, digester)
            }
            (State::Idle, Record::Stream) if self.target.content() == Content::Stream => {
                State::Stream(Digester::default())
            }
            (State::File(file, digester), Record::End { bytes, digest }) => {
                let what = file.offer().name.to_string();
                let offered = file.offer().size.unwrap_or(bytes);
                verify(what, &digester, (bytes, digest), offered, false)?;
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

    /// Bytes taken, complete or not, holes included.
    pub(super) fn written(&self) -> u64 {
        match (&self.state, &self.target) {
            (State::File(file, _), _) => self.done.bytes + file.written(),
            (_, Target::Output(output)) => output.written(),
            _ => self.done.bytes,
        }
    }

    fn finish(&mut self, announced: Totals) -> Result<Totals, Failure> {
        if announced == self.done {
            if let Target::Directory(directory) = &mut self.target {
                directory.finish()?;
            }
            return Ok(self.done);
        }
        Err(Failure::Integrity {
            what: "the transfer".into(),
            how: format!(
                "{} files, {} directories and {} bytes were sent, {}, {} and {} arrived",
                announced.files,
                announced.directories,
                announced.bytes,
                self.done.files,
                self.done.directories,
                self.done.bytes
            ),
            kept: self.target.content() == Content::Stream,
        })
    }
}

/// Checks that so many bytes more do not exceed the offer.
fn check_room(file: &Incoming, bytes: u64) -> Result<(), Failure> {
    let FileOffer { name, size, .. } = file.offer();
    match size {
        Some(size) if bytes > size.saturating_sub(file.written()) => {
            Err(Failure::protocol(WHO, format!("it sent too much of {name}")))
        }
        _ => Ok(()),
    }
}

/// Compares the contents that arrived with the sender's digest.
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
