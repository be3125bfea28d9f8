//! Snapshots of a process's descriptors and mappings, to be compared before and after.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

/// The descriptors and shared mappings of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Baseline {
    descriptors: Vec<String>,
    segments: usize,
}

impl Baseline {
    /// The present descriptors and mappings of this process.
    pub fn now() -> Baseline {
        let mut descriptors: Vec<String> = fs::read_dir("/proc/self/fd")
            .expect("/proc")
            .filter_map(|entry| {
                let entry = entry.ok()?;
                let target = fs::read_link(entry.path()).ok()?;
                // The listing's own descriptor is not there any more, or not always.
                let target = target.to_string_lossy().into_owned();
                // Nor are pipes counted: pairs make some to ring by when they need them.
                (!target.ends_with("/fd") && !target.starts_with("pipe:"))
                    .then(|| format!("{target} {:?}", entry.file_name()))
            })
            .collect();
        descriptors.sort();
        Baseline { descriptors, segments: segments().len() }
    }

    /// Open descriptors.
    pub fn descriptors(&self) -> usize {
        self.descriptors.len()
    }

    /// Mapped segments.
    pub fn segments(&self) -> usize {
        self.segments
    }

    /// Waits until the process holds no more and no less than this, as far as numbers go.
    ///
    /// # Panics
    /// If it does not within `patience`.
    #[track_caller]
    pub fn returns(&self, patience: Duration) {
        let end = Instant::now() + patience;
        loop {
            let now = Baseline::now();
            if now.descriptors.len() == self.descriptors.len() && now.segments == self.segments {
                return;
            }
            let maps = mapped_names();
            assert!(Instant::now() < end, "left behind: before {self:#?}, now {now:#?}: {maps:#?}");
            thread::sleep(Duration::from_millis(2));
        }
    }
}

/// A mapping of a pair's shared memory in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// Its first address.
    pub at: usize,
    /// Bytes.
    pub len: usize,
}

/// The lines of `/proc/self/maps` that count as segments.
fn mapped_names() -> Vec<String> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    maps.lines().filter(|line| line.contains("/memfd:pinfold")).map(str::to_owned).collect()
}

/// Every segment that this process has mapped, and every extent of an arena.
pub fn segments() -> Vec<Mapped> {
    mapped(|line| line.contains("/memfd:pinfold") && !line.contains("-status"))
}

/// Every extent of an arena that this process has mapped, its own and others'.
pub fn arenas() -> Vec<Mapped> {
    mapped(|line| line.contains("/memfd:pinfold-arena"))
}

/// Every part of an arena, its own or a peer's, that this process can write.
pub fn writable_arenas() -> Vec<Mapped> {
    mapped(|line| line.contains("/memfd:pinfold-arena") && line.contains(" rw"))
}

fn mapped(wanted: impl Fn(&&str) -> bool) -> Vec<Mapped> {
    let maps = fs::read_to_string("/proc/self/maps").expect("/proc");
    let found = maps.lines().filter(wanted).filter_map(|line| {
        let (from, to) = line.split_whitespace().next()?.split_once('-')?;
        let at = usize::from_str_radix(from, 16).ok()?;
        Some(Mapped { at, len: usize::from_str_radix(to, 16).ok()? - at })
    });
    found.collect()
}

/// A line of `/proc/self/status`, bytes: `VmRSS`, `VmHWM`, `VmSize`.
pub fn status_bytes(field: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("/proc");
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or_else(|| panic!("no {field} in /proc/self/status")) << 10
}

/// A line of `/proc/meminfo`, bytes.
pub fn meminfo_bytes(field: &str) -> u64 {
    let info = fs::read_to_string("/proc/meminfo").expect("/proc");
    let line = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) << 10
}

/// The processor time this process has used.
pub fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
