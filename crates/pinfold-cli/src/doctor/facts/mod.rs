//! The system's statements about itself. Everything here may be missing: a container may hide
//! `/proc` or `/sys`, whole or in part. A missing fact is `None`, and nothing is concluded from it.
//!
//! - [`user`]: the identity and the permissions of this process.
//! - [`container`]: the container that it runs in, which decides which commands change anything.
//! - [`cgroup`]: limits of the groups above it.
//! - [`cores`]: the processors.

pub(crate) mod cgroup;
pub(crate) mod container;
pub(crate) mod cores;
pub(crate) mod user;

use std::{
    fs,
    path::{Path, PathBuf},
};

use self::{
    cgroup::Groups,
    container::{Container, container},
    cores::Cores,
    user::User,
};

/// Everything there is to know.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    pub(crate) user: User,
    pub(crate) container: Container,
    /// The systemd service that this process is a part of.
    pub(crate) unit: Option<String>,
    pub(crate) groups: Groups,
    pub(crate) cores: Cores,
    /// `6.18.1`.
    pub(crate) kernel: Option<String>,
    pub(crate) processor: Option<String>,
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) hypervisor: Option<String>,
    pub(crate) features: Vec<&'static str>,
    pub(crate) settings: Settings,
    /// True if settings of the kernel can be changed from here.
    pub(crate) sysctl_is_writable: bool,
    pub(crate) used: Used,
}

/// Settings of the kernel.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// `kernel.yama.ptrace_scope`.
    pub(crate) ptrace_scope: Option<u64>,
    /// SELinux's `deny_ptrace`.
    pub(crate) deny_ptrace: Option<bool>,
    pub(crate) memfd_noexec: Option<u64>,
    pub(crate) unprivileged_userfaultfd: Option<u64>,
    pub(crate) io_uring_disabled: Option<u64>,
    pub(crate) io_uring_group: Option<i64>,
    /// The choice in force: `never`, `advise`, ...
    pub(crate) shmem_enabled: Option<String>,
    /// This process may have huge pages at all: not so after `PR_SET_THP_DISABLE`.
    pub(crate) thp_enabled: Option<bool>,
    pub(crate) somaxconn: Option<u64>,
    pub(crate) file_max: Option<u64>,
    pub(crate) max_map_count: Option<u64>,
}

/// The used part of resources that are limited.
#[derive(Clone, Debug, Default)]
pub(crate) struct Used {
    /// Descriptors of this process.
    pub(crate) descriptors: Option<u64>,
    /// Of the whole system.
    pub(crate) files: Option<u64>,
    /// Bytes of address space of this process.
    pub(crate) address_space: Option<u64>,
    /// Mappings of this process.
    pub(crate) maps: Option<u64>,
}

/// The root to look below: `/`, or a model of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Root<'a>(pub(crate) &'a Path);

impl Root<'_> {
    /// The place of a path of the system.
    pub(crate) fn at(self, path: &str) -> PathBuf {
        self.0.join(path.trim_start_matches('/'))
    }

    /// A file's text, without white space around it.
    pub(crate) fn text(self, path: &str) -> Option<String> {
        let bytes = fs::read(self.at(path)).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// A file's number.
    pub(crate) fn number(self, path: &str) -> Option<u64> {
        self.text(path)?.parse().ok()
    }

    /// Returns whether `path` exists.
    pub(crate) fn has(self, path: &str) -> bool {
        self.at(path).symlink_metadata().is_ok()
    }
}

impl Facts {
    /// Looks around below `root`.
    pub(crate) fn read(root: &Path) -> Facts {
        let root = Root(root);
        let cpuinfo = root.text("/proc/cpuinfo").unwrap_or_default();
        let meminfo = root.text("/proc/meminfo").unwrap_or_default();
        let groups = Groups::read(root);
        Facts {
            user: User::read(root),
            container: container(root),
            unit: groups.unit(),
            groups,
            cores: Cores::read(root),
            kernel: root.text("/proc/sys/kernel/osrelease"),
            processor: field(&cpuinfo, "model name").map(str::to_owned),
            memory_bytes: field(&meminfo, "MemTotal").and_then(kib),
            hypervisor: pinfold_sys::cpu::identify::hypervisor(),
            features: pinfold_sys::cpu::identify::features(),
            settings: Settings::read(root),
            sysctl_is_writable: fs::OpenOptions::new()
                .write(true)
                .open(root.at("/proc/sys/kernel/pid_max"))
                .is_ok(),
            used: Used::read(root),
        }
    }
}

impl Settings {
    fn read(root: Root<'_>) -> Settings {
        let sysctl = |name: &str| root.number(&format!("/proc/sys/{name}"));
        Settings {
            ptrace_scope: sysctl("kernel/yama/ptrace_scope"),
            deny_ptrace: root
                .text("/sys/fs/selinux/booleans/deny_ptrace")
                .map(|text| text.starts_with('1')),
            memfd_noexec: sysctl("vm/memfd_noexec"),
            unprivileged_userfaultfd: sysctl("vm/unprivileged_userfaultfd"),
            io_uring_disabled: sysctl("kernel/io_uring_disabled"),
            io_uring_group: root
                .text("/proc/sys/kernel/io_uring_group")
                .and_then(|text| text.parse().ok()),
            shmem_enabled: root
                .text("/sys/kernel/mm/transparent_hugepage/shmem_enabled")
                .and_then(|text| chosen(&text)),
            thp_enabled: root
                .text("/proc/self/status")
                .and_then(|text| field(&text, "THP_enabled").map(|word| word == "1")),
            somaxconn: sysctl("net/core/somaxconn"),
            file_max: sysctl("fs/file-max"),
            max_map_count: sysctl("vm/max_map_count"),
        }
    }
}

impl Used {
    fn read(root: Root<'_>) -> Used {
        let files = root.text("/proc/sys/fs/file-nr");
        let status = root.text("/proc/self/status").unwrap_or_default();
        let first = |text: Option<String>| text?.split_whitespace().next()?.parse::<u64>().ok();
        Used {
            // The listing has a descriptor of its own open.
            descriptors: fs::read_dir(root.at("/proc/self/fd"))
                .ok()
                .map(|all| (all.count() as u64).saturating_sub(1)),
            files: first(files),
            address_space: field(&status, "VmSize").and_then(kib),
            maps: root.text("/proc/self/maps").map(|maps| maps.lines().count() as u64),
        }
    }
}

/// The word in brackets.
fn chosen(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    Some(rest.split_once(']')?.0.to_owned())
}

/// The value of the first line that begins with `name` and a colon.
pub(crate) fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim())
}

fn kib(text: &str) -> Option<u64> {
    let kib: u64 = text.trim_end_matches("kB").trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A model of a system: files with texts.
    pub(crate) fn model(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path.trim_start_matches('/'));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn nothing_is_known_where_nothing_is_said() {
        let root = model(&[]);
        let facts = Facts::read(root.path());
        assert!(facts.kernel.is_none() && facts.memory_bytes.is_none() && facts.unit.is_none());
        assert!(facts.settings.ptrace_scope.is_none() && facts.used.descriptors.is_none());
        assert!(facts.user.capabilities.is_none() && facts.groups.all.is_empty());
        assert_eq!(facts.container, Container::None);
    }

    #[test]
    fn settings_are_read() {
        let root = model(&[
            ("/proc/sys/kernel/yama/ptrace_scope", "1\n"),
            ("/proc/sys/kernel/io_uring_group", "-1\n"),
            ("/proc/sys/fs/file-nr", "1344\t0\t9223372036854775807\n"),
            ("/proc/sys/fs/file-max", "9223372036854775807\n"),
            ("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "always [never] deny force\n"),
            ("/proc/meminfo", "MemTotal:       24660000 kB\nMemFree: 1 kB\n"),
            ("/sys/fs/selinux/booleans/deny_ptrace", "1 1"),
            ("/proc/self/status", "Name:\tx\nTHP_enabled:\t0\n"),
        ]);
        let facts = Facts::read(root.path());
        assert_eq!(facts.settings.ptrace_scope, Some(1));
        assert_eq!(facts.settings.io_uring_group, Some(-1));
        assert_eq!(facts.settings.shmem_enabled.as_deref(), Some("never"));
        assert_eq!(facts.settings.deny_ptrace, Some(true));
        assert_eq!(facts.settings.thp_enabled, Some(false));
        assert_eq!(facts.used.files, Some(1344));
        assert_eq!(facts.settings.file_max, Some(i64::MAX as u64));
        assert_eq!(facts.memory_bytes, Some(24_660_000 << 10));
    }
}
