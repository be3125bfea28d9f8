//! Memory control groups, where this user may make them.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

/// A memory control group for the processes of one test. Removed when dropped, so its processes
/// must have ended by then.
pub struct Group {
    path: PathBuf,
    version: u32,
}

impl Group {
    /// A group below that of this process whose members may take `bytes` of memory together, and
    /// no swap.
    ///
    /// # Errors
    /// The reason why there can be none.
    pub fn new(bytes: u64) -> io::Result<Group> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let (parent, version) = own()?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("pinfold-test-{}-{number}", std::process::id()));
        fs::create_dir(&path)?;
        // From here on dropping it cleans up.
        let group = Group { path, version };
        let (limit, swap) = match version {
            1 => ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"),
            _ => ("memory.max", "memory.swap.max"),
        };
        fs::write(group.path.join(limit), bytes.to_string())?;
        // Systems without swap have no such file. Version 1 counts memory in it.
        let _ = fs::write(group.path.join(swap), if version == 1 { bytes } else { 0 }.to_string());
        Ok(group)
    }

    /// Moves a process into it.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn add(&self, pid: u32) -> io::Result<()> {
        fs::write(self.path.join("cgroup.procs"), pid.to_string())
    }

    /// How many of its processes were killed because memory ran out.
    pub fn kills(&self) -> u64 {
        let file = if self.version == 1 { "memory.oom_control" } else { "memory.events" };
        let text = fs::read_to_string(self.path.join(file)).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        line.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
    }

    /// The group's name in errors.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.path);
    }
}

/// The memory control group of this process, and the version of its kind.
fn own() -> io::Result<(PathBuf, u32)> {
    let groups = fs::read_to_string("/proc/self/cgroup")?;
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let own = |wanted: &dyn Fn(&str) -> bool| {
        groups.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, path) = (parts.next()?, parts.next()?);
            wanted(controllers).then(|| path.to_owned())
        })
    };
    let place = |kind: &str, option: &str, path: &str| {
        mounts.lines().find_map(|line| {
            let (place, what) = line.split_once(" - ")?;
            let mut what = what.split(' ');
            let right = what.next()? == kind && what.nth(1)?.contains(option);
            let mut place = place.split(' ').skip(3);
            let (root, point) = (place.next()?, place.next()?);
            let inside = Path::new(path).strip_prefix(root).ok()?;
            right.then(|| Path::new(point).join(inside))
        })
    };
    let memory = |controllers: &str| controllers.split(',').any(|name| name == "memory");
    let one = own(&memory).and_then(|path| place("cgroup", "memory", &path));
    if let Some(path) = one {
        return Ok((path, 1));
    }
    let two = own(&str::is_empty).and_then(|path| place("cgroup2", "", &path));
    let path = two.ok_or_else(|| io::Error::other("no memory control groups are mounted"))?;
    // A group with processes in it gives no controllers to groups below it; the root does.
    let able = path.ancestors().find(|group| {
        let given = fs::read_to_string(group.join("cgroup.subtree_control"));
        given.is_ok_and(|given| given.split_whitespace().any(|name| name == "memory"))
    });
    let able = able.ok_or_else(|| io::Error::other("no group gives out the memory controller"))?;
    Ok((able.to_owned(), 2))
}
