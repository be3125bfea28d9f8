//! Users and groups, by number and by name.
#![allow(unsafe_code)]
// Invariant: the C library's `*_r` lookups write only the record and the buffer they are given,
// and the strings of a record lie in that buffer; nothing of them outlives the lookup here.

use std::{
    ffi::{CStr, CString, c_char, c_int},
    mem::MaybeUninit,
    ptr,
};

/// The longest buffer a lookup is tried with, bytes: a group with tens of thousands of members.
const BUFFER_MAX: usize = 1 << 20;

/// The effective user of this process, as peers see it.
pub fn uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The effective group of this process, as peers see it.
pub fn gid() -> u32 {
    rustix::process::getegid().as_raw()
}

/// The supplementary groups of this process; none if the kernel does not say. See `getgroups(2)`.
pub fn groups() -> Vec<u32> {
    let groups = rustix::process::getgroups().unwrap_or_default();
    groups.into_iter().map(|group| group.as_raw()).collect()
}

/// The permission bits that new files of this process do not get. To read them the call has to set
/// them, so this puts them back: call it before there are other threads that make files. All bits
/// of others where a filter denies it.
pub fn umask() -> u32 {
    const OTHERS: libc::mode_t = 0o077;
    // SAFETY: the call takes an integer.
    let before = unsafe { libc::umask(OTHERS) };
    if before > 0o777 {
        return OTHERS;
    }
    // SAFETY: as above.
    unsafe { libc::umask(before) };
    before
}

/// The name of a user; `None` if the system has none for the number. See `getpwuid_r(3)`.
pub fn name_of(uid: u32) -> Option<String> {
    lookup(
        // SAFETY: `record`, `buffer` and `found` are valid for writes, and `len` is the
        // buffer's.
        |record, buffer, len, found| unsafe { libc::getpwuid_r(uid, record, buffer, len, found) },
        |record: &libc::passwd| {
            // SAFETY: a found record's name is a C string in the buffer, which is still alive.
            unsafe { CStr::from_ptr(record.pw_name) }.to_str().ok().map(str::to_owned)
        },
    )
    .flatten()
}

/// The number of the user called `name`; `None` if there is no such user. See `getpwnam_r(3)`.
pub fn uid_of(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    lookup(
        // SAFETY: `name` is a C string; `record`, `buffer` and `found` are valid for writes,
        // and `len` is the buffer's.
        |record, buffer, len, found| unsafe {
            libc::getpwnam_r(name.as_ptr(), record, buffer, len, found)
        },
        |record: &libc::passwd| record.pw_uid,
    )
}

/// The number of the group called `name`; `None` if there is no such group. See
/// `getgrnam_r(3)`.
pub fn gid_of(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    lookup(
        // SAFETY: `name` is a C string; `record`, `buffer` and `found` are valid for writes,
        // and `len` is the buffer's.
        |record, buffer, len, found| unsafe {
            libc::getgrnam_r(name.as_ptr(), record, buffer, len, found)
        },
        |record: &libc::group| record.gr_gid,
    )
}

/// Calls `find` with buffers of growing size and hands the record that it found to `take`.
fn lookup<Record, Taken>(
    find: impl Fn(*mut Record, *mut c_char, usize, *mut *mut Record) -> c_int,
    take: impl FnOnce(&Record) -> Taken,
) -> Option<Taken> {
    let mut len = 1024;
    while len <= BUFFER_MAX {
        let mut record = MaybeUninit::<Record>::uninit();
        let mut buffer = vec![0 as c_char; len];
        let mut found = ptr::null_mut();
        match find(record.as_mut_ptr(), buffer.as_mut_ptr(), len, &mut found) {
            libc::ERANGE => len *= 4,
            libc::EINTR => {}
            // SAFETY: a success with a result set `found` to `record` and filled that in.
            0 if !found.is_null() => return Some(take(unsafe { &*found })),
            _ => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_agree() {
        assert_eq!(name_of(0).as_deref(), Some("root"));
        assert_eq!(uid_of("root"), Some(0));
        assert_eq!(gid_of("root"), Some(0));
        if let Some(name) = name_of(uid()) {
            assert_eq!(uid_of(&name), Some(uid()));
        }
        let _ = gid();
    }

    #[test]
    fn strangers_have_none() {
        assert_eq!(uid_of("no such user"), None);
        assert_eq!(gid_of("no such group"), None);
        assert_eq!(uid_of("a\0b"), None);
        assert_eq!(name_of(4_000_000_011), None);
    }
}
