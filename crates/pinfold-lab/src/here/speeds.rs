//! The speed of the models on this machine, and the memory that this process took.

use std::{fs, hint::black_box};

use pinfold::{
    copy::{Prefetch, Stores},
    translate::{
        Rights, SpaceId,
        pincache::{Clock, Evict, Lru},
        tlb::{Geometry, Lookup, Tlb},
    },
};
use pinfold_sys::cpu::clock::now_ns;

use crate::{
    models::{
        copying::{Before, Grain, Way, copy, processor::OPTERON_250},
        dram::{Controller, DDR5_4800},
        eviction::{Belady, Driver, Policy, S3Fifo, Sieve},
        hierarchy::{Hierarchy, LINE},
        pm::pinning::Pinning,
        ppc601::{self, machine::Machine},
        unet::{Interface, PAGE_BYTES, PageState, systems::ATM_MM},
    },
    random::Random,
    workloads::zipf::Zipf,
};

/// Buffers of a page, and those that may be pinned.
const BUFFERS: u64 = 4096;
const BUDGET: u64 = 1024;
/// Bytes of a copy whose lines are counted.
const COPIED: u64 = 64 << 10;
/// Bytes of memory that lines lie in.
const MEMORY: u64 = 16 << 20;

/// References a second of so many that took some time since.
fn speed(count: u64, since_ns: u64) -> f64 {
    count as f64 / (now_ns().saturating_sub(since_ns).max(1) as f64 / 1e9)
}

fn words(why: impl ToString) -> String {
    why.to_string()
}

/// Times so many references.
fn timed(count: u64, mut act: impl FnMut(u64) -> Result<(), String>) -> Result<f64, String> {
    let since = now_ns();
    (0..count).try_for_each(&mut act)?;
    Ok(speed(count, since))
}

/// A policy of the library's.
fn of_library<E: Evict>(buffers: &[u64], evict: E) -> Result<f64, String> {
    let mut pinning = Pinning::new(BUDGET, evict, false).map_err(words)?;
    timed(buffers.len() as u64, |at| {
        let address = buffers[at as usize] * PAGE_BYTES;
        black_box(pinning.is_hit(address, PAGE_BYTES)).map(|_| ()).map_err(words)
    })
}

/// A policy that is told; of the future, too, as if each buffer came again in as many references.
fn of_told<P: Policy>(buffers: &[u64], policy: P) -> Result<f64, String> {
    let (driver, told) = Driver::new(policy);
    let mut pinning = Pinning::new(BUDGET, told, false).map_err(words)?;
    timed(buffers.len() as u64, |at| {
        let address = buffers[at as usize] * PAGE_BYTES;
        driver.upcoming(address, at + buffers[at as usize]);
        if pinning.is_hit(address, PAGE_BYTES).map_err(words)? {
            driver.hit(address);
        }
        Ok(())
    })
}

/// The references a second of each model, of so many by Zipf's law, or of any lines.
///
/// # Errors
/// A model refused one; in words.
pub fn of_models(count: u64) -> Result<Vec<(&'static str, f64)>, String> {
    let mut random = Random::new(1, 0);
    let law = Zipf::new(&mut random, BUFFERS);
    let buffers: Vec<u64> = (0..count).map(|_| law.pick(&mut random)).collect();
    let lines: Vec<u64> = (0..count).map(|_| random.below(MEMORY / LINE) * LINE).collect();
    let mut all = Vec::new();
    let shape = Geometry { sets: 256, ways: 4, ..Geometry::default() };
    let mut tlb: Tlb<u64> = Tlb::new(shape).map_err(words)?;
    let space = SpaceId(0);
    all.push((
        "TLB",
        timed(count, |at| {
            let address = buffers[at as usize] * PAGE_BYTES;
            if let Lookup::Miss = tlb.look_up(space, address, Rights::ReadWrite) {
                let _ = tlb.insert(space, address, Rights::ReadWrite, address);
            }
            Ok(())
        })?,
    ));
    all.push(("pin-down cache, LRU", of_library(&buffers, Lru::default())?));
    all.push(("pin-down cache, CLOCK", of_library(&buffers, Clock::default())?));
    all.push(("pin-down cache, SIEVE", of_told(&buffers, Sieve::default())?));
    all.push(("pin-down cache, S3-FIFO", of_told(&buffers, S3Fifo::new(BUDGET as usize))?));
    all.push(("pin-down cache, Belady", of_told(&buffers, Belady::default())?));
    let mut interface = Interface::new(ATM_MM).map_err(words)?;
    all.push((
        "U-Net/MM's interface, sends",
        timed(count, |at| {
            black_box(interface.send(space, buffers[at as usize] * PAGE_BYTES, PageState::Present));
            Ok(())
        })?,
    ));
    let with = &OPTERON_250;
    let mut caches = Hierarchy::new(with.first, with.second, with.sharing);
    all.push((
        "Opteron's caches, lines",
        timed(count, |at| {
            black_box(caches.access(lines[at as usize], at % 2 == 0));
            Ok(())
        })?,
    ));
    let mut dram = Controller::new(DDR5_4800);
    all.push((
        "DDR5, lines",
        timed(count, |at| {
            black_box(dram.burst(lines[at as usize], at % 4 == 0));
            Ok(())
        })?,
    ));
    let way = Way { prefetch: Prefetch::None, stores: Stores::Temporal, grain: Grain::Line };
    let copies = count.div_ceil(COPIED / LINE);
    let since = now_ns();
    for _ in 0..copies {
        black_box(copy(with, way, (Before::Uncached, Before::Uncached), COPIED));
    }
    all.push(("Opteron's copies, lines", speed(copies * COPIED / LINE, since)));
    let mut machine = Machine::new(ppc601::PAPER, true);
    all.push((
        "PowerPC 601, lines",
        timed(count, |at| {
            machine.words(lines[at as usize], 8, at % 4 == 0);
            Ok(())
        })?,
    ));
    black_box(machine.us());
    Ok(all)
}

/// The most memory that this process ever had, MiB (`VmHWM`); none if `/proc` does not say.
pub fn most_resident_mib() -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_model_has_a_speed() {
        let all = of_models(2000).unwrap();
        assert!(all.len() > 8 && all.iter().all(|it| it.1 > 0.0), "{all:?}");
        assert!(most_resident_mib().is_none_or(|mib| mib > 1.0));
    }
}
