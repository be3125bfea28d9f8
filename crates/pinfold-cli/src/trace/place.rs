//! Input and output of traces: files, standard input, standard output.

use std::{
    fs::{self, File},
    io::{self, BufRead, BufReader, BufWriter, Write},
    path::{Path, PathBuf},
};

use crate::{
    exit::End,
    output::{Lost, put_bytes},
};

/// Bytes that are written at once.
const CHUNK: usize = 64 << 10;

fn is_standard(path: &Path) -> bool {
    path == Path::new("-")
}

/// Opens a trace.
pub(super) fn open(path: &Path) -> Result<Box<dyn BufRead>, End> {
    if is_standard(path) {
        return Ok(Box::new(io::stdin().lock()));
    }
    let file = File::open(path).map_err(|why| format!("cannot read {}: {why}", path.display()))?;
    Ok(Box::new(BufReader::with_capacity(CHUNK, file)))
}

/// An output. A file has its old contents until the new ones are whole.
pub(super) enum Out {
    /// A file: the file that is written, which becomes the other, if that is another one.
    File { out: BufWriter<File>, path: PathBuf, new: Option<PathBuf> },
    /// Standard output, and the error that ended it.
    Standard { chunk: Vec<u8>, lost: Option<Lost> },
}

impl Out {
    pub(super) fn new(path: &Path) -> Result<Out, End> {
        if is_standard(path) {
            return Ok(Out::Standard { chunk: Vec::new(), lost: None });
        }
        // Devices and pipes are written as they are.
        let is_kept = fs::metadata(path).is_ok_and(|it| !it.is_file());
        let new = (!is_kept).then(|| {
            let mut name = path.as_os_str().to_owned();
            name.push(format!(".{}", std::process::id()));
            PathBuf::from(name)
        });
        let file = File::create(new.as_deref().unwrap_or(path));
        let file = file.map_err(|why| format!("cannot write {}: {why}", path.display()))?;
        Ok(Out::File { out: BufWriter::with_capacity(CHUNK, file), path: path.to_owned(), new })
    }

    /// Ends the output, of which all was written or not.
    pub(super) fn end(mut self, done: Result<(), End>) -> Result<(), End> {
        let flushed = self.flush();
        match self {
            Out::Standard { lost: Some(lost), .. } => Err(lost.into()),
            Out::Standard { .. } => done,
            Out::File { path, new, .. } => {
                let written = |why| format!("cannot write {}: {why}", path.display());
                let done = done.and_then(|()| flushed.map_err(|why| written(why).into()));
                match new {
                    Some(new) if done.is_ok() => {
                        fs::rename(&new, &path).map_err(|why| written(why).into())
                    }
                    Some(new) => {
                        let _ = fs::remove_file(new);
                        done
                    }
                    None => done,
                }
            }
        }
    }
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Out::File { out, .. } => out.write(bytes),
            Out::Standard { chunk, .. } => {
                chunk.extend_from_slice(bytes);
                if chunk.len() >= CHUNK {
                    self.flush()?;
                }
                Ok(bytes.len())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Out::File { out, .. } => out.flush(),
            Out::Standard { chunk, lost } => {
                if lost.is_none() && !chunk.is_empty() {
                    *lost = put_bytes("the trace", chunk).err();
                    chunk.clear();
                }
                if lost.is_some() { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(()) }
            }
        }
    }
}
