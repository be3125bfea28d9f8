//! The key that the endpoints of one group share.
//!
//! An endpoint that has it may connect; there are no names behind it. It goes into every proof of a
//! greeting and never over the wire.

use std::{fmt, io, os::fd::OwnedFd, path::Path};

use hmac::{Hmac, KeyInit, Mac};
use rustix::{
    fs::{self, FileType, OFlags},
    io::Errno,
};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use zeroize::{Zeroize, Zeroizing};

use crate::transport::local::{access::describe, directory::quoted};

#[cfg(test)]
mod tests;

/// The shortest key, bytes.
pub(crate) const KEY_BYTES_MIN: usize = 32;

/// The longest key, bytes.
pub(crate) const KEY_BYTES_MAX: usize = 4096;

/// Bytes of a key's MAC of a text.
pub(crate) const MAC_BYTES: usize = 32;

/// Sets this use of SHA-256 apart from all others.
const DOMAIN: &[u8] = b"pinfold tcp shared key\0";

/// A shared key. Its source bytes are forgotten: only a digest of them stays, in one place, which
/// is zeroed when it is dropped.
///
/// Comparing two takes the same time wherever they differ. `Debug` does not show it.
pub(crate) struct Key(Box<[u8; MAC_BYTES]>);

/// The reason why there is no key.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeyError {
    /// There is no file.
    #[error(
        "there is no key file {file}; copy it from the other host, or make one: (umask 077; head -c 32 /dev/urandom > {file})"
    )]
    Missing { file: String },
    /// This user cannot open it.
    #[error("the key file {file} cannot be opened ({source}); see who may: namei -l {file}")]
    Closed { file: String, source: io::Error },
    /// It is a directory, a pipe, a device.
    #[error("the key file {file} is not a regular file but {what}; look at it: ls -ld {file}")]
    NotAFile { file: String, what: &'static str },
    /// Another user can change it at will.
    #[error("the key file {file} belongs to {owner}, not to {own} or root; {}", copy_of(file))]
    Owner { file: String, owner: String, own: String },
    /// Others may read or write it.
    #[error("the key file {file} has mode {mode:04o}: {trouble}; {remedy}")]
    Mode { file: String, mode: u32, trouble: String, remedy: String },
    /// It is too short or too long.
    #[error(
        "the key in {file} has {len} bytes, not 32 to 4096; make one: (umask 077; head -c 32 /dev/urandom > {file})"
    )]
    FileLength { file: String, len: u64 },
    /// The same of bytes that were given.
    #[error("a key has 32 to 4096 bytes, not {len}; draw 32 at random")]
    Length { len: usize },
    /// A system call failed.
    #[error("{call} on the key file {file}: {source}")]
    Os { call: &'static str, file: String, source: io::Error },
}

impl Key {
    /// The key of these bytes, 32 to 4,096. One line feed at the end does not count, so that an
    /// editor that adds one does not make another key.
    ///
    /// # Errors
    /// [`KeyError::Length`].
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Key, KeyError> {
        if !(KEY_BYTES_MIN..=KEY_BYTES_MAX).contains(&bytes.len()) {
            return Err(KeyError::Length { len: bytes.len() });
        }
        let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let mut digest = Sha256::new_with_prefix(DOMAIN).chain_update(bytes).finalize();
        let mut key = Key(Box::new([0; MAC_BYTES]));
        key.0.copy_from_slice(&digest);
        digest.as_mut_slice().zeroize();
        Ok(key)
    }

    /// The key in a file: a regular one of 32 to 4,096 bytes that belongs to this user or to root,
    /// that no other user may write, and others may not read. Its group may read it if this process
    /// is in the group or root owns the file, as where secrets are mounted into containers. Links
    /// are followed; the checks are made on the opened file.
    ///
    /// # Errors
    /// [`KeyError`], with the file, the fault, and the command that mends it.
    pub(crate) fn from_file(path: &Path) -> Result<Key, KeyError> {
        Key::from_file_of(path, pinfold_sys::user::uid())
    }

    /// The same for user `uid`.
    fn from_file_of(path: &Path, uid: u32) -> Result<Key, KeyError> {
        let file = || quoted(path);
        let os =
            |call| move |errno: Errno| KeyError::Os { call, file: file(), source: errno.into() };
        // A pipe would make the call wait, a terminal would become this process's.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let fd = fs::open(path, flags, fs::Mode::empty()).map_err(|errno| match errno {
            Errno::NOENT => KeyError::Missing { file: file() },
            Errno::ACCESS | Errno::PERM | Errno::NOTDIR | Errno::LOOP => {
                KeyError::Closed { file: file(), source: errno.into() }
            }
            Errno::NXIO => KeyError::NotAFile { file: file(), what: "a socket or a device" },
            errno => os("open")(errno),
        })?;
        let stat = fs::fstat(&fd).map_err(os("fstat"))?;
        let what = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => None,
            FileType::Directory => Some("a directory"),
            FileType::Fifo => Some("a pipe"),
            FileType::CharacterDevice | FileType::BlockDevice => Some("a device"),
            _ => Some("something else"),
        };
        if let Some(what) = what {
            return Err(KeyError::NotAFile { file: file(), what });
        }
        if stat.st_uid != uid && stat.st_uid != 0 {
            let (owner, own) = (describe(stat.st_uid), describe(uid));
            return Err(KeyError::Owner { file: file(), owner, own });
        }
        let mode = stat.st_mode & 0o7777;
        let wrong = forbidden(mode, stat.st_uid == 0, || in_group(stat.st_gid));
        if wrong != 0 {
            let trouble = trouble(wrong, stat.st_gid);
            let remedy = if stat.st_uid == uid {
                format!("run: chmod {} {}", taken(wrong), file())
            } else {
                copy_of(&file())
            };
            return Err(KeyError::Mode { file: file(), mode, trouble, remedy });
        }
        let mut bytes = Zeroizing::new([0; KEY_BYTES_MAX + 1]);
        let len = read(&fd, bytes.as_mut_slice()).map_err(os("read"))?;
        Key::from_bytes(&bytes[..len]).map_err(|_| {
            let size = u64::try_from(stat.st_size).unwrap_or_default();
            KeyError::FileLength { file: file(), len: size.max(len as u64) }
        })
    }

    /// The key's MAC of a text in parts: HMAC-SHA256 (RFC 2104). The parts count as one text, so
    /// all but the last have to be of one length each.
    pub(crate) fn mac(&self, parts: &[&[u8]]) -> [u8; MAC_BYTES] {
        mac(&self.0, parts)
    }
}

/// Bits of a mode.
const GROUP_READ: u32 = 0o040;
const GROUP_WRITE: u32 = 0o020;
const OTHER_READ: u32 = 0o004;
const OTHER_WRITE: u32 = 0o002;

/// The bits of a key file's mode that must not be set but are.
fn forbidden(mode: u32, roots: bool, in_group: impl FnOnce() -> bool) -> u32 {
    let wrong = mode & (GROUP_WRITE | OTHER_READ | OTHER_WRITE);
    let strangers_read = mode & GROUP_READ != 0 && !roots && !in_group();
    if strangers_read { wrong | GROUP_READ } else { wrong }
}

/// Returns whether this process is in a group.
fn in_group(gid: u32) -> bool {
    pinfold_sys::user::gid() == gid || pinfold_sys::user::groups().contains(&gid)
}

/// The users that these bits allow to read or write the file, in words.
fn trouble(wrong: u32, gid: u32) -> String {
    let rights = |read, write| match (wrong & read != 0, wrong & write != 0) {
        (true, true) => Some("read and write it"),
        (true, false) => Some("read it"),
        (false, true) => Some("write it"),
        (false, false) => None,
    };
    let group = rights(GROUP_READ, GROUP_WRITE).map(|what| format!("its group {gid} may {what}"));
    let others = rights(OTHER_READ, OTHER_WRITE).map(|what| format!("all users may {what}"));
    [group, others].into_iter().flatten().collect::<Vec<_>>().join(", and ")
}

/// The mode for `chmod(1)` that takes these bits away.
fn taken(wrong: u32) -> String {
    let classes = [("g", GROUP_READ, GROUP_WRITE), ("o", OTHER_READ, OTHER_WRITE)];
    let parts = classes.iter().filter(|(_, read, write)| wrong & (read | write) != 0);
    let part = |&(class, read, write): &(&str, u32, u32)| {
        let read = if wrong & read != 0 { "r" } else { "" };
        let write = if wrong & write != 0 { "w" } else { "" };
        format!("{class}-{read}{write}")
    };
    parts.map(part).collect::<Vec<_>>().join(",")
}

/// The advice if only another user may change the file.
fn copy_of(file: &str) -> String {
    format!("use a copy of your own: (umask 077; cat {file} > ~/pinfold.key)")
}

/// HMAC-SHA256 of a text in parts.
pub(super) fn mac(key: &[u8; MAC_BYTES], parts: &[&[u8]]) -> [u8; MAC_BYTES] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key of any length will do");
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

/// Returns whether two are the same, in a time that does not depend on where they differ.
#[must_use]
pub(super) fn is_same(one: &[u8; MAC_BYTES], other: &[u8; MAC_BYTES]) -> bool {
    one.ct_eq(other).into()
}

impl Drop for Key {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        is_same(&self.0, &other.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(hidden)")
    }
}

/// Reads as many bytes as there are, or fit.
fn read(fd: &OwnedFd, into: &mut [u8]) -> Result<usize, Errno> {
    let mut len = 0;
    while len < into.len() {
        match rustix::io::read(fd, &mut into[len..]) {
            Ok(0) => break,
            Ok(n) => len += n,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(len)
}
