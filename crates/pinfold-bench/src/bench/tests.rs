//! Both sides of a run in two threads, over a subject made of channels.

use std::{
    os::fd::OwnedFd,
    sync::mpsc::{Receiver, Sender, TryRecvError, channel},
    thread,
};

use super::*;
use crate::{
    control::Control,
    fail::Fail,
    payload::Messages,
    shared::Shared,
    sync::{self, Sync},
    terms::{Memory, Setting},
};

/// Messages through channels; one byte of one message may be flipped.
struct Channels {
    out: Sender<Vec<u8>>,
    into: Receiver<Vec<u8>>,
    stage_watch: sync::Watch,
    sent: u64,
    /// The number of the message, and of the byte in it.
    flip: Option<(u64, usize)>,
}

impl Subject for Channels {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        let mut message = message.to_vec();
        if let Some((number, offset)) = self.flip
            && number == self.sent
        {
            message[offset] ^= 1;
        }
        self.sent += 1;
        self.out.send(message).map_err(|_| Fail::Gone)
    }

    fn recv(&mut self, into: &mut [u8]) -> Result<()> {
        let mut patience = self.stage_watch.patience();
        loop {
            match self.into.try_recv() {
                Ok(message) => {
                    into.copy_from_slice(&message);
                    return Ok(());
                }
                Err(TryRecvError::Empty) => patience.again()?,
                Err(TryRecvError::Disconnected) => return Err(Fail::Gone),
            }
        }
    }

    fn exchange(&mut self, out: &Messages, into: &mut Messages, count: usize) -> Result<()> {
        for number in 0..count {
            self.send(out.get(number))?;
            self.recv(into.get_mut(number))?;
        }
        Ok(())
    }
}

type Flip = Option<(u64, usize)>;

/// Runs `spec` with the first side's messages spoilt as `flip` says. Returns the results of both
/// sides.
fn both_sides(spec: &Spec, flip: Flip) -> (Result<Outcome>, Result<Outcome>) {
    both_sides_until(u64::MAX, spec, flip)
}

/// The same, where no sample begins after so many ticks.
fn both_sides_until(deadline: u64, spec: &Spec, flip: Flip) -> (Result<Outcome>, Result<Outcome>) {
    let (first, second) = Control::pair().unwrap();
    let (page, file) = Shared::create("pinfold-test", sync::BYTES).unwrap();
    drop(page);
    let again = file.try_clone().unwrap();
    let ((out, there), (back, into)) = (channel(), channel());
    let side = |control: OwnedFd, file: OwnedFd, side, out, into, flip| {
        let control = Control::new(control);
        let page = Shared::open(&file, sync::BYTES).unwrap();
        let watch = sync::Watch::new(&control, true);
        let mut stage = Stage::new(Sync::new(page, side, watch.clone()));
        stage.label = "channels".into();
        stage.deadline = deadline;
        let mut subject = Channels { out, into, stage_watch: watch, sent: 0, flip };
        run(&mut subject, &mut stage, spec)
    };
    thread::scope(|scope| {
        let second = scope.spawn(|| side(second, again, Side::Second, back, there, None));
        let first = side(first, file, Side::First, out, into, flip);
        (first, second.join().unwrap())
    })
}

fn spec(what: What, size: usize, touched: bool) -> Spec {
    let (warm_up, samples, per_sample) = (1, 3, 4);
    let memory = Memory::Heap;
    let setting = Setting::Alone;
    Spec { subject: 0, what, size, touched, setting, memory, run: 7, warm_up, samples, per_sample }
}

#[test]
fn every_measure_ends_well() {
    for what in What::ALL {
        for touched in [false, true] {
            for size in [1, 8, 4097] {
                let (first, second) = both_sides(&spec(what, size, touched), None);
                let first = first.unwrap_or_else(|why| panic!("{what:?} {size}: {why}"));
                second.unwrap_or_else(|why| panic!("{what:?} {size}: {why}"));
                let samples = if what == What::Cpu { 0 } else { 3 };
                assert_eq!(first.times.len(), samples, "{what:?}");
                assert!(first.hops_ns.0 > 0.0 && first.hops_ns.1 > 0.0);
            }
        }
    }
}

/// The second side found the byte; the first was not left hanging.
fn assert_found(what: What, touched: bool, flip: (u64, usize)) {
    let (first, second) = both_sides(&spec(what, 4097, touched), Some(flip));
    match second {
        Err(Fail::Wrong { subject, size: 4097, source }) => {
            assert_eq!((subject.as_str(), source.offset), ("channels", flip.1));
        }
        other => panic!("{what:?}: {other:?}"),
    }
    if touched || what == What::Latency {
        assert!(first.is_ok() || matches!(first, Err(Fail::Gone)), "{first:?}");
    }
}

#[test]
fn the_time_ends_a_run_before_the_samples_do() {
    for what in [What::Latency, What::Bandwidth] {
        let spec = Spec { samples: u64::MAX, ..spec(what, 8, false) };
        // It is late from the beginning.
        let (first, second) = both_sides_until(0, &spec, None);
        second.unwrap();
        assert_eq!(first.unwrap().times.len(), 1, "{what:?}");
        let soon =
            pinfold_sys::cpu::clock::ticks() + 20_000 * pinfold_sys::cpu::clock::ticks_per_us();
        let (first, second) = both_sides_until(soon, &spec, None);
        second.unwrap();
        assert!(!first.unwrap().times.is_empty(), "{what:?}");
    }
}

#[test]
fn a_flipped_byte_ends_the_run() {
    // Untouched memory is checked at the end of a run: the last message counts.
    assert_found(What::Latency, false, (15, 4096));
    assert_found(What::Bandwidth, false, (15, 17));
    assert_found(What::Cpu, false, (11, 0));
    // Touched: any message at all.
    for what in [What::Latency, What::Bandwidth, What::Bidirectional] {
        for number in [0, 5, 15] {
            assert_found(what, true, (number, 4000));
        }
    }
}

#[test]
fn errors_name_subject_size_and_offset() {
    let (_, second) = both_sides(&spec(What::Latency, 64, true), Some((2, 33)));
    let text = second.unwrap_err().to_string();
    for part in ["channels", "64-byte", "offset 33"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn runs_and_sides_differ_in_contents() {
    let spec = |run| Spec { run, ..spec(What::Rate, 8, true) };
    let mut numbers: Vec<u64> = [Side::First, Side::Second]
        .into_iter()
        .flat_map(|side| [1, 2, 3].map(|run| spec(run).first_number(side)))
        .collect();
    numbers.sort_unstable();
    assert!(numbers.windows(2).all(|pair| pair[1] - pair[0] >= 1 << 32));
}
