//! A directory for one run: the provider under the name that libfabric wants, reports of the ranks,
//! and files of two hosts. It is removed at the end.

use std::{
    env, fs, io,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    process,
};

use super::provider::{self, Provider};

/// Names that are tried for it.
const TRIES: u32 = 100;
/// The length of a key, bytes.
const KEY_BYTES: usize = 32;

pub(super) struct Place {
    path: PathBuf,
}

impl Place {
    /// Makes it, for this user alone.
    ///
    /// # Errors
    /// A text that names it.
    pub(super) fn new() -> Result<Place, String> {
        let above = env::temp_dir();
        let failed = |path: &Path, error| format!("cannot make {}: {error}", path.display());
        for number in 0..TRIES {
            let path = above.join(format!("pinfold-run-{}-{number}", process::id()));
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => {
                    let place = Place { path };
                    fs::create_dir(place.reports()).map_err(|e| failed(&place.reports(), e))?;
                    return Ok(place);
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(failed(&path, error)),
            }
        }
        Err(format!("cannot make a directory in {}: all names are taken", above.display()))
    }

    /// Where ranks leave their counters.
    pub(super) fn reports(&self) -> PathBuf {
        self.path.join("reports")
    }

    /// A path in it.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Puts the provider into a directory of its own, and returns that.
    ///
    /// # Errors
    /// A text that names the file.
    pub(super) fn provider(&self, found: &Provider) -> Result<PathBuf, String> {
        let directory = self.path("provider");
        provider::link(found, &directory)
            .map_err(|error| format!("cannot use {}: {error}", found.file.display()))?;
        Ok(directory)
    }

    /// Makes a key for this run, and returns its file.
    ///
    /// # Errors
    /// A text, as where the kernel has no random numbers.
    pub(super) fn key(&self) -> Result<PathBuf, String> {
        let mut key = [0; KEY_BYTES];
        getrandom::fill(&mut key).map_err(|error| format!("cannot make a key: {error}"))?;
        self.write("key", 0o600, &key)
    }

    /// Writes a file that only this user can read.
    ///
    /// # Errors
    /// A text that names the file.
    pub(super) fn write(&self, name: &str, mode: u32, contents: &[u8]) -> Result<PathBuf, String> {
        let path = self.path(name);
        let mut options = fs::OpenOptions::new();
        let file = options.create_new(true).write(true).mode(mode).open(&path);
        file.and_then(|mut file| io::Write::write_all(&mut file, contents))
            .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        Ok(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_private_and_goes() {
        use std::os::unix::fs::PermissionsExt;
        let (one, other) = (Place::new().unwrap(), Place::new().unwrap());
        assert_ne!(one.path, other.path);
        let mode = fs::metadata(&one.path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        let file = one.key().unwrap();
        assert_eq!(fs::read(&file).unwrap().len(), KEY_BYTES);
        assert_ne!(fs::read(&file).unwrap(), fs::read(other.key().unwrap()).unwrap());
        assert!(one.write("key", 0o600, b"again").unwrap_err().contains("key"));
        drop(one);
        assert!(!file.exists() && other.reports().is_dir());
    }
}
