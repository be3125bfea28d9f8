//! 8 bytes one way by the C library and by the Rust library: half of a message there and back.
//!
//! `cargo bench -p pinfold-capi --bench one_way [-- ROUNDS]`. Two processes have two pairs of
//! endpoints, one by each interface; the C one is called through `libpinfold.so` as a program in C
//! does. They take turns in rounds, the order changing; each word is checked. The goal is a mean of
//! the C interface's within 3 % of the Rust interface's.
#![allow(unsafe_code)]

use std::{
    ffi::{CStr, CString, c_char, c_int, c_void},
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use pinfold::{Endpoint, PeerId, Source};

/// Messages there and back in a round, of each interface.
const EACH: u64 = 10_000;
const PATIENCE_NS: i64 = 30_000_000_000;

type Open = unsafe extern "C" fn(*const c_void, *mut *mut c_void) -> c_int;
type Connect = unsafe extern "C" fn(*const c_void, *const c_char, i64, *mut u64) -> c_int;
type Send =
    unsafe extern "C" fn(*const c_void, u64, u64, *const c_void, usize, *mut c_void) -> c_int;
type Recv = unsafe extern "C" fn(
    *const c_void,
    u64,
    u64,
    u64,
    *mut c_void,
    usize,
    i64,
    *mut c_void,
) -> c_int;
type Said = unsafe extern "C" fn() -> *const c_char;

/// The C library, as the dynamic linker finds it.
struct Library {
    open: Open,
    connect: Connect,
    send: Send,
    recv: Recv,
    error: Said,
}

impl Library {
    fn load() -> Library {
        let here = std::env::current_exe().expect("this program");
        let folders = here.ancestors().skip(1).take(2);
        let file: PathBuf = folders
            .map(|folder| folder.join("libpinfold_capi.so"))
            .find(|file| file.exists())
            .expect("the library, built beside this program");
        let file = CString::new(file.into_os_string().into_encoded_bytes()).expect("a path");
        // SAFETY: a string; the library is Pinfold's own.
        let handle = unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_NOW) };
        assert!(!handle.is_null(), "the library cannot be loaded");
        let symbol = |name: &CStr| {
            // SAFETY: an open library and a string.
            let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
            assert!(!found.is_null(), "the library has no {name:?}");
            found
        };
        // SAFETY: the functions have these types in pinfold.h.
        unsafe {
            Library {
                open: std::mem::transmute::<*mut c_void, Open>(symbol(c"pinfold_endpoint_open")),
                connect: std::mem::transmute::<*mut c_void, Connect>(symbol(c"pinfold_connect")),
                send: std::mem::transmute::<*mut c_void, Send>(symbol(c"pinfold_send")),
                recv: std::mem::transmute::<*mut c_void, Recv>(symbol(c"pinfold_recv")),
                error: std::mem::transmute::<*mut c_void, Said>(symbol(c"pinfold_error")),
            }
        }
    }

    fn check(&self, status: c_int) {
        // SAFETY: it takes nothing, and returns a string.
        let said = || unsafe { CStr::from_ptr((self.error)()) }.to_string_lossy().into_owned();
        assert!(status == 0, "{}", said());
    }
}

/// One side of a pair.
trait Side {
    fn send(&self, word: u64);
    fn recv(&self) -> u64;
}

struct Rust(Endpoint, PeerId);

impl Side for Rust {
    fn send(&self, word: u64) {
        self.0.send(self.1, 1, &word.to_ne_bytes()).expect("a send");
    }

    fn recv(&self) -> u64 {
        let mut word = [0; 8];
        self.0.recv_into(Source::from(self.1), 1, &mut word).expect("a receive");
        u64::from_ne_bytes(word)
    }
}

struct C<'a>(&'a Library, *mut c_void, u64);

impl Side for C<'_> {
    fn send(&self, word: u64) {
        let data = (&raw const word).cast();
        // SAFETY: an open endpoint; 8 bytes; no receipt is asked for.
        let status = unsafe { (self.0.send)(self.1, self.2, 1, data, 8, std::ptr::null_mut()) };
        self.0.check(status);
    }

    fn recv(&self) -> u64 {
        let mut word = 0u64;
        let data = (&raw mut word).cast();
        // SAFETY: an open endpoint; 8 bytes; no facts are asked for.
        let status =
            unsafe { (self.0.recv)(self.1, self.2, 1, 0, data, 8, -1, std::ptr::null_mut()) };
        self.0.check(status);
        word
    }
}

/// Answers until a word is 0.
fn answer(side: &impl Side) {
    loop {
        let word = side.recv();
        side.send(word.wrapping_add(1));
        if word == 0 {
            return;
        }
    }
}

/// A round: ns of one way, on average.
fn round(side: &impl Side) -> f64 {
    let begun = Instant::now();
    for word in 1..=EACH {
        side.send(word);
        assert_eq!(side.recv(), word + 1);
    }
    side.send(0);
    assert_eq!(side.recv(), 1);
    begun.elapsed().as_nanos() as f64 / (2 * EACH + 2) as f64
}

fn connected(library: &Library, names: &[String; 2]) -> (Rust, *mut c_void, u64) {
    let endpoint = Endpoint::new().expect("an endpoint");
    let peer = endpoint.connect_wait(&names[0], Duration::from_secs(30)).expect("the other side");
    let (mut opened, mut other) = (std::ptr::null_mut(), 0);
    let name = CString::new(names[1].as_str()).expect("a name");
    // SAFETY: no configuration, and places for the results.
    unsafe {
        library.check((library.open)(std::ptr::null(), &raw mut opened));
        library.check((library.connect)(opened, name.as_ptr(), PATIENCE_NS, &raw mut other));
    }
    (Rust(endpoint, peer), opened, other)
}

/// The child: it listens by the Rust interface for both, since only calls of the parent are timed
/// apart; the C pair's far end is a Rust endpoint as well as the Rust pair's.
fn child(names: &[String; 2]) {
    let ends = names.each_ref().map(|name| Endpoint::listen(name).expect("a name"));
    println!("ready");
    let sides = ends.map(|end| {
        let peer = end.accept().expect("the parent");
        Rust(end, peer)
    });
    for line in std::io::stdin().lines() {
        match line.expect("a line").as_str() {
            "rust" => answer(&sides[0]),
            _ => answer(&sides[1]),
        }
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|it| it != "--bench").collect();
    if let [role, first, second] = args.as_slice()
        && role == "child"
    {
        return child(&[first.clone(), second.clone()]);
    }
    let rounds: usize = args.first().map_or(60, |it| it.parse().expect("a number of rounds"));
    let names = ["rust", "c"].map(|it| format!("local:one-way-{it}-{}", std::process::id()));
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["child", &names[0], &names[1]])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a child");
    let mut ready = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut ready).expect("a line");
    let library = Library::load();
    let (rust, opened, other) = connected(&library, &names);
    let c = C(&library, opened, other);
    let mut orders = child.stdin.take().expect("a pipe");
    let mut turn = |is_c: bool| {
        use std::io::Write;
        writeln!(orders, "{}", if is_c { "c" } else { "rust" }).expect("the child");
        if is_c { round(&c) } else { round(&rust) }
    };
    let mut times: [Vec<f64>; 2] = Default::default();
    for number in 0..=rounds {
        for step in 0..2 {
            let is_c = (number + step) % 2 == 1;
            let took = turn(is_c);
            // The first round warms up.
            if number > 0 {
                times[usize::from(is_c)].push(took);
            }
        }
    }
    drop(orders);
    child.wait().expect("the child");
    report(&times);
}

fn report(times: &[Vec<f64>; 2]) {
    let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len() as f64;
    let at = |of: &[f64], share: f64| {
        let mut sorted = of.to_vec();
        sorted.sort_by(f64::total_cmp);
        sorted[((sorted.len() - 1) as f64 * share) as usize]
    };
    println!("8 B one way, ns; rounds of {EACH} there and back: mean, median, p99 of the rounds");
    for (name, of) in ["Rust", "C"].iter().zip(times) {
        println!("{name:5} {:8.1} {:8.1} {:8.1}", mean(of), at(of, 0.5), at(of, 0.99));
    }
    let pairs: Vec<f64> = times[1].iter().zip(&times[0]).map(|(c, rust)| c / rust).collect();
    let ratio = at(&pairs, 0.5);
    let verdict = if ratio <= 1.03 { "met" } else { "missed" };
    println!("C over Rust: {ratio:.3} (median of pairs; goal: 1.03 at most, {verdict})");
}
