//! Threads, descriptors and memory that are not to be had for a while: nothing hangs meanwhile, and
//! nothing remembers it when they are to be had again.

use std::{fs, io, os::fd::AsRawFd, pin::pin, thread};

use pinfold::{
    Builder, Endpoint, Error, PeerId, Progress, SendDriver, SendMode,
    copy::{
        self, Algorithm, Machine, Origin,
        engine::{CopyEngine, EngineConfig},
        table::Table,
        tuned::{self, Seen, Tuned},
    },
    reassembly::fold::Measured,
};
use pinfold_sys::trial;
use pinfold_tests::{Args, Stage, baseline, block_on, role, stage::Casting, stamp, until};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Another user, which has no other process.
const USER: u32 = 61_217;

/// Limits that are reached, until it is dropped.
struct Limited(Resource, Rlimit);

impl Limited {
    fn to(resource: Resource, current: u64) -> Limited {
        let before = getrlimit(resource);
        setrlimit(resource, Rlimit { current: Some(current), ..before }).expect("setrlimit");
        Limited(resource, before)
    }

    /// Allows no descriptor beyond the present ones.
    fn descriptors() -> Limited {
        let next = fs::File::open("/dev/null").expect("a descriptor").as_raw_fd();
        let limited = Limited::to(Resource::Nofile, next as u64);
        assert!(fs::File::open("/dev/null").is_err());
        limited
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        setrlimit(self.0, self.1).expect("setrlimit");
    }
}

/// Plays a role as a user that limits on threads bind, which root is not.
fn bound(role: Casting<'_>) -> Casting<'_> {
    if rustix::process::geteuid().is_root() { role.user(USER) } else { role }
}

fn pair(one: Builder, two: Builder) -> ((Endpoint, PeerId), (Endpoint, PeerId)) {
    let ends = pinfold_tests::pair("starved", one, two);
    ((ends.0, ends.1), (ends.2, ends.3))
}

/// Sends and receives by futures, whose progress this thread alone makes unless a thread drives the
/// endpoints.
fn exchange(one: &(Endpoint, PeerId), two: &(Endpoint, PeerId), len: usize) {
    let bytes = stamp::bytes(len, 7);
    let receive = one.0.recv_request(one.1, 7);
    let send = two.0.send_owned(two.1, 7, bytes);
    let (message, (sent, _)) = block_on(futures_lite::future::zip(receive, send));
    stamp::check(&message.expect("it comes"), 7);
    assert_eq!(sent.expect("it goes").bytes, len as u64);
}

/// The same for a short message whose receive has to wait: it is polled before the message is sent.
fn exchange_late(one: &(Endpoint, PeerId), two: &(Endpoint, PeerId)) {
    let mut receive = pin!(one.0.recv_request(one.1, 7));
    assert!(block_on(futures_lite::future::poll_once(receive.as_mut())).is_none());
    let bytes = stamp::bytes(100, 7);
    let (message, (sent, _)) =
        block_on(futures_lite::future::zip(receive, two.0.send_owned(two.1, 7, bytes)));
    stamp::check(&message.expect("it comes"), 7);
    assert_eq!(sent.expect("it goes").bytes, 100);
}

fn threads_named(name: &str) -> usize {
    let tasks = fs::read_dir("/proc/self/task").expect("/proc").filter_map(io::Result::ok);
    let names = tasks.map(|task| fs::read_to_string(task.path().join("comm")).unwrap_or_default());
    names.filter(|its| its.trim_end() == name).count()
}

#[test]
fn futures_complete_without_a_thread_and_have_one_later() {
    bound(Stage::new(60).role("threadless")).spawn().end_well();
}

pub fn threadless(_: &Args) {
    let ends = pair(Endpoint::builder(), Endpoint::builder());
    let limited = Limited::to(Resource::Nproc, 1);
    if thread::Builder::new().spawn(|| ()).is_ok() {
        return role::skip("RLIMIT_NPROC does not bind this user");
    }
    for len in [0, 56, 57, 4096, 100_000, 4 << 20] {
        exchange(&ends.0, &ends.1, len);
        exchange(&ends.1, &ends.0, len);
    }
    assert_eq!(threads_named("pinfold"), 0);
    // A program that asks for a thread is told at once that there is none.
    match Endpoint::builder().progress(Progress::Dedicated).build() {
        Err(Error::Os { call: "clone3", source, .. }) => {
            assert_eq!(source.raw_os_error(), Some(libc::EAGAIN));
        }
        other => panic!("{other:?}"),
    }
    // Copies are made by the threads that want them.
    let engine = CopyEngine::new(EngineConfig { threads: 2, ..EngineConfig::default() });
    let copy = || {
        let (ended, from, to) = engine.copy(vec![7; 4 << 20], vec![0; 4 << 20])?.wait().unwrap();
        ended.unwrap();
        assert!(from == to);
        Ok::<(), copy::engine::Unequal<Vec<u8>, Vec<u8>>>(())
    };
    copy().unwrap();
    assert_eq!(threads_named("pinfold-copies"), 0);

    drop(limited);
    // The endpoints are as if there had been threads all the time.
    until(|| {
        exchange_late(&ends.0, &ends.1);
        exchange_late(&ends.1, &ends.0);
        threads_named("pinfold") == 2
    });
    copy().unwrap();
    until(|| threads_named("pinfold-copies") > 0);
    let dedicated = Endpoint::builder().progress(Progress::Dedicated).build().unwrap();
    until(|| threads_named("pinfold") == 3);
    drop(dedicated);
}

#[test]
fn rings_are_asked_for_again_once_there_are_descriptors() {
    for mode in ["per-send", "cached"] {
        Stage::new(60).role("ringless").with("mode", mode).spawn().end_well();
    }
}

pub fn ringless(args: &Args) {
    if let Err(error) = trial::io_uring() {
        return role::skip(format_args!("no io_uring: {error}"));
    }
    let cached = args.text("mode") == "cached";
    let mode = if cached { SendMode::Cached } else { SendMode::PerSend };
    let builder = || Endpoint::builder().local_shortcut(false).io_uring(true).send_mode(mode);
    let one = builder().progress(Progress::Dedicated).listen("tcp:127.0.0.1:0").build().unwrap();
    let two = builder().build().unwrap();
    let to_one = two.connect(&one.listens_at().unwrap()).unwrap();
    let to_two = one.accept().unwrap();
    let send = || {
        let bytes = stamp::bytes(300_000, 7);
        let sent = two.send_owned(to_one, 7, bytes);
        let message = one.recv_request(to_two, 7);
        let (sent, message) = block_on(futures_lite::future::zip(sent, message));
        stamp::check(&message.unwrap(), 7);
        sent.0.unwrap()
    };
    // Other parts of the program have the descriptors.
    exchange(&(one.clone(), to_two), &(two.clone(), to_one), 100);
    let limited = Limited::descriptors();
    assert_eq!(send().send_driver(), Some(SendDriver::Calls));
    drop(limited);
    let mut last = None;
    until(|| {
        let receipt = send();
        last = Some(receipt);
        receipt.send_driver() == Some(SendDriver::Ring)
    });
    if cached {
        until(|| send().sent_by() == Some(SendMode::Cached) || !may_pin());
    }
    assert!(last.is_some());
}

/// Returns whether memory is kept pinned here at all.
fn may_pin() -> bool {
    use pinfold::translate::{own::OwnMemory, pincache::Budget};
    let memory = OwnMemory::new(Budget::of_bytes(1 << 20)).unwrap();
    memory.standing().not_kept.is_none()
}

#[test]
fn what_is_measured_and_tuned_is_found_once_there_are_descriptors() {
    let stage = Stage::new(60);
    let role = stage.role("ignorant").env("XDG_CONFIG_HOME", stage.path().join("config"));
    role.spawn().end_well();
}

pub fn ignorant(_: &Args) {
    let word: Algorithm = "word".parse().unwrap();
    let seen = Seen { near: 0, far: 3, mixed: 0 };
    let machine = Machine::this();
    let file = tuned::file(&machine).expect("a directory");
    let table = Table::uniform(word);
    tuned::store(&file, &machine, &Tuned { table, measured_s: 7, seen }).unwrap();
    let limited = Limited::descriptors();
    assert_eq!(copy::plan().origin(), &Origin::Defaults);
    assert!(!Measured::here().costs.knows_mapping());
    drop(limited);
    until(|| copy::plan().origin() == &Origin::Tuned { file: file.clone(), measured_s: 7, seen });
    until(|| Measured::here().costs.knows_mapping());
}

/// Addresses of the pages that messages come to, bytes.
const POOL: u64 = 32 << 20;

#[test]
fn messages_come_to_pages_once_there_is_memory() {
    Stage::new(60).role("cramped").spawn().end_well();
}

pub fn cramped(_: &Args) {
    let ends = pair(Endpoint::builder(), Endpoint::builder());
    let ((one, to_two), (two, to_one)) = &ends;
    let send = || {
        let send = two.send_owned(*to_one, 7, stamp::bytes(300_000, 7));
        stamp::check(&one.recv(*to_two, 7).unwrap(), 7);
        send.wait().0.unwrap();
    };
    // The resources that such a message takes beside its place have been taken.
    exchange(&ends.1, &ends.0, 100_000);
    let size = || baseline::status_bytes("VmSize");
    let before = size();
    // There is no room for the pages that messages come to, so this message comes to the heap.
    let limited = Limited::to(Resource::As, before + (POOL / 2));
    send();
    drop(limited);
    assert!(size() < before + POOL);
    send();
    assert!(size() >= before + POOL, "{before} {}", size());
}
