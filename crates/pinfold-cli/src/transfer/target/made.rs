//! Directories that the sender announces: made before the entries in them, and given their final
//! state only after these.
//!
//! While the transfer runs, such a directory gives its group and others at most the final
//! permissions. Its owner may do everything, since files have to go in.

use std::{
    collections::BTreeMap,
    os::fd::{AsFd, OwnedFd},
};

use rustix::{
    fs::{Mode, Stat, fstat, fsync, mkdirat},
    io::Errno,
};

use super::{
    Directory,
    attributes::{set_mode, set_time},
    descend, enter, errno,
};
use crate::transfer::{
    failure::{Failure, by},
    frame::DirectoryOffer,
    name::RelativeName,
};

/// The tasks left for the end, by directory.
#[derive(Debug, Default)]
pub(super) struct Made(BTreeMap<RelativeName, Last>);

/// The task left for the end for one of them.
#[derive(Debug)]
struct Last {
    /// Its identity: device and number.
    identity: (u64, u64),
    mode: Option<u32>,
    modified: Option<(i64, u32)>,
}

impl Directory {
    /// Makes the directory of `offer`. An existing one is taken as it is, except that its mode is
    /// set if existing files are to be replaced.
    ///
    /// # Errors
    /// [`Failure::Local`] if it cannot be made, or something else is there.
    pub(in super::super) fn make(&mut self, offer: &DirectoryOffer) -> Result<(), Failure> {
        let name = &offer.name;
        if self.made.0.contains_key(name) {
            return Err(Failure::protocol("the sender", format!("it sent {name} twice")));
        }
        let failed = |call| {
            let name = name.to_string();
            move |why: Errno| Failure::local("making the directory", name.clone(), by(call)(why))
        };
        let parent = self.parent(name).map_err(failed("openat"))?;
        let fresh = match mkdirat(&parent, name.file_name(), Mode::from_raw_mode(0o700)) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(why) => return Err(failed("mkdirat")(why)),
        };
        let made = enter(parent.as_fd(), name.file_name()).map_err(failed("openat"))?;
        let found = fstat(&made).map_err(failed("fstat"))?;
        let last = self.open_up(&made, &found, fresh, offer).map_err(failed("fchmod"))?;
        self.made.0.insert(name.clone(), last);
        Ok(())
    }

    /// Gives a directory the mode it has while files go into it. Returns the task left for the end.
    fn open_up(
        &self,
        made: &OwnedFd,
        found: &Stat,
        fresh: bool,
        offer: &DirectoryOffer,
    ) -> Result<Last, Errno> {
        let wanted = offer.attributes.mode & !self.rules.umask;
        let mut last = Last { identity: (found.st_dev, found.st_ino), mode: None, modified: None };
        if !fresh && !self.rules.force {
            let is = found.st_mode & 0o777;
            if is & !wanted & 0o077 != 0 {
                let text = format_args!(
                    "this directory was there before, and keeps its mode {is:04o}, where \
                     {wanted:04o} was sent; --force sets that"
                );
                self.shared.unkept.note(&offer.name, text);
            }
            return Ok(last);
        }
        let to_others = if fresh { wanted } else { wanted & found.st_mode } & 0o077;
        let meanwhile = to_others | 0o700;
        set_mode(made.as_fd(), meanwhile, &offer.name, &self.shared.unkept)?;
        last.mode = (meanwhile != wanted).then_some(wanted);
        last.modified = self.rules.times.then_some(offer.attributes.modified);
        Ok(last)
    }

    /// Gives the new directories their modes and times: all their entries are in them.
    ///
    /// # Errors
    /// [`Failure::Local`] if one is gone, or cannot be opened or written any more.
    pub(in super::super) fn finish(&mut self) -> Result<(), Failure> {
        // A directory in another one comes before it, as the outer one may let no process in
        // afterwards.
        while let Some((name, last)) = self.made.0.pop_last() {
            let failed = |why| Failure::local("setting the mode of", name.to_string(), why);
            if last.mode.is_none() && last.modified.is_none() && !self.rules.sync {
                continue;
            }
            let made = self.reach(&name).map_err(failed)?;
            let found = fstat(&made).map_err(failed)?;
            if (found.st_dev, found.st_ino) != last.identity {
                self.shared.unkept.note(&name, "another directory has taken its place meanwhile");
                continue;
            }
            let (made, unkept) = (made.as_fd(), &self.shared.unkept);
            if let Some(mode) = last.mode {
                set_mode(made, mode, &name, unkept).map_err(failed)?;
            }
            if let Some(modified) = last.modified {
                set_time(made, modified, &name, unkept).map_err(failed)?;
            }
            if self.rules.sync {
                fsync(made).map_err(failed)?;
            }
        }
        if self.rules.sync {
            fsync(&self.root)
                .map_err(|why| Failure::local("writing", "the directory of it all", why))?;
        }
        self.shared.unkept.end();
        Ok(())
    }

    /// Opens the directory `name`, which is there.
    fn reach(&self, name: &RelativeName) -> Result<OwnedFd, Errno> {
        let mut directory = self.root.try_clone().map_err(errno)?;
        for component in name.parents() {
            directory = enter(directory.as_fd(), component)?;
        }
        enter(directory.as_fd(), name.file_name())
    }

    /// The directory that `name` lies in, made if it is missing.
    pub(super) fn parent(&mut self, name: &RelativeName) -> Result<OwnedFd, Errno> {
        if let Some((path, directory)) = &self.last
            && path == name.parent()
        {
            return directory.try_clone().map_err(errno);
        }
        let mut directory = self.root.try_clone().map_err(errno)?;
        for component in name.parents() {
            directory = descend(directory.as_fd(), component)?;
        }
        let kept = directory.try_clone().map_err(errno)?;
        self.last = Some((name.parent().to_vec(), kept));
        Ok(directory)
    }
}
