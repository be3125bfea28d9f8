//! Names of files as they travel: relative, and unable to leave the receiver's directory.
//!
//! The module owns this invariant of [`RelativeName`]: one or more components joined by single
//! slashes, none of them empty, `.` or `..`, none longer than a file name may be, no NUL byte.
//! Names are bytes, as Linux has them, not necessarily UTF-8. Symbolic links in the receiver's
//! directory are [`super::target`]'s to refuse.

use std::{fmt, path::Path};

/// The longest name, bytes. A path given to the kernel is limited to this with its final NUL.
pub(super) const NAME_BYTES_MAX: usize = 4095;

/// The longest component, bytes (`NAME_MAX`).
const COMPONENT_BYTES_MAX: usize = 255;

/// A file's name relative to the receiver's directory.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct RelativeName(Vec<u8>);

/// The reason why bytes are no [`RelativeName`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadName {
    /// No bytes at all.
    #[error("it is empty")]
    Empty,
    /// More than [`NAME_BYTES_MAX`] bytes, or a component of more than 255.
    #[error("it is too long")]
    TooLong,
    /// It starts with a slash.
    #[error("it is absolute")]
    Absolute,
    /// A component is `..`.
    #[error("it has a component '..'")]
    Parent,
    /// A component is `.` or empty.
    #[error("it has a component that is empty or '.'")]
    Hollow,
    /// It contains a NUL byte.
    #[error("it contains a NUL byte")]
    Nul,
}

impl RelativeName {
    /// Checks `bytes`.
    pub(super) fn new(bytes: &[u8]) -> Result<RelativeName, BadName> {
        if bytes.is_empty() {
            return Err(BadName::Empty);
        }
        if bytes.len() > NAME_BYTES_MAX {
            return Err(BadName::TooLong);
        }
        if bytes.contains(&0) {
            return Err(BadName::Nul);
        }
        if bytes[0] == b'/' {
            return Err(BadName::Absolute);
        }
        for component in bytes.split(|&byte| byte == b'/') {
            match component {
                b"" | b"." => return Err(BadName::Hollow),
                b".." => return Err(BadName::Parent),
                long if long.len() > COMPONENT_BYTES_MAX => return Err(BadName::TooLong),
                _ => {}
            }
        }
        Ok(RelativeName(bytes.to_vec()))
    }

    /// The bytes of the name.
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The directories the file lies in, outermost first; empty for a file at the top.
    pub(super) fn parents(&self) -> impl Iterator<Item = &[u8]> {
        self.parent().split(|&byte| byte == b'/').filter(|component| !component.is_empty())
    }

    /// The part before the last slash; empty for a file at the top.
    pub(super) fn parent(&self) -> &[u8] {
        self.0.iter().rposition(|&byte| byte == b'/').map_or(&[], |slash| &self.0[..slash])
    }

    /// The last component.
    pub(super) fn file_name(&self) -> &[u8] {
        match self.0.iter().rposition(|&byte| byte == b'/') {
            Some(slash) => &self.0[slash + 1..],
            None => &self.0,
        }
    }
}

impl fmt::Display for RelativeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&printable(&self.0))
    }
}

impl fmt::Debug for RelativeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// `bytes` as text that is safe to print on a terminal: control characters are escaped, and bytes
/// that are not UTF-8 are replaced.
pub(super) fn printable(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for ch in String::from_utf8_lossy(bytes).chars() {
        // U+202A to U+202E and U+2066 to U+2069 reorder the text around them.
        if ch.is_control() || matches!(ch, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}') {
            out.extend(ch.escape_default());
        } else {
            out.push(ch);
        }
    }
    out
}

/// [`printable`] for a path of this machine.
pub(super) fn printable_path(path: &Path) -> String {
    printable(path.as_os_str().as_encoded_bytes())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn hostile_names_are_refused() {
        for (name, why) in [
            (&b""[..], BadName::Empty),
            (b"/etc/passwd", BadName::Absolute),
            (b"/", BadName::Absolute),
            (b"..", BadName::Parent),
            (b"../up", BadName::Parent),
            (b"a/../../up", BadName::Parent),
            (b"a/..", BadName::Parent),
            (b".", BadName::Hollow),
            (b"./a", BadName::Hollow),
            (b"a//b", BadName::Hollow),
            (b"a/", BadName::Hollow),
            (b"a\0b", BadName::Nul),
            (&[b'a'; 256], BadName::TooLong),
            (&[b'a'; 5000], BadName::TooLong),
        ] {
            assert_eq!(RelativeName::new(name), Err(why), "{}", printable(name));
        }
        // Of short components, too.
        let of = |len: usize| RelativeName::new(&b"a/".repeat(len)[..len]).map(drop);
        assert_eq!((of(4095), of(4097)), (Ok(()), Err(BadName::TooLong)));
    }

    #[test]
    fn odd_names_are_kept() {
        for name in [&b"..."[..], b"a b", b"-rf", b"a\nb", b"\xff\xfe", "ü/é.txt".as_bytes()] {
            assert_eq!(RelativeName::new(name).unwrap().as_bytes(), name);
        }
    }

    #[test]
    fn names_come_apart() {
        let name = RelativeName::new(b"a/b/c").unwrap();
        assert_eq!(name.parents().collect::<Vec<_>>(), [b"a", b"b"]);
        assert_eq!((name.parent(), name.file_name()), (&b"a/b"[..], &b"c"[..]));
        let top = RelativeName::new(b"c").unwrap();
        assert_eq!(top.parents().count(), 0);
        assert_eq!((top.parent(), top.file_name()), (&b""[..], &b"c"[..]));
    }

    #[test]
    fn what_is_printed_cannot_drive_a_terminal() {
        assert_eq!(printable(b"a\x1b[2Jb\n"), "a\\u{1b}[2Jb\\n");
        assert_eq!(printable("\u{202e}txt".as_bytes()), "\\u{202e}txt");
        assert_eq!(printable("für".as_bytes()), "für");
    }

    proptest! {
        #[test]
        fn an_accepted_name_stays_inside(bytes in prop::collection::vec(
            prop_oneof![Just(b'/'), Just(b'.'), Just(0u8), any::<u8>()], 0..40)) {
            if let Ok(name) = RelativeName::new(&bytes) {
                let joined = Path::new("/base").join(
                    <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(name.as_bytes()));
                prop_assert!(joined.starts_with("/base"));
                prop_assert!(joined.components().all(|c| c != std::path::Component::ParentDir));
                prop_assert_eq!(name.parents().count() + 1,
                    bytes.iter().filter(|&&b| b == b'/').count() + 1);
            }
        }
    }
}
