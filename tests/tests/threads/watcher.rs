//! All threads of a process, looked at as they come and go.

use std::{
    collections::BTreeSet,
    fs,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// The time in which a thread of the program's says that it is one.
const GRACE: Duration = Duration::from_secs(2);

/// All signals that a thread can block; the C library keeps two for itself.
pub fn all_signals() -> u64 {
    let kept = [libc::SIGKILL, libc::SIGSTOP, 32, 33];
    !kept.into_iter().fold(0, |bits, signal| bits | 1 << (signal - 1))
}

#[derive(Default)]
struct Known {
    /// The program's own threads.
    own: BTreeSet<u32>,
    /// Names of threads that block all signals.
    blocking: BTreeSet<String>,
    /// Names of other threads, with the signals that they block.
    open: BTreeSet<String>,
    looks: u64,
}

/// A watcher that looks at the threads of this process from a thread of its own.
pub struct Watcher {
    known: Arc<Mutex<Known>>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

fn lock(known: &Mutex<Known>) -> MutexGuard<'_, Known> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The ids of this process's threads.
fn list() -> Vec<u32> {
    let tasks = fs::read_dir("/proc/self/task").expect("/proc");
    tasks.filter_map(|task| task.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// The name of a thread, and the signals that it blocks.
fn look(thread: u32) -> Option<(String, u64)> {
    let status = fs::read_to_string(format!("/proc/self/task/{thread}/status")).ok()?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.map(|rest| rest.trim().to_owned())
    };
    // The name is all that is known of a thread that has just ended.
    if field("Threads")? == "0" {
        return None;
    }
    Some((field("Name")?, u64::from_str_radix(&field("SigBlk")?, 16).ok()?))
}

impl Watcher {
    /// Begins to watch; all present threads are the program's.
    pub fn start() -> Watcher {
        let known =
            Arc::new(Mutex::new(Known { own: list().into_iter().collect(), ..Known::default() }));
        let over = Arc::new(AtomicBool::new(false));
        let (its, ends) = (Arc::clone(&known), Arc::clone(&over));
        let thread = thread::spawn(move || {
            lock(&its).own.insert(pinfold_sys::threads::own());
            // The last look begins after the end was asked for: a watcher that is told at once
            // looks, too.
            loop {
                let is_last = ends.load(Ordering::Relaxed);
                look_at_all(&its);
                if is_last {
                    break;
                }
            }
        });
        Watcher { known, over, thread: Some(thread) }
    }

    /// The calling thread is the program's.
    pub fn is_own(&self) {
        lock(&self.known).own.insert(pinfold_sys::threads::own());
    }

    /// Waits until a thread of that name was seen that blocks all signals.
    pub fn until_seen(&self, name: &str) {
        let end = Instant::now() + Duration::from_secs(50);
        while !lock(&self.known).blocking.contains(name) {
            let known = lock(&self.known);
            assert!(Instant::now() < end, "no {name} among {:?}, {:?}", known.blocking, known.open);
            drop(known);
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Threads that are not the program's and do not block all signals.
    pub fn end(mut self) -> BTreeSet<String> {
        self.over.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join).expect("it runs").expect("no panic");
        let known = lock(&self.known);
        assert!(known.looks > 0);
        known.open.clone()
    }
}

fn look_at_all(known: &Mutex<Known>) {
    for thread in list() {
        if lock(known).own.contains(&thread) {
            continue;
        }
        let end = Instant::now() + GRACE;
        // A thread of the program's is there before it can say so.
        while let Some((name, blocked)) = look(thread) {
            let mut known = lock(known);
            let is_own = known.own.contains(&thread);
            // Threads that work for an io_uring are the kernel's.
            if is_own || name.starts_with("iou-") {
                break;
            }
            // A thread blocks those two as well while it starts another.
            if blocked & all_signals() == all_signals() {
                known.blocking.insert(name);
                break;
            }
            if name.starts_with("pinfold") || Instant::now() >= end {
                known.open.insert(format!("{name} {blocked:016x}"));
                break;
            }
            drop(known);
            thread::sleep(Duration::from_millis(1));
        }
    }
    lock(known).looks += 1;
}
