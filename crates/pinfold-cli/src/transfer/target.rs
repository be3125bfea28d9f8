//! The target of a receiver: files below a directory, or standard output.
//!
//! - [`place`]: the making and naming of a file. [`made`]: directories.
//! - [`attributes`]: modes and times. [`output`]: standard output.
//!
//! The module owns two invariants. First, a file has its name only once it is complete: it is
//! written without a name (`O_TMPFILE`, `open(2)`) or, where that cannot be,
//! under a name starting with [`TEMPORARY`], and gets its own in one step. A process killed at
//! any moment therefore leaves nothing behind in the first case, and in the second a file that
//! does not look complete. Second, nothing outside the directory is touched: every component
//! of a name is opened relative to its parent with `O_NOFOLLOW`.

mod attributes;
mod made;
mod output;
mod place;
#[cfg(test)]
mod tests;

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use rustix::{
    fs::{
        AtFlags, CWD, FileType, Mode, OFlags, fsync, mkdirat, openat, renameat, statat, unlinkat,
    },
    io::Errno,
};

pub(super) use self::{attributes::Unkept, output::Output};
use self::{
    attributes::{set_mode, set_time},
    made::Made,
    place::{
        copy, create_named, create_nameless, extend, link_nameless, numbered, rename_new,
        write_all_at,
    },
};
use super::{
    failure::{Failure, by},
    frame::FileOffer,
    name::printable_path,
};

/// The beginning of the names of files that are not complete yet, if they need a name.
const TEMPORARY: &str = ".pinfold-";

/// The rules by which files are put in place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// True if files that exist are replaced, and directories get the mode that was sent.
    pub(super) force: bool,
    /// True if a file must be on the disk before it gets its name.
    pub(super) sync: bool,
    /// True if directories get the time that was sent, as files always do.
    pub(super) times: bool,
    /// The permission bits to withhold, `umask(2)`.
    pub(super) umask: u32,
    /// True if files are written without a name where the file system can do so.
    pub(super) nameless: bool,
}

/// The directory that files go below.
#[derive(Debug)]
pub(super) struct Directory {
    root: OwnedFd,
    rules: Rules,
    shared: Arc<Shared>,
    /// The directory of the last file, since the next is likely to lie in it too.
    last: Option<(Vec<u8>, OwnedFd)>,
    made: Made,
}

/// State that a directory's files share with it.
#[derive(Debug)]
struct Shared {
    /// True if files without a name seem to be possible.
    nameless: AtomicBool,
    unkept: Arc<Unkept>,
}

impl Directory {
    /// Opens `path`, which must exist.
    pub(super) fn open(path: &Path, rules: Rules) -> Result<Directory, Failure> {
        let root =
            openat(CWD, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
                .map_err(|why| match why {
                    Errno::NOENT => Failure::Unsuitable {
                        what: printable_path(path),
                        why: "there is no such directory; make it first".into(),
                    },
                    Errno::NOTDIR => Failure::Unsuitable {
                        what: printable_path(path),
                        why: "it is no directory; give one for the files to go in".into(),
                    },
                    why => Failure::local("opening the directory", printable_path(path), why),
                })?;
        let unkept = Arc::default();
        let shared = Arc::new(Shared { nameless: AtomicBool::new(rules.nameless), unkept });
        Ok(Directory { root, rules, shared, last: None, made: Made::default() })
    }

    /// The count of modes and times of files and directories that could not be kept.
    pub(super) fn unkept(&self) -> Arc<Unkept> {
        Arc::clone(&self.shared.unkept)
    }

    /// Starts the file of `offer`, making the directories it lies in.
    ///
    /// # Errors
    ///
    /// [`Failure::Local`] if it exists and is not to be replaced, or cannot be written.
    pub(super) fn begin(&mut self, offer: &FileOffer) -> Result<Incoming, Failure> {
        let what = offer.name.to_string();
        let parent = self
            .parent(&offer.name)
            .map_err(|why| Failure::local("making the directory of", what.clone(), why))?;
        let failed = |why| Failure::local("creating", what.clone(), why);
        // An existing file is reported before gigabytes are moved; `Incoming::commit` finds one
        // that appears until then.
        match statat(&parent, offer.name.file_name(), AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => {}
            Err(why) => return Err(failed(why)),
            Ok(found) if FileType::from_raw_mode(found.st_mode).is_dir() => {
                return Err(failed(Errno::ISDIR));
            }
            Ok(_) if self.rules.force => {}
            Ok(_) => return Err(failed(Errno::EXIST)),
        }
        let (file, temporary) = self.create(parent.as_fd()).map_err(failed)?;
        Ok(Incoming {
            parent: ParentDirectory { directory: parent, temporary },
            file,
            offer: offer.clone(),
            rules: self.rules,
            shared: Arc::clone(&self.shared),
            written: 0,
            ends_in_hole: false,
        })
    }

    /// Creates a file to write to, and its temporary name if it needs one.
    fn create(&self, parent: BorrowedFd<'_>) -> Result<(OwnedFd, Option<String>), Errno> {
        if self.shared.nameless.load(Ordering::Relaxed) {
            if let Some(file) = create_nameless(parent) {
                return Ok((file, None));
            }
            self.shared.nameless.store(false, Ordering::Relaxed);
        }
        create_named(parent).map(|(file, name)| (file, Some(name)))
    }
}

/// Opens the directory `component` of `parent`, making it first if it is missing.
fn descend(parent: BorrowedFd<'_>, component: &[u8]) -> Result<OwnedFd, Errno> {
    match enter(parent, component) {
        Err(Errno::NOENT) => {}
        other => return other,
    }
    match mkdirat(parent, component, Mode::from_raw_mode(0o777)) {
        Ok(()) | Err(Errno::EXIST) => enter(parent, component),
        Err(why) => Err(why),
    }
}

/// Opens the directory `component` of `parent`, which is there.
fn enter(parent: BorrowedFd<'_>, component: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(parent, component, flags, Mode::empty())
}

/// A file being written in `directory`, under a temporary name if it needs one.
struct ParentDirectory {
    directory: OwnedFd,
    /// The name to remove unless the file is put in place.
    temporary: Option<String>,
}

impl Drop for ParentDirectory {
    fn drop(&mut self) {
        if let Some(name) = &self.temporary {
            // No better remedy of a failure exists than to leave a file that is recognisably
            // incomplete.
            let _ = unlinkat(&self.directory, name.as_str(), AtFlags::empty());
        }
    }
}

/// A file that is not complete yet. Dropping it removes the bytes written.
pub(super) struct Incoming {
    parent: ParentDirectory,
    file: OwnedFd,
    offer: FileOffer,
    rules: Rules,
    shared: Arc<Shared>,
    written: u64,
    ends_in_hole: bool,
}

impl Incoming {
    /// The sender's offer of the file.
    pub(super) fn offer(&self) -> &FileOffer {
        &self.offer
    }

    /// Bytes written so far, holes included.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// Appends `bytes`.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        write_all_at(self.file.as_fd(), bytes, self.written)
            .map_err(by("pwrite64"))
            .map_err(|why| Failure::local("writing", self.offer.name.to_string(), why))?;
        self.written += bytes.len() as u64;
        self.ends_in_hole = false;
        Ok(())
    }

    /// Appends a hole: bytes that are not written, and read as zero.
    pub(super) fn skip(&mut self, bytes: u64) {
        self.written = self.written.saturating_add(bytes);
        self.ends_in_hole = true;
    }

    /// Gives the file its mode, time and name. It is complete from here on.
    pub(super) fn commit(mut self) -> Result<(), Failure> {
        let what = self.offer.name.to_string();
        if self.ends_in_hole {
            extend(self.file.as_fd(), self.written)
                .map_err(|why| Failure::local("writing", &what, why))?;
        }
        self.settle().map_err(|why| Failure::local("setting the mode of", &what, why))?;
        self.put_in_place().map_err(|why| Failure::local("creating", &what, why))?;
        if self.rules.sync {
            fsync(&self.parent.directory)
                .map_err(|why| Failure::local("writing the directory of", &what, why))?;
        }
        Ok(())
    }

    /// Gives the file its mode and time, and puts it on the disk if that is wanted.
    fn settle(&self) -> Result<(), Errno> {
        let (file, attributes) = (self.file.as_fd(), self.offer.attributes);
        let mode = attributes.mode & !self.rules.umask;
        set_mode(file, mode, &self.offer.name, &self.shared.unkept)?;
        set_time(file, attributes.modified, &self.offer.name, &self.shared.unkept)?;
        if self.rules.sync { fsync(file) } else { Ok(()) }
    }

    fn put_in_place(&mut self) -> Result<(), Errno> {
        let name = self.offer.name.file_name().to_vec();
        let force = self.rules.force;
        if self.parent.temporary.is_none() {
            match link_nameless(self.file.as_fd(), self.parent.directory.as_fd(), &name) {
                Ok(()) => return Ok(()),
                Err(Errno::EXIST) if !force => return Err(Errno::EXIST),
                // A link cannot replace a file, a rename can.
                Err(Errno::EXIST) => self.name_by_link()?,
                Err(_) => self.name_by_copy()?,
            }
        }
        let directory = self.parent.directory.as_fd();
        let Some(temporary) = self.parent.temporary.as_deref() else { return Ok(()) };
        if force {
            renameat(directory, temporary, directory, &name)?;
        } else {
            rename_new(directory, temporary, &name)?;
        }
        self.parent.temporary = None;
        Ok(())
    }

    /// Gives a file that has no name a temporary one.
    fn name_by_link(&mut self) -> Result<(), Errno> {
        let directory = self.parent.directory.as_fd();
        let linked = numbered(|name| link_nameless(self.file.as_fd(), directory, name.as_bytes()));
        match linked {
            Ok(((), name)) => self.parent.temporary = Some(name),
            Err(_) => self.name_by_copy()?,
        }
        Ok(())
    }

    /// The same on a file system without links, which shows only now: by a copy that has a name.
    fn name_by_copy(&mut self) -> Result<(), Errno> {
        self.shared.nameless.store(false, Ordering::Relaxed);
        let (named, name) = create_named(self.parent.directory.as_fd())?;
        self.parent.temporary = Some(name);
        copy(self.file.as_fd(), named.as_fd())?;
        self.file = named;
        self.settle()
    }
}

fn errno(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}
