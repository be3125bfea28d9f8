//! Anonymous files whose size can never change: the memory two processes share.
//!
//! A file sealed against shrinking cannot make its mapper die by `SIGBUS` behind a truncation,
//! and one sealed against sealing cannot turn read-only later.

use std::{
    fmt, io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

use rustix::{
    fs::{self, FileType, MemfdFlags, Mode, OFlags, SealFlags},
    io::Errno,
    param::page_size,
};

use crate::{
    failed::{Failed, may_be_denied},
    trial::{self, Limited},
};

/// `TMPFS_MAGIC` of `statfs(2)`: an ordinary memfd lies on tmpfs, a huge-page one does not.
const TMPFS_MAGIC: u64 = 0x0102_1994;

const TRUNCATE: &str = "ftruncate";
const ADD_SEALS: &str = "fcntl(F_ADD_SEALS)";
const GET_SEALS: &str = "fcntl(F_GET_SEALS)";

/// The seals every shared file carries.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// The seals that fix the size alone.
const FIXED: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

/// Makes a file of `len` bytes that can neither shrink, grow, nor be sealed further.
///
/// The file is sparse and reads as zero. `name` shows up in `/proc/PID/maps` only. The file is
/// not executable where the kernel knows `MFD_NOEXEC_SEAL` (6.3). See `memfd_create(2)`.
///
/// # Errors
/// The error of `memfd_create`, `ftruncate` or `fcntl(F_ADD_SEALS)`: `EMFILE`, `ENFILE`, `ENOMEM`,
/// `EINVAL` for a name over 249 bytes, `ENOSYS` or `EPERM` under a filter; `EFBIG` for more than
/// `RLIMIT_FSIZE` allows, which also holds for files in memory.
pub fn create_sealed(name: &str, len: usize) -> Result<OwnedFd, Failed> {
    let file = create_fixed(name, len)?;
    fs::fcntl_add_seals(&file, SealFlags::SEAL).map_err(Failed::of(ADD_SEALS))?;
    Ok(file)
}

/// Makes an empty file without seals, which the other functions begin with.
///
/// # Errors
/// Those of `memfd_create`; see [`create_sealed`].
pub fn create_empty(name: &str) -> Result<OwnedFd, Failed> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let made = match fs::memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        // Kernels before 6.3 do not know the flag.
        Err(Errno::INVAL) => fs::memfd_create(name, flags),
        made => made,
    };
    made.map_err(Failed::of("memfd_create"))
}

/// As [`create_sealed`], but further seals can still be put on the file: see [`seal`].
///
/// # Errors
/// As for [`create_sealed`].
pub fn create_fixed(name: &str, len: usize) -> Result<OwnedFd, Failed> {
    let file = create_empty(name)?;
    // Beyond the limit on file sizes the kernel does not only refuse, it sends a SIGXFSZ, of which
    // most programs die (setrlimit(2)). A filter that denies the question leaves that to the
    // kernel.
    check_limit(len)?;
    fs::ftruncate(&file, len as u64).map_err(Failed::of(TRUNCATE))?;
    fs::fcntl_add_seals(&file, FIXED).map_err(Failed::of(ADD_SEALS))?;
    Ok(file)
}

/// Checks that a file may have `len` bytes.
///
/// # Errors
/// `EFBIG` for more than `RLIMIT_FSIZE` allows.
pub fn check_limit(len: usize) -> Result<(), Failed> {
    match trial::soft_limit(Limited::FileBytes) {
        Some(limit) if limit < len as u64 => Err(Failed { call: TRUNCATE, errno: Errno::FBIG }),
        _ => Ok(()),
    }
}

/// Puts the last seals on a file from [`create_fixed`]. With `against_writers` that includes
/// `F_SEAL_FUTURE_WRITE` where the kernel has it (5.1): from then on it refuses every new writable
/// mapping, every `write(2)` and every hole, also through a descriptor that was opened anew.
/// Mappings that exist stay as they are. Once sealed, a file stays so; a second call changes
/// nothing.
///
/// The other side of the seal: memory of such a file goes back to the system with the file alone,
/// since `MADV_REMOVE` punches holes.
///
/// # Errors
/// The error of `fcntl(F_ADD_SEALS)`.
pub fn seal(fd: BorrowedFd<'_>, against_writers: bool) -> Result<(), Failed> {
    let add = |seals| fs::fcntl_add_seals(fd, seals).map_err(Failed::of(ADD_SEALS));
    if fs::fcntl_get_seals(fd).map_err(Failed::of(GET_SEALS))?.contains(SealFlags::SEAL) {
        return Ok(());
    }
    if against_writers {
        match add(SealFlags::FUTURE_WRITE | SealFlags::SEAL) {
            // Kernels before 5.1 do not know the seal.
            Err(Failed { errno: Errno::INVAL, .. }) => {}
            done => return done,
        }
    }
    add(SealFlags::SEAL)
}

/// Returns whether the kernel refuses new writers of the file: see [`seal`].
pub fn refuses_writers(fd: BorrowedFd<'_>) -> bool {
    let writers = SealFlags::FUTURE_WRITE | SealFlags::WRITE;
    fs::fcntl_get_seals(fd).is_ok_and(|seals| seals.intersects(writers))
}

/// Puts the last seals on a file from [`create_fixed`], `F_SEAL_WRITE` among them: nobody can write
/// it any more, by a mapping or otherwise, nor make holes in it. See `fcntl(2)`.
///
/// # Errors
/// `EBUSY` while a writable mapping of the file exists, or something has its pages pinned; else the
/// error of `fcntl(F_ADD_SEALS)`.
pub fn seal_against_all(fd: BorrowedFd<'_>) -> Result<(), Failed> {
    fs::fcntl_add_seals(fd, SealFlags::WRITE | SealFlags::SEAL).map_err(Failed::of(ADD_SEALS))
}

/// Returns whether the file can be written by nobody, its owner included: see
/// [`seal_against_all`]. True once, it stays true.
///
/// `F_SEAL_FUTURE_WRITE` is not enough, since mappings that were there before it go on writing.
pub fn has_no_writers(fd: BorrowedFd<'_>) -> bool {
    fs::fcntl_get_seals(fd).is_ok_and(|seals| seals.contains(SealFlags::WRITE | SEALS))
}

/// Checks that a descriptor from a peer is safe to map as `len` bytes: an ordinary memfd of
/// exactly that size, which can neither shrink, grow, nor be sealed further.
///
/// # Errors
/// The property that the file lacks.
pub fn check_sealed(fd: BorrowedFd<'_>, len: usize) -> Result<(), SealError> {
    let found = sealed_len(fd)?;
    if found != len as u64 {
        return Err(SealError::Size { found, wanted: len as u64 });
    }
    Ok(())
}

/// Opens descriptor `fd` of process `pid` anew, for reading only, if it is an ordinary memfd that
/// can neither shrink, grow, nor be sealed further; with its size, bytes.
///
/// The kernel decides which processes may (`PTRACE_MODE_READ_FSCREDS`, `ptrace(2)`), and the other
/// process notices nothing. A descriptor of anything else, such as a device, is not opened.
///
/// # Errors
/// The property that the file lacks. [`SealError::Os`] with `ENOENT` or `ESRCH` if it is gone, with
/// `EACCES` if this process may not look.
pub fn open_sealed_of(pid: u32, fd: u32) -> Result<(OwnedFd, u64), SealError> {
    let os = |call| move |errno| SealError::Os(Failed { call, errno });
    let path = format!("/proc/{pid}/fd/{fd}");
    // The name alone is read first: to open a device can have effects, or wait for ever.
    let name =
        fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(os("openat"))?;
    let stat = fs::fstat(&name).map_err(os("fstat"))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || !is_on_tmpfs(&name)? {
        return Err(SealError::NotMemfd);
    }
    let path = format!("/proc/self/fd/{}", name.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = fs::open(path, flags, Mode::empty()).map_err(os("openat"))?;
    let len = sealed_len(file.as_fd())?;
    Ok((file, len))
}

/// Device and inode of a file: two descriptors with the same are of one file.
///
/// # Errors
/// The error of `fstat(2)`.
pub fn identity(fd: BorrowedFd<'_>) -> io::Result<(u64, u64)> {
    let stat = fs::fstat(fd)?;
    Ok((stat.st_dev, stat.st_ino))
}

fn is_on_tmpfs(fd: impl AsFd) -> Result<bool, SealError> {
    let os = |call| move |errno| SealError::Os(Failed { call, errno });
    match fs::fstatfs(&fd) {
        Ok(found) => Ok(found.f_type as u64 == TMPFS_MAGIC),
        // The blocks of a file of huge pages are such pages, those of any other are no smaller than
        // here.
        Err(errno) if may_be_denied(errno) => {
            Ok(fs::fstat(&fd).map_err(os("fstat"))?.st_blksize as usize == page_size())
        }
        Err(errno) => Err(os("fstatfs")(errno)),
    }
}

/// The size of a sealed memfd.
fn sealed_len(fd: BorrowedFd<'_>) -> Result<u64, SealError> {
    // Files that cannot be sealed answer EINVAL; those of a tmpfs mount carry SEAL alone.
    let seals = fs::fcntl_get_seals(fd).map_err(|errno| match may_be_denied(errno) {
        true => SealError::Os(Failed { call: GET_SEALS, errno }),
        false => SealError::NotMemfd,
    })?;
    // A huge-page file may fault with SIGBUS when the pool of huge pages is empty.
    if !is_on_tmpfs(fd)? {
        return Err(SealError::NotMemfd);
    }
    if !seals.contains(SEALS) {
        return Err(SealError::Unsealed);
    }
    let stat = fs::fstat(fd);
    Ok(stat.map_err(|errno| SealError::Os(Failed { call: "fstat", errno }))?.st_size as u64)
}

/// Reasons why a descriptor is not a sealed memfd of the right size.
#[derive(Debug)]
#[non_exhaustive]
pub enum SealError {
    /// It is some other kind of file.
    NotMemfd,
    /// Its size or its seals could still change.
    Unsealed,
    /// Its size is wrong.
    Size {
        /// Its size, bytes.
        found: u64,
        /// The size it should have, bytes.
        wanted: u64,
    },
    /// It could not be examined.
    Os(Failed),
}

impl fmt::Display for SealError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SealError::NotMemfd => f.write_str("not an ordinary memfd"),
            SealError::Unsealed => f.write_str("not sealed against shrinking, growing and sealing"),
            SealError::Size { found, wanted } => write!(f, "{found} bytes long, not {wanted}"),
            SealError::Os(source) => write!(f, "cannot be examined: {source}"),
        }
    }
}

impl std::error::Error for SealError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            SealError::Os(source) => Some(source),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_file_passes_and_cannot_change() {
        let file = create_sealed("pinfold-test", 8192).unwrap();
        check_sealed(file.as_fd(), 8192).unwrap();
        assert_eq!(fs::ftruncate(&file, 4096), Err(Errno::PERM));
        assert_eq!(fs::ftruncate(&file, 16384), Err(Errno::PERM));
        assert_eq!(fs::fcntl_add_seals(&file, SealFlags::WRITE), Err(Errno::PERM));
        let flags = rustix::io::fcntl_getfd(&file).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
    }

    #[test]
    fn each_fault_is_found() {
        let file = create_sealed("pinfold-test", 8192).unwrap();
        let wrong = check_sealed(file.as_fd(), 4096);
        assert!(matches!(wrong, Err(SealError::Size { found: 8192, wanted: 4096 })));

        let open = fs::memfd_create("pinfold-test", MemfdFlags::ALLOW_SEALING).unwrap();
        fs::ftruncate(&open, 4096).unwrap();
        assert!(matches!(check_sealed(open.as_fd(), 4096), Err(SealError::Unsealed)));
        fs::fcntl_add_seals(&open, SealFlags::SHRINK | SealFlags::GROW).unwrap();
        assert!(matches!(check_sealed(open.as_fd(), 4096), Err(SealError::Unsealed)));

        let null = std::fs::File::open("/dev/null").unwrap();
        assert!(matches!(check_sealed(null.as_fd(), 0), Err(SealError::NotMemfd)));
    }

    #[test]
    fn huge_page_files_are_refused() {
        let flags = MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB;
        // A kernel without huge pages cannot make one.
        let Ok(huge) = fs::memfd_create("pinfold-test", flags) else { return };
        fs::fcntl_add_seals(&huge, SEALS).unwrap();
        assert!(matches!(check_sealed(huge.as_fd(), 0), Err(SealError::NotMemfd)));
    }

    #[test]
    fn sealing_goes_one_way() {
        let file = create_fixed("pinfold-test", 8192).unwrap();
        assert!(matches!(check_sealed(file.as_fd(), 8192), Err(SealError::Unsealed)));
        assert!(!refuses_writers(file.as_fd()));
        seal(file.as_fd(), true).unwrap();
        check_sealed(file.as_fd(), 8192).unwrap();
        seal(file.as_fd(), false).unwrap();
        if refuses_writers(file.as_fd()) {
            assert_eq!(rustix::io::pwrite(&file, b"x", 0), Err(Errno::PERM));
        }

        let open = create_fixed("pinfold-test", 8192).unwrap();
        seal(open.as_fd(), false).unwrap();
        check_sealed(open.as_fd(), 8192).unwrap();
        assert!(!refuses_writers(open.as_fd()));
        assert_eq!(rustix::io::pwrite(&open, b"x", 0), Ok(1));
    }

    #[test]
    fn a_file_without_writers_has_none() {
        use crate::mem::mapping::{ReadOnlyMapping, SharedMapping};
        let file = create_fixed("pinfold-test", 8192).unwrap();
        let writable = SharedMapping::map(file.as_fd(), 8192).unwrap();
        let before = ReadOnlyMapping::map_private(file.as_fd(), 8192, 1).unwrap();
        let denied = seal_against_all(file.as_fd());
        assert!(matches!(denied, Err(Failed { errno: Errno::BUSY, .. })), "{denied:?}");
        assert!(!has_no_writers(file.as_fd()));
        drop(writable);
        seal_against_all(file.as_fd()).unwrap();
        assert!(has_no_writers(file.as_fd()) && refuses_writers(file.as_fd()));
        check_sealed(file.as_fd(), 8192).unwrap();
        assert_eq!(rustix::io::pwrite(&file, b"x", 0), Err(Errno::PERM));
        assert!(SharedMapping::map(file.as_fd(), 8192).is_err());
        let hole = fs::FallocateFlags::PUNCH_HOLE | fs::FallocateFlags::KEEP_SIZE;
        assert_eq!(fs::fallocate(&file, hole, 0, 4096), Err(Errno::PERM));
        ReadOnlyMapping::map_private(file.as_fd(), 8192, 4 << 20).unwrap();
        before.populate(0..8192).unwrap();
        // The seal that leaves mappings as they are does not count.
        let file = create_fixed("pinfold-test", 8192).unwrap();
        seal(file.as_fd(), true).unwrap();
        assert!(!has_no_writers(file.as_fd()));
    }

    #[test]
    fn files_cannot_be_executed() {
        let flags = MemfdFlags::ALLOW_SEALING | MemfdFlags::NOEXEC_SEAL;
        if fs::memfd_create("pinfold-test", flags).is_err() {
            return; // Before Linux 6.3.
        }
        for file in [create_empty("pinfold-test"), create_sealed("pinfold-test", 4096)] {
            let file = file.unwrap();
            assert_eq!(fs::fstat(&file).unwrap().st_mode & 0o111, 0);
            assert_eq!(fs::fchmod(&file, Mode::from_raw_mode(0o700)), Err(Errno::PERM));
        }
    }

    #[test]
    fn writers_to_come_are_kept_out_where_the_kernel_can() {
        let open = create_empty("pinfold-test").unwrap();
        let can = fs::fcntl_add_seals(&open, SealFlags::FUTURE_WRITE).is_ok();
        let file = create_fixed("pinfold-test", 8192).unwrap();
        seal(file.as_fd(), true).unwrap();
        assert_eq!(refuses_writers(file.as_fd()), can);
    }

    #[test]
    fn impossible_sizes_are_errors() {
        assert!(create_sealed("pinfold-test", usize::MAX).is_err());
        assert!(create_sealed(&"n".repeat(300), 4096).is_err());
    }

    fn reopen(fd: impl AsFd) -> Result<u64, SealError> {
        let number = fd.as_fd().as_raw_fd() as u32;
        let (file, len) = open_sealed_of(std::process::id(), number)?;
        assert_eq!(identity(file.as_fd()).unwrap(), identity(fd.as_fd()).unwrap());
        assert!(rustix::io::pwrite(&file, b"x", 0).is_err());
        Ok(len)
    }

    /// An open of a descriptor that another process names can have effects there: only a memfd is
    /// opened.
    #[test]
    fn what_is_no_memfd_is_not_opened() {
        use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
        let name = format!("pinfold-test-{}", std::process::id());
        let pipe = std::path::Path::new("/dev/shm").join(&name);
        let plain = std::env::current_dir().unwrap().join(&name);
        let made = fs::mknodat(fs::CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).is_ok();
        std::fs::write(&plain, b"x").unwrap();
        let look = |path: &std::path::Path| {
            let held = fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).unwrap();
            let flags = CreateFlags::NONBLOCK | CreateFlags::CLOEXEC;
            let watch = inotify::init(flags).unwrap();
            inotify::add_watch(&watch, path, WatchFlags::OPEN).unwrap();
            assert!(matches!(reopen(&held), Err(SealError::NotMemfd)));
            assert_eq!(rustix::io::read(&watch, &mut [0; 64]), Err(Errno::AGAIN), "{path:?}");
        };
        if made {
            look(&pipe);
            std::fs::remove_file(&pipe).unwrap();
        }
        let held = std::fs::File::open(&plain).unwrap();
        if !is_on_tmpfs(&held).unwrap() {
            look(&plain);
        }
        std::fs::remove_file(&plain).unwrap();
    }

    #[test]
    fn only_sealed_files_are_opened_anew() {
        let file = create_sealed("pinfold-test", 8192).unwrap();
        assert_eq!(reopen(&file).unwrap(), 8192);
        let unsealed = create_fixed("pinfold-test", 8192).unwrap();
        assert!(matches!(reopen(&unsealed), Err(SealError::Unsealed)));
        // Opening a pipe without a writer would wait for one.
        let (pipe, _) = rustix::pipe::pipe().unwrap();
        assert!(matches!(reopen(&pipe), Err(SealError::NotMemfd)));
        let null = std::fs::File::open("/dev/null").unwrap();
        assert!(matches!(reopen(&null), Err(SealError::NotMemfd)));
        let text = std::fs::File::open("/proc/self/status").unwrap();
        assert!(matches!(reopen(&text), Err(SealError::NotMemfd)));
        assert!(matches!(open_sealed_of(std::process::id(), 1 << 30), Err(SealError::Os(_))));
    }
}
