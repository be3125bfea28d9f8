//! The two processes of a pair, and their lines. They speak by calls that nothing else makes, so
//! that these are left to them whichever call is taken away.
#![allow(unsafe_code)]
// Invariant: the kernel is given slices with their lengths, and a handler that allocates nothing.

use std::{
    sync::mpsc::{self, Receiver, TryRecvError},
    thread,
    time::Duration,
};

use pinfold::{Builder, Endpoint, Error, PeerId, Progress};
use pinfold_tests::{Args, filter};

use crate::{exercise, table};

/// One turn of a wait, between two looks for the director's word.
const TURN: Duration = Duration::from_millis(20);
/// The time for which a call goes unanswered.
const UNANSWERED: Duration = Duration::from_millis(1500);

/// Writes a line for the director, marked as those of [`pinfold_tests::role::say`] are.
fn tell(line: impl std::fmt::Display) {
    let line = format!("\u{1}{}\n", line.to_string().replace('\n', " "));
    let part = libc::iovec { iov_base: line.as_ptr().cast_mut().cast(), iov_len: line.len() };
    // SAFETY: the line is read.
    let done = unsafe { libc::pwritev2(1, &raw const part, 1, -1, 0) };
    assert_eq!(usize::try_from(done).ok(), Some(line.len()), "the director listens");
}

/// Starts a thread that hears the director, since before any call is taken away.
fn listen() -> Receiver<String> {
    let (send, told) = mpsc::channel();
    thread::spawn(move || {
        let mut heard = Vec::new();
        let mut bytes = [0u8; 512];
        loop {
            let part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
            // SAFETY: the kernel writes to the array.
            let done = unsafe { libc::preadv2(0, &raw const part, 1, -1, 0) };
            let Ok(len @ 1..) = usize::try_from(done) else { return };
            heard.extend_from_slice(&bytes[..len]);
            while let Some(end) = heard.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = heard.drain(..=end).collect();
                let line = String::from_utf8_lossy(&line).trim_end().to_owned();
                if send.send(line).is_err() {
                    return;
                }
            }
        }
    });
    told
}

/// Has a call that is trapped end the process, which tells its number.
fn tell_of_traps() {
    /// The place of the call's number in `siginfo_t` of a `SIGSYS`, behind the address of the call:
    /// `sigaction(2)`.
    const NUMBER_AT: usize = 24;
    extern "C" fn trapped(_: libc::c_int, info: *const libc::siginfo_t, _: *const libc::c_void) {
        let at = info.cast::<u8>().wrapping_add(NUMBER_AT).cast::<libc::c_int>();
        // SAFETY: the kernel has filled the structure, of which this is a part.
        let mut number = unsafe { at.read_unaligned() }.unsigned_abs();
        let mut line = *b"\x01trapped 0000\n";
        for digit in line[9..13].iter_mut().rev() {
            *digit = b'0' + (number % 10) as u8;
            number /= 10;
        }
        let part = libc::iovec { iov_base: line.as_mut_ptr().cast(), iov_len: line.len() };
        // SAFETY: the line is read; nothing else runs in this process any more.
        unsafe {
            libc::pwritev2(1, &raw const part, 1, -1, 0);
            libc::_exit(1);
        }
    }
    // SAFETY: all zeros is an action without anything, and the handler makes calls that handlers
    // may make.
    let set = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = trapped as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGSYS, &raw const action, std::ptr::null_mut())
    };
    assert_eq!(set, 0, "sigaction");
}

fn builder(ground: &str) -> Builder {
    let builder = Endpoint::builder().connect_timeout(UNANSWERED);
    match ground {
        "local" => builder,
        "beside" => builder,
        "tcp" => builder.local_shortcut(false),
        "tls" => {
            let builder = builder.local_shortcut(false).progress(Progress::Dedicated);
            builder.key(&[7; 32]).encrypt(true)
        }
        other => panic!("{other}?"),
    }
}

/// A process that takes orders: `listen GROUND ADDRESS` or `call GROUND ADDRESS`.
pub fn side(args: &Args) {
    let told = listen();
    if args.has("denied") {
        table::find(args.text("denied")).deny(args.number("errno"));
    }
    if args.has("traps") {
        tell_of_traps();
        filter::trap_others(&table::numbers());
    }
    tell("here");
    while let Ok(line) = told.recv() {
        let words: Vec<&str> = line.split(' ').collect();
        let done = match words[..] {
            ["listen", ground, address] => listening(&told, ground, address),
            ["call", ground, address] => calling(&told, ground, address),
            // A line that was said when this side had failed already.
            _ => continue,
        };
        if let Err(failed) = done {
            tell(format_args!("failed {}: {}", failed.step, failed.error));
        }
    }
}

fn failed(step: &'static str) -> impl FnOnce(Error) -> exercise::Failed {
    move |error| exercise::Failed { step, error }
}

fn listening(told: &Receiver<String>, ground: &str, address: &str) -> Result<(), exercise::Failed> {
    let endpoint = builder(ground).listen(address).build().map_err(failed("listening"))?;
    tell(format_args!("at {}", endpoint.listens_at().unwrap_or_else(|| address.to_owned())));
    let peer = loop {
        match endpoint.accept_timeout(TURN) {
            Err(Error::Timeout(_)) if told.try_recv() == Err(TryRecvError::Empty) => {}
            peer => break peer.map_err(failed("accepting"))?,
        }
    };
    together(told, &endpoint, peer, true)
}

fn calling(told: &Receiver<String>, ground: &str, address: &str) -> Result<(), exercise::Failed> {
    let endpoint = builder(ground).build().map_err(failed("a new endpoint"))?;
    let peer = endpoint.connect(address).map_err(failed("connecting"))?;
    together(told, &endpoint, peer, false)
}

fn together(
    told: &Receiver<String>,
    endpoint: &Endpoint,
    peer: PeerId,
    first: bool,
) -> Result<(), exercise::Failed> {
    exercise::with(endpoint, peer, first)?;
    tell("done");
    // Neither ends before the other has all that it wants.
    while told.try_recv() == Err(TryRecvError::Empty) {
        endpoint.progress().map_err(failed("waiting"))?;
        thread::yield_now();
    }
    endpoint.close();
    Ok(())
}
