//! The control groups that this process is in, and all above them: each limits it.
//!
//! Version 2 has one tree; version 1 one for each controller, and both may be there at once. The
//! mounts decide which part of the trees can be seen here: limits above that are unknown.

use std::path::{Path, PathBuf};

use super::{Root, field};

/// One group and its limits; `None` for a limit that is not set.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Group {
    /// The directory of its files.
    pub(crate) directory: PathBuf,
    /// The version of control groups: 1 or 2.
    pub(crate) version: u8,
    pub(crate) memory_max: Option<u64>,
    /// Beyond this many bytes its processes are slowed down.
    pub(crate) memory_high: Option<u64>,
    /// Bytes in use that dropping caches cannot free.
    pub(crate) memory_used: Option<u64>,
    pub(crate) pids_max: Option<u64>,
    pub(crate) pids_used: Option<u64>,
    /// Processors' worth of time.
    pub(crate) cpus: Option<f64>,
}

/// All that apply, innermost first in each tree.
#[derive(Clone, Debug, Default)]
pub(crate) struct Groups {
    pub(crate) all: Vec<Group>,
    /// Names of this process's own groups.
    paths: Vec<String>,
}

/// The value that stands for no limit in version 1: as many pages as fit. No real limit is as high.
const V1_UNLIMITED: u64 = 1 << 60;

impl Groups {
    pub(super) fn read(root: Root<'_>) -> Groups {
        let own = root.text("/proc/self/cgroup").unwrap_or_default();
        let mounts = root.text("/proc/self/mountinfo").unwrap_or_default();
        let mut groups = Groups::default();
        for line in own.lines() {
            let mut parts = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
            groups.paths.push(path.to_owned());
            let Some(mount) = mounts.lines().find_map(|line| Mount::of(line, controllers)) else {
                continue;
            };
            groups.all.extend(mount.directories(path).map(|directory| {
                if controllers.is_empty() { v2(root, directory) } else { v1(root, directory) }
            }));
        }
        groups.all.retain(|group| {
            let Group { memory_max, memory_high, pids_max, cpus, .. } = group;
            memory_max.is_some() || memory_high.is_some() || pids_max.is_some() || cpus.is_some()
        });
        groups
    }

    /// The systemd service that the process belongs to, if to one.
    pub(super) fn unit(&self) -> Option<String> {
        let name = |path: &String| {
            let mut parts = path.rsplit('/');
            parts.find(|part| part.ends_with(".service")).map(str::to_owned)
        };
        // A user's manager is no service to be changed.
        self.paths.iter().find_map(name).filter(|unit| !unit.starts_with("user@"))
    }

    /// Processors' worth of time that all groups together allow.
    pub(crate) fn cpus(&self) -> Option<f64> {
        self.all.iter().filter_map(|group| group.cpus).min_by(f64::total_cmp)
    }
}

/// A mount of a tree: the group that it begins with, and its mount point.
struct Mount {
    root: PathBuf,
    point: PathBuf,
}

impl Mount {
    /// The mount if `line` of `mountinfo` is about the tree with these controllers; none of them
    /// means version 2.
    fn of(line: &str, controllers: &str) -> Option<Mount> {
        let (before, after) = line.split_once(" - ")?;
        let mut after = after.split(' ');
        let (kind, options) = (after.next()?, after.nth(1)?);
        let first = controllers.split(',').next()?;
        let is_it = match controllers {
            "" => kind == "cgroup2",
            _ => kind == "cgroup" && options.split(',').any(|option| option == first),
        };
        let mut before = before.split(' ').skip(3);
        let (root, point) = (before.next()?.into(), before.next()?.into());
        is_it.then_some(Mount { root, point })
    }

    /// The directories of the group called `path` and all above it that can be seen.
    fn directories(&self, path: &str) -> impl Iterator<Item = PathBuf> {
        // For a group outside of the mount, the top of the mount still applies.
        let below = Path::new(path).strip_prefix(&self.root).unwrap_or(Path::new(""));
        let below = if below.starts_with("..") { Path::new("") } else { below };
        let all: Vec<PathBuf> = below.ancestors().map(|part| self.point.join(part)).collect();
        all.into_iter()
    }
}

struct Files<'a> {
    root: Root<'a>,
    directory: String,
}

impl Files<'_> {
    fn text(&self, file: &str) -> Option<String> {
        self.root.text(&format!("{}/{file}", self.directory))
    }

    /// A number; `None` for `max`.
    fn number(&self, file: &str) -> Option<u64> {
        self.text(file)?.parse().ok()
    }

    /// `used` without the bytes that `cached` in `memory.stat` counts.
    fn memory(&self, used: &str, cached: &str) -> Option<u64> {
        let used = self.number(used)?;
        let stat = self.text("memory.stat").unwrap_or_default().replace(' ', ":");
        let cached = field(&stat, cached).and_then(|bytes| bytes.parse().ok());
        Some(used.saturating_sub(cached.unwrap_or(0)))
    }
}

fn v2(root: Root<'_>, directory: PathBuf) -> Group {
    let files = Files { root, directory: directory.display().to_string() };
    let cpus = files.text("cpu.max").and_then(|text| {
        let (quota, period) = text.split_once(' ')?;
        share(quota.parse().ok()?, period.parse().ok()?)
    });
    Group {
        version: 2,
        memory_max: files.number("memory.max"),
        memory_high: files.number("memory.high"),
        memory_used: files.memory("memory.current", "inactive_file"),
        pids_max: files.number("pids.max"),
        pids_used: files.number("pids.current"),
        cpus,
        directory,
    }
}

fn v1(root: Root<'_>, directory: PathBuf) -> Group {
    let files = Files { root, directory: directory.display().to_string() };
    let quota = files.text("cpu.cfs_quota_us").and_then(|text| text.parse().ok());
    let period = files.number("cpu.cfs_period_us");
    Group {
        version: 1,
        memory_max: files.number("memory.limit_in_bytes").filter(|&max| max < V1_UNLIMITED),
        memory_high: None,
        memory_used: files.memory("memory.usage_in_bytes", "total_inactive_file"),
        pids_max: files.number("pids.max"),
        pids_used: files.number("pids.current"),
        cpus: quota.zip(period).and_then(|(quota, period)| share(quota, period)),
        directory,
    }
}

/// Processors' worth of time; `None` for a quota below 0.
fn share(quota: i64, period: u64) -> Option<f64> {
    (quota > 0 && period > 0).then(|| quota as f64 / period as f64)
}

#[cfg(test)]
mod tests {
    use super::{super::tests::model, *};

    const V2: &str =
        "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate";

    #[test]
    fn all_above_count() {
        let root = model(&[
            ("/proc/self/cgroup", "0::/system.slice/box.service/worker\n"),
            ("/proc/self/mountinfo", V2),
            ("/sys/fs/cgroup/system.slice/box.service/worker/memory.max", "max\n"),
            ("/sys/fs/cgroup/system.slice/box.service/worker/cpu.max", "max 100000\n"),
            ("/sys/fs/cgroup/system.slice/box.service/memory.max", "1048576\n"),
            ("/sys/fs/cgroup/system.slice/box.service/memory.high", "524288\n"),
            ("/sys/fs/cgroup/system.slice/box.service/memory.current", "1000000\n"),
            (
                "/sys/fs/cgroup/system.slice/box.service/memory.stat",
                "anon 5\ninactive_file 400000\n",
            ),
            ("/sys/fs/cgroup/system.slice/pids.max", "100\n"),
            ("/sys/fs/cgroup/system.slice/pids.current", "90\n"),
            ("/sys/fs/cgroup/system.slice/cpu.max", "150000 100000\n"),
        ]);
        let groups = Groups::read(Root(root.path()));
        assert_eq!(groups.unit().as_deref(), Some("box.service"));
        let [service, slice] = &groups.all[..] else { panic!("{groups:?}") };
        assert_eq!(service.directory, Path::new("/sys/fs/cgroup/system.slice/box.service"));
        assert_eq!((service.memory_max, service.memory_high), (Some(1 << 20), Some(1 << 19)));
        assert_eq!(service.memory_used, Some(600_000));
        assert_eq!((slice.pids_max, slice.pids_used), (Some(100), Some(90)));
        assert_eq!(groups.cpus(), Some(1.5));
    }

    #[test]
    fn version_1_has_many_trees() {
        let root = model(&[
            ("/proc/self/cgroup", "4:memory:/docker/ab\n3:cpu,cpuacct:/docker/ab\n0::/\n"),
            (
                "/proc/self/mountinfo",
                "36 31 0:33 /docker/ab /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                 37 31 0:34 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n",
            ),
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n"),
            ("/sys/fs/cgroup/memory/memory.usage_in_bytes", "1000\n"),
            ("/sys/fs/cgroup/memory/memory.stat", "cache 7\ntotal_inactive_file 400\n"),
            ("/sys/fs/cgroup/cpu/docker/ab/cpu.cfs_quota_us", "-1\n"),
            ("/sys/fs/cgroup/cpu/docker/ab/cpu.cfs_period_us", "100000\n"),
            ("/sys/fs/cgroup/cpu/docker/cpu.cfs_quota_us", "50000\n"),
            ("/sys/fs/cgroup/cpu/docker/cpu.cfs_period_us", "100000\n"),
        ]);
        let groups = Groups::read(Root(root.path()));
        assert_eq!(groups.all.len(), 2, "{groups:?}");
        assert_eq!(groups.all[0].memory_max, Some(1 << 30));
        assert_eq!(groups.all[0].memory_used, Some(600));
        assert_eq!(groups.cpus(), Some(0.5));
        assert_eq!(groups.unit(), None);
    }

    #[test]
    fn no_limit_is_none() {
        let root = model(&[
            ("/proc/self/cgroup", "4:memory:/\n0::/../../x\nnonsense\n"),
            ("/proc/self/mountinfo", "36 31 0:33 / /m rw - cgroup cgroup rw,memory\nnonsense\n"),
            ("/m/memory.limit_in_bytes", "9223372036854771712\n"),
        ]);
        assert_eq!(Groups::read(Root(root.path())).all, []);
    }
}
