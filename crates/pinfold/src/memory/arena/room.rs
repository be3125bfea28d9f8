//! The memory that the system has left for this process.
//!
//! The kernel answers want of memory in a page fault by killing a process, also where the fault is
//! one that `madvise` asked for. So the limits are looked at before memory is committed: the
//! machine's, and those of the memory control group of this process and of all its ancestors that
//! can be seen, in version 2 (`memory.max`, `memory.high`) and version 1 (`memory.limit_in_bytes`).
//!
//! Left to chance are memory that others take between the look and the commit, control groups above
//! the root of this process's view, and limits that are lowered later.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use pinfold_sys::refused::may_pass;

use crate::{Error, Result};

/// A part of every limit that is not used, for the needs of the kernel itself: one so-many-th, and
/// no more than so many bytes.
const MARGIN_PART: u64 = 32;
const MARGIN_BYTES_MAX: u64 = 16 << 20;

/// The least that is left below any limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    /// Bytes.
    pub left: u64,
    /// The limit's owner.
    pub whose: String,
}

/// # Errors
/// [`Error::NoMemory`] if so many more bytes would not fit.
pub(crate) fn check(bytes: u64) -> Result<()> {
    static VIEW: OnceLock<View> = OnceLock::new();
    let mounts = || fs::read_to_string("/proc/self/mountinfo");
    match with_view(&VIEW, mounts, View::room) {
        Some(Room { left, whose }) if left < bytes => {
            Err(Error::NoMemory { wanted: bytes, left, whose })
        }
        _ => Ok(()),
    }
}

/// The answer of `see` to the view that is known, or to the one in `mounts`, which is known from
/// then on. Mounts that cannot be read just now are as if there were none this once.
fn with_view<T>(
    known: &OnceLock<View>,
    mounts: impl FnOnce() -> io::Result<String>,
    see: impl FnOnce(&View) -> T,
) -> T {
    if let Some(view) = known.get() {
        return see(view);
    }
    let made = |text: &str| View::new(PathBuf::from("/proc"), text);
    match mounts() {
        Err(error) if may_pass(&error) => see(&made("")),
        text => see(known.get_or_init(|| made(&text.unwrap_or_default()))),
    }
}

/// The memory of this machine, bytes; `None` if it cannot be told.
pub(crate) fn total() -> Option<u64> {
    field(&read("/proc/meminfo".as_ref()), "MemTotal:").map(|kib| kib << 10)
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// The number behind `name` at the beginning of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// A mounted hierarchy of control groups.
#[derive(Debug, PartialEq, Eq)]
struct Mount {
    version: Version,
    /// The group that is seen at `point`.
    root: PathBuf,
    point: PathBuf,
}

/// The files in which this process finds its limits.
struct View {
    proc: PathBuf,
    mounts: Vec<Mount>,
}

impl View {
    fn new(proc: PathBuf, mountinfo: &str) -> View {
        View { proc, mounts: mountinfo.lines().filter_map(mount).collect() }
    }

    /// The least room there is; `None` if nothing can be told.
    fn room(&self) -> Option<Room> {
        let info = read(&self.proc.join("meminfo"));
        let machine = field(&info, "MemAvailable:").zip(field(&info, "MemTotal:"));
        let machine = machine.map(|(left, total)| {
            let left = (left << 10).saturating_sub(margin(total << 10));
            Room { left, whose: "the machine".to_owned() }
        });
        // Processes move between groups, so this is read every time.
        let own = read(&self.proc.join("self/cgroup"));
        let groups = own.lines().filter_map(group).flat_map(|(version, path)| {
            let mounts = self.mounts.iter().filter(move |mount| mount.version == version);
            mounts.filter_map(move |mount| mount.room_of(path))
        });
        groups.chain(machine).min_by_key(|room| room.left)
    }
}

impl Mount {
    /// The least room of a group and its ancestors.
    fn room_of(&self, path: &str) -> Option<Room> {
        // A path from outside this view begins with `..`; the mount point is then the best choice.
        let inside = Path::new(path).strip_prefix(&self.root).unwrap_or(Path::new(""));
        let inside = if path.contains("..") { Path::new("") } else { inside };
        let groups = inside.ancestors().map(|group| self.point.join(group));
        groups.filter_map(|group| self.room_in(&group)).min_by_key(|room| room.left)
    }

    /// The room of one group, if it has a limit.
    fn room_in(&self, group: &Path) -> Option<Room> {
        // "max" is no number, and version 1 has a huge one for no limit.
        let number = |file: &str| read(&group.join(file)).trim().parse::<u64>().ok();
        let (limits, usage, cached): (&[&str], _, _) = match self.version {
            Version::Two => (
                &["memory.max", "memory.high"],
                "memory.current",
                ["active_file ", "inactive_file "],
            ),
            Version::One => (
                &["memory.limit_in_bytes"],
                "memory.usage_in_bytes",
                ["total_active_file ", "total_inactive_file "],
            ),
        };
        let limit = limits.iter().filter_map(|file| number(file)).min()?;
        if limit > 1 << 60 {
            return None;
        }
        // Cached files go when memory is short: they count as used, but are subtracted.
        let stat = read(&group.join("memory.stat"));
        let cached: u64 = cached.iter().filter_map(|name| field(&stat, name)).sum();
        let used = number(usage)?.saturating_sub(cached);
        let left = limit.saturating_sub(used).saturating_sub(margin(limit));
        Some(Room { left, whose: format!("the memory control group {}", group.display()) })
    }
}

fn margin(limit: u64) -> u64 {
    (limit / MARGIN_PART).min(MARGIN_BYTES_MAX)
}

/// A line of `/proc/self/mountinfo`, if it is about control groups of memory.
fn mount(line: &str) -> Option<Mount> {
    let (place, kind) = line.split_once(" - ")?;
    let mut kind = kind.split(' ');
    let version = match kind.next()? {
        "cgroup2" => Version::Two,
        "cgroup" if kind.nth(1)?.split(',').any(|option| option == "memory") => Version::One,
        _ => return None,
    };
    let mut place = place.split(' ').skip(3);
    let (root, point) = (place.next()?, place.next()?);
    Some(Mount { version, root: root.into(), point: point.into() })
}

/// A line of `/proc/self/cgroup`, if it is about memory.
fn group(line: &str) -> Option<(Version, &str)> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (controllers, path) = (parts.next()?, parts.next()?);
    if controllers.is_empty() {
        return Some((Version::Two, path));
    }
    controllers.split(',').any(|name| name == "memory").then_some((Version::One, path))
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn mounts_that_cannot_be_read_now_are_read_later() {
        let known = OnceLock::new();
        let count = |view: &View| view.mounts.len();
        let starved = || Err(io::Error::from_raw_os_error(24));
        assert_eq!(with_view(&known, starved, count), 0);
        let mounts = "29 23 0:26 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw\n";
        assert_eq!(with_view(&known, || Ok(mounts.to_owned()), count), 1);
        assert_eq!(with_view(&known, starved, count), 1);
        // Where there is no such file there will be none.
        let known = OnceLock::new();
        assert_eq!(with_view(&known, || Err(io::ErrorKind::NotFound.into()), count), 0);
        assert_eq!(with_view(&known, || unreachable!(), count), 0);
    }

    /// A machine with 8 GiB, and groups to be filled in.
    struct Machine(TempDir);

    impl Machine {
        fn new(own: &str) -> Machine {
            let machine = Machine(tempfile::tempdir().unwrap());
            machine.write("proc/meminfo", "MemTotal: 8388608 kB\nMemAvailable: 4194304 kB\n");
            machine.write("proc/self/cgroup", own);
            machine
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn room(&self, mountinfo: &str) -> Option<Room> {
            let point = self.0.path().display().to_string();
            let mountinfo = mountinfo.replace('@', &point);
            let room = View::new(self.0.path().join("proc"), &mountinfo).room()?;
            Some(Room { whose: room.whose.replace(&point, ""), ..room })
        }
    }

    const TWO: &str = "25 1 0:21 / / rw - ext4 /dev/vda rw\n\
                       31 23 0:26 / @/two rw,nosuid shared:4 - cgroup2 cgroup2 rw\n";

    #[test]
    fn without_groups_the_machine_counts() {
        let machine = Machine::new("0::/\n");
        let room = machine.room(TWO).unwrap();
        assert_eq!(room, Room { left: (4096 - 16) * MIB, whose: "the machine".to_owned() });
        assert_eq!(machine.room(""), Some(room));
        assert_eq!(Machine(tempfile::tempdir().unwrap()).room(TWO), None);
    }

    #[test]
    fn the_tightest_ancestor_counts() {
        let machine = Machine::new("0::/a/b\n");
        machine.write("two/a/b/memory.max", "max\n");
        machine.write("two/a/b/memory.high", "max\n");
        machine.write("two/a/b/memory.current", "1048576\n");
        assert_eq!(machine.room(TWO).unwrap().whose, "the machine");
        machine.write("two/a/memory.max", &format!("{}\n", 320 * MIB));
        machine.write("two/a/memory.current", &format!("{}\n", 300 * MIB));
        let stat = format!("anon 7\nactive_file {}\ninactive_file {}\n", 30 * MIB, 10 * MIB);
        machine.write("two/a/memory.stat", &stat);
        let left = (320 - 300 + 40 - 10) * MIB;
        let whose = "the memory control group /two/a".to_owned();
        assert_eq!(machine.room(TWO), Some(Room { left, whose }));
        machine.write("two/a/b/memory.high", "2097152\n");
        let room = machine.room(TWO).unwrap();
        assert_eq!(room.left, MIB - 2 * MIB / 32);
        // Beyond the limit is not below 0.
        machine.write("two/a/b/memory.current", "9999999\n");
        assert_eq!(machine.room(TWO).unwrap().left, 0);
    }

    #[test]
    fn a_container_sees_its_own_group() {
        // Version 1 without a name space of its own: the path is the host's, the mount the group's.
        let machine = Machine::new("7:cpu,memory:/docker/abc\n3:cpuset:/docker/abc\n0::/x\n");
        let mounts = "33 31 0:30 /docker/abc @/memory rw master:1 - cgroup cgroup rw,memory\n";
        machine.write("memory/memory.limit_in_bytes", &(64 * MIB).to_string());
        machine.write("memory/memory.usage_in_bytes", &(10 * MIB).to_string());
        machine.write("memory/memory.stat", "total_inactive_file 2097152\n");
        let room = machine.room(mounts).unwrap();
        assert_eq!(room.left, (64 - 10 + 2 - 2) * MIB);
        machine.write("memory/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(machine.room(mounts).unwrap().whose, "the machine");
        // A group outside the view: the groups that can be seen are better than nothing.
        let machine = Machine::new("0::/../other\n");
        machine.write("two/memory.max", "1048576");
        machine.write("two/memory.current", "0");
        assert_eq!(machine.room(TWO).unwrap().left, MIB - MIB / 32);
    }

    #[test]
    fn this_machine_has_some() {
        check(4096).unwrap();
        let total = total().unwrap();
        let error = check(2 * total).unwrap_err();
        assert!(matches!(error, Error::NoMemory { wanted, .. } if wanted == 2 * total));
    }
}
