//! The ways a message can reach a peer.

use std::fmt;

/// One way for a message to reach a peer.
///
/// ```
/// use pinfold::{Endpoint, Path};
///
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-of-path-{}", std::process::id());
/// let endpoint = Endpoint::listen(&name)?;
/// let itself = endpoint.connect(&name)?; // The endpoint calls itself.
/// let receipt = endpoint.send(itself, 1, b"short")?;
/// assert_eq!(receipt.path, Path::Inline);
/// // A path can be asked for, too.
/// let receipt = endpoint.send_by(Path::Eager, itself, 1, b"short")?;
/// assert_eq!(receipt.path.name(), "eager");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Path {
    /// In the descriptor itself; 0 to 56 bytes.
    Inline = 0,
    /// Two copies by the processor through the pair's shared ring; any size, always possible. To
    /// another host: over the connection, long messages from where they lie
    /// ([`Receipt::sent_by`](crate::Receipt::sent_by)).
    Eager = 1,
    /// One copy by the kernel, `process_vm_readv(2)` or `process_vm_writev(2)`; any memory,
    /// where the pair of processes may.
    Cma = 2,
    /// One copy by the processor: out of the sender's arena as the receiver has it mapped, or into
    /// the receiver's [`SharedArena`](crate::SharedArena) as the sender has it mapped, or both at
    /// once. A part of it may have been copied by the kernel at the other side, if that had nothing
    /// to map.
    Mapped = 3,
    /// No copy: the sender gives the memory away, in an arena, and the receiver looks at it there.
    Handoff = 4,
}

impl Path {
    /// Every path, in the order of [`Path`]'s discriminants.
    pub const ALL: [Path; 5] = [Path::Inline, Path::Eager, Path::Cma, Path::Mapped, Path::Handoff];

    /// The lower-case name that reports and options use.
    pub const fn name(self) -> &'static str {
        match self {
            Path::Inline => "inline",
            Path::Eager => "eager",
            Path::Cma => "cma",
            Path::Mapped => "mapped",
            Path::Handoff => "handoff",
        }
    }

    /// The path called `name`, if there is one.
    pub fn from_name(name: &str) -> Option<Path> {
        Path::ALL.into_iter().find(|path| path.name() == name)
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A set of [`Path`]s.
///
/// ```
/// use pinfold::{Endpoint, Path, PathSet};
///
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-of-path-set-{}", std::process::id());
/// let paths = PathSet::all().without(Path::Cma).without(Path::Mapped);
/// let endpoint = Endpoint::builder().listen(&name).paths(paths).build()?;
/// let itself = endpoint.connect(&name)?; // The endpoint calls itself.
/// let usable = endpoint.peer(itself).expect("it is connected").paths;
/// assert!(usable.contains(Path::Eager) && !usable.contains(Path::Cma));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PathSet(u8);

impl PathSet {
    /// Every path.
    pub const fn all() -> PathSet {
        PathSet((1 << Path::ALL.len()) - 1)
    }

    /// No path.
    pub const fn none() -> PathSet {
        PathSet(0)
    }

    /// Just these paths.
    pub fn only(paths: &[Path]) -> PathSet {
        paths.iter().fold(PathSet::none(), |set, &path| set.with(path))
    }

    /// This set and `path`.
    #[must_use]
    pub const fn with(self, path: Path) -> PathSet {
        PathSet(self.0 | 1 << path as u8)
    }

    /// This set less `path`.
    #[must_use]
    pub const fn without(self, path: Path) -> PathSet {
        PathSet(self.0 & !(1 << path as u8))
    }

    /// Returns whether `path` is in the set.
    pub const fn contains(self, path: Path) -> bool {
        self.0 & 1 << path as u8 != 0
    }

    /// The paths of the set, cheapest for small messages first.
    pub fn iter(self) -> impl Iterator<Item = Path> {
        Path::ALL.into_iter().filter(move |&path| self.contains(path))
    }
}

impl Default for PathSet {
    fn default() -> PathSet {
        PathSet::all()
    }
}

impl fmt::Debug for PathSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}
