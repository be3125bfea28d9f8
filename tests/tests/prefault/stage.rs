#![allow(unsafe_code)]
//! Two ends, and memory of every kind to receive into.
// Invariant: mapped memory is the test's own, and reached by one receive at a time, or by the
// kernel alone.

use std::{
    fs::{self, File},
    io,
    os::{fd::AsRawFd, unix::fs::FileExt},
    ptr, slice, thread,
};

use pinfold::{Builder, Endpoint, Path, PathSet, PeerId, Progress, Received};
use pinfold_tests::{Args, pair, role};

pub const PAGE: usize = 4096;

/// The ends of a pair.
pub struct Ends {
    pub a: Endpoint,
    pub from_b: PeerId,
    pub b: Endpoint,
    pub to_a: PeerId,
}

impl Ends {
    pub fn meet(args: &Args) -> Ends {
        let way = if args.has("way") { args.text("way") } else { "cma" };
        let dedicated = args.has("progress") && args.text("progress") == "dedicated";
        let builder = |drives: bool| {
            let mut paths = PathSet::all();
            if way == "inline,eager" {
                paths = PathSet::only(&[Path::Inline, Path::Eager]);
            }
            let builder = Endpoint::builder().paths(paths).local_shortcut(false);
            if drives { builder.progress(Progress::Dedicated) } else { builder }
        };
        let prepares = |builder: Builder| match args.has("prepares") {
            true => builder.prepare_receives(args.number("prepares")),
            false => builder,
        };
        let (ours, theirs) = (prepares(builder(dedicated)), builder(false));
        let (a, from_b, b, to_a) = if way == "tcp" {
            let (a, b) = (ours.listen("tcp:127.0.0.1:0").build().unwrap(), theirs.build().unwrap());
            let address = a.listens_at().unwrap();
            let (from_b, to_a) = thread::scope(|scope| {
                let there = scope.spawn(|| b.connect(&address).unwrap());
                (a.accept().unwrap(), there.join().unwrap())
            });
            (a, from_b, b, to_a)
        } else {
            pair("ahead", ours, theirs)
        };
        Ends { a, from_b, b, to_a }
    }

    /// Has the endpoint idle as often as it takes for all prefaulting.
    pub fn idle(&self) {
        (0..1000).for_each(|_| _ = self.a.progress().unwrap());
    }

    /// Receives `message` into `memory`, once nothing more is to be done and `before` was run.
    pub fn receive(&self, memory: &mut [u8], message: &[u8], before: impl FnOnce()) -> Received {
        self.a.scope(|scope| {
            let receive = scope.recv_into(self.from_b, 1, memory).unwrap();
            self.idle();
            before();
            thread::scope(|threads| {
                let sends = threads.spawn(|| self.b.send(self.to_a, 1, message).unwrap());
                let received = receive.wait().0.unwrap();
                sends.join().unwrap();
                received
            })
        })
    }
}

/// Memory of the test's own that is never unmapped.
#[derive(Clone, Copy)]
pub struct Area {
    pub at: usize,
    pub len: usize,
}

impl Area {
    pub fn map(len: usize, flags: libc::c_int, file: Option<&File>) -> Area {
        let (protection, fd) =
            (libc::PROT_READ | libc::PROT_WRITE, file.map_or(-1, AsRawFd::as_raw_fd));
        // SAFETY: new memory.
        let at = unsafe {
            let at =
                libc::mmap(ptr::null_mut(), len, protection, flags | libc::MAP_NORESERVE, fd, 0);
            assert!(at != libc::MAP_FAILED, "{}", io::Error::last_os_error());
            // No page is to come with its neighbours.
            libc::madvise(at, len, libc::MADV_NOHUGEPAGE);
            at.expose_provenance()
        };
        Area { at, len }
    }

    pub fn fresh(len: usize) -> Area {
        Area::map(len, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, None)
    }

    #[allow(clippy::mut_from_ref, reason = "one receive at a time has it")]
    pub fn bytes(&self) -> &'static mut [u8] {
        // SAFETY: mapped for as long as the process lives, and used by one at a time.
        unsafe { slice::from_raw_parts_mut(ptr::with_exposed_provenance_mut(self.at), self.len) }
    }

    pub fn part(self, at: usize, len: usize) -> Area {
        Area { at: self.at + at, len }
    }

    pub fn protect(self, protection: libc::c_int) {
        let at = ptr::with_exposed_provenance_mut(self.at);
        // SAFETY: the test's own, and not looked at meanwhile.
        assert_eq!(unsafe { libc::mprotect(at, self.len, protection) }, 0);
    }

    /// Pages that are mapped, and those of them that are this process's alone.
    pub fn pages(self) -> (usize, usize) {
        let mut states = vec![0u8; self.len / PAGE * 8];
        let file = File::open("/proc/self/pagemap").unwrap();
        file.read_exact_at(&mut states, (self.at / PAGE * 8) as u64).unwrap();
        let states = states.chunks_exact(8).map(|it| u64::from_ne_bytes(it.try_into().unwrap()));
        states.fold((0, 0), |(there, own), state| {
            let is_there = state >> 63 & 1;
            (there + is_there as usize, own + (is_there & state >> 56 & 1) as usize)
        })
    }
}

/// Faults of this process so far, of any kind.
pub fn faults_so_far() -> i64 {
    // SAFETY: the kernel fills it in.
    let usage = unsafe {
        let mut usage = std::mem::zeroed::<libc::rusage>();
        assert_eq!(libc::getrusage(libc::RUSAGE_SELF, &raw mut usage), 0);
        usage
    };
    usage.ru_minflt + usage.ru_majflt
}

/// Bytes of this process in memory.
pub fn rss() -> usize {
    let smaps = fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let line = smaps.lines().find_map(|line| line.strip_prefix("Rss:")).unwrap();
    line.split_ascii_whitespace().next().unwrap().parse::<usize>().unwrap() << 10
}

/// Returns whether the kernel can do it (Linux 5.14); says so if not.
pub fn is_possible() -> bool {
    let area = Area::fresh(PAGE);
    let put = pinfold_sys::mem::fault_safe_copy::put_pages(area.at as u64, PAGE as u64);
    put.inspect_err(|error| role::skip(format!("pages before they are written: {error}"))).is_ok()
}
