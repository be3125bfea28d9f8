//! The source of a sender: a plan of the files to send, and the thread that reads them
//! ([`reader`]).

mod reader;
#[cfg(test)]
mod tests;

use std::{
    collections::{HashMap, hash_map::Entry as Seat},
    fs::{FileType, Metadata},
    io,
    os::unix::{
        ffi::OsStrExt,
        fs::{FileTypeExt, MetadataExt},
    },
    path::{Path, PathBuf},
};

use rustix::fs::{Access, AtFlags, CWD, accessat};
use walkdir::WalkDir;

pub(super) use self::reader::Reader;
use super::{
    block::Block,
    failure::{Failure, by},
    frame::{Attributes, Content, DirectoryOffer, Record, Totals},
    name::{RelativeName, printable, printable_path},
};

/// The plan of the contents to send.
#[derive(Debug)]
pub(super) struct Plan {
    /// Files and directories, each behind the directory that it is in; `None` for standard input.
    files: Option<Vec<Entry>>,
    /// The amount to send, as far as known.
    pub(super) expected: Totals,
    /// Entries of the directories that are not sent, and why.
    pub(super) skipped: Vec<(PathBuf, &'static str)>,
}

/// Something to send under a name.
#[derive(Debug)]
enum Entry {
    /// A file.
    File(FileEntry),
    /// A directory.
    Directory(DirectoryOffer),
}

/// A file to send.
#[derive(Debug)]
struct FileEntry {
    path: PathBuf,
    name: RelativeName,
    /// True if `path` may be a symbolic link: it was named on the command line.
    follow: bool,
}

impl Entry {
    fn name(&self) -> &RelativeName {
        match self {
            Entry::File(file) => &file.name,
            Entry::Directory(offer) => &offer.name,
        }
    }
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
    /// Finds the files that `files` name, without opening any of them.
    ///
    /// # Errors
    ///
    /// [`Failure::Usage`] for combinations that make no sense, [`Failure::Local`] and
    /// [`Failure::Unsuitable`] for paths that are missing, unreadable or neither file nor
    /// directory.
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
        plan.unite()?;
        Ok(plan)
    }

    /// The kind of contents to announce.
    pub(super) fn content(&self) -> Content {
        if self.files.is_some() { Content::Files } else { Content::Stream }
    }

    /// Returns whether there is nothing to send under a name, though names were given.
    pub(super) fn is_empty(&self) -> bool {
        self.files.as_ref().is_some_and(Vec::is_empty)
    }

    fn add(&mut self, path: &Path) -> Result<(), Failure> {
        let metadata =
            path.metadata().map_err(|why| Failure::local("reading", printable_path(path), why))?;
        let base = path.file_name().map(Path::new);
        if metadata.is_file() {
            return self.add_file(path, base.unwrap_or(path), &metadata, true);
        }
        if !metadata.is_dir() {
            let what = what_it_is(metadata.file_type());
            let why = if metadata.file_type().is_socket() {
                format!("it is {what}; only files and directories are sent")
            } else {
                format!(
                    "it is {what}; only files and directories are sent, for what it yields use \
                     'pinfold send ADDRESS < {}'",
                    printable_path(path)
                )
            };
            return Err(Failure::Unsuitable { what: printable_path(path), why });
        }
        // "." and ".." have no name of their own: their entries are sent without a prefix.
        let prefix = base.unwrap_or(Path::new(""));
        for found in WalkDir::new(path).sort_by_file_name() {
            let found = found.map_err(|why| {
                let what = printable_path(why.path().unwrap_or(path));
                let why = why.into_io_error().unwrap_or(io::ErrorKind::Other.into());
                let why = by("getdents64 and openat")(why);
                Failure::local("reading the directory", what, why)
            })?;
            let below = found.path().strip_prefix(path).unwrap_or(found.path());
            let name = match found.depth() {
                0 => prefix.to_owned(),
                _ => prefix.join(below),
            };
            // A symbolic link that is named is followed.
            let kind = if found.depth() == 0 { metadata.file_type() } else { found.file_type() };
            if !kind.is_file() && !kind.is_dir() {
                self.skipped.push((found.path().to_owned(), what_it_is(kind)));
                continue;
            }
            let own = if found.depth() == 0 { Ok(metadata.clone()) } else { found.metadata() };
            let own = own.map_err(|why| {
                Failure::local("reading", printable_path(found.path()), io::Error::from(why))
            })?;
            if kind.is_dir() {
                self.add_directory(found.path(), &name, &own)?;
            } else {
                self.add_file(found.path(), &name, &own, false)?;
            }
        }
        Ok(())
    }

    fn add_directory(
        &mut self,
        path: &Path,
        name: &Path,
        metadata: &Metadata,
    ) -> Result<(), Failure> {
        if name.as_os_str().is_empty() {
            return Ok(());
        }
        self.expected.directories += 1;
        let offer = DirectoryOffer {
            name: relative(path, name)?,
            attributes: Attributes {
                mode: metadata.mode() & 0o777,
                modified: (metadata.mtime(), metadata.mtime_nsec() as u32),
            },
        };
        self.files.get_or_insert_default().push(Entry::Directory(offer));
        Ok(())
    }

    fn add_file(
        &mut self,
        path: &Path,
        name: &Path,
        metadata: &Metadata,
        follow: bool,
    ) -> Result<(), Failure> {
        // Better now than after gigabytes. Changes until the file is opened are found then.
        accessat(CWD, path, Access::READ_OK, AtFlags::empty())
            .map_err(|why| Failure::local("reading", printable_path(path), why))?;
        let name = relative(path, name)?;
        self.expected.files += 1;
        self.expected.bytes = self.expected.bytes.saturating_add(metadata.len());
        let entry = FileEntry { path: path.to_owned(), name, follow };
        self.files.get_or_insert_default().push(Entry::File(entry));
        Ok(())
    }

    /// Makes sure that each name is there once. Directories of one name and the same mode are
    /// united.
    fn unite(&mut self) -> Result<(), Failure> {
        let Some(files) = &mut self.files else { return Ok(()) };
        let mut seen = HashMap::new();
        let (mut clash, mut united) = (None, 0);
        files.retain(|entry| {
            let mode = match entry {
                Entry::File(_) => None,
                Entry::Directory(offer) => Some(offer.attributes.mode),
            };
            match seen.entry(entry.name().clone()) {
                Seat::Vacant(seat) => {
                    seat.insert(mode);
                    return true;
                }
                Seat::Occupied(seat) if mode.is_some() && *seat.get() == mode => united += 1,
                Seat::Occupied(seat) => clash = Some(seat.key().clone()),
            }
            false
        });
        self.expected.directories -= united;
        match clash {
            None => Ok(()),
            Some(name) => Err(Failure::Usage(format!(
                "two of the files or directories would arrive as {name}; send them apart"
            ))),
        }
    }
}

/// `name` as it travels.
fn relative(path: &Path, name: &Path) -> Result<RelativeName, Failure> {
    RelativeName::new(name.as_os_str().as_bytes()).map_err(|why| {
        let why = format!("its name cannot be sent: {why}");
        Failure::Unsuitable { what: printable_path(path), why }
    })
}

/// The name of a kind that is neither file nor directory.
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

/// A note for a person about something that was not sent.
pub(super) fn skipped_note(path: &Path, what: &str) -> String {
    format!("{}: skipped, it is {what}", printable(path.as_os_str().as_bytes()))
}
