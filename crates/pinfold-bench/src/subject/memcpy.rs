//! `memcpy`: a copy within one process. It is no message, but costs as much as one that would be
//! nothing but one copy with everything at hand. The other process waits.

use std::hint::black_box;

use pinfold_sys::cpu::clock;

use super::Bench;
use crate::{
    fail::Result,
    stage::Stage,
    stats,
    terms::{Outcome, Side, Spec, What},
    verify,
};

/// Both sides of it.
pub(crate) struct Memcpy;

impl Bench for Memcpy {
    fn run(&mut self, stage: &mut Stage, spec: &Spec) -> Result<Outcome> {
        // A received copy is a message that was sent: the seeds are the first side's.
        stage.out.shape(spec.size, 1, spec.memory)?;
        stage.into.shape(spec.size, 1, spec.memory)?;
        stage.out.fill(spec.first_number(Side::First));
        let first = stage.sync.side == Side::First;
        if first {
            (0..spec.per_sample).for_each(|_| copy(stage));
        }
        let before = stage.sync.hop_ns()?;
        let mut outcome = Outcome::default();
        if first {
            for sample in 0..spec.samples {
                if sample > 0 && stage.is_late() {
                    break;
                }
                let ps = one_sample(stage, spec, sample)?;
                outcome.times.push(ps);
                outcome.messages += spec.per_sample;
                // It never sleeps.
                outcome.cpu_ns += ps.saturating_mul(spec.per_sample) / 1000;
            }
        }
        let after = stage.sync.hop_ns()?;
        outcome.hops_ns = (before, after);
        if first && !spec.touched {
            let checked = stage.into.check(spec.first_number(Side::First), 1);
            checked.map_err(|wrong| stage.wrong(spec, wrong))?;
        }
        if spec.what == What::Cpu {
            outcome.times.clear();
        }
        Ok(outcome)
    }
}

/// Picoseconds per copy.
fn one_sample(stage: &mut Stage, spec: &Spec, sample: u64) -> Result<u64> {
    if !spec.touched {
        let start = clock::ticks();
        (0..spec.per_sample).for_each(|_| copy(stage));
        return Ok(stats::ps(clock::ticks() - start) / spec.per_sample);
    }
    let mut ticks = 0;
    for at in 0..spec.per_sample {
        let number = spec.first_number(Side::First) + sample * spec.per_sample + at;
        verify::fill(stage.out.get_mut(0), verify::seed(number));
        let start = clock::ticks();
        copy(stage);
        ticks += clock::ticks() - start;
        verify::check(stage.into.get(0), verify::seed(number))
            .map_err(|wrong| stage.wrong(spec, wrong))?;
    }
    Ok(stats::ps(ticks) / spec.per_sample)
}

#[inline]
fn copy(stage: &mut Stage) {
    black_box(stage.into.get_mut(0)).copy_from_slice(black_box(stage.out.get(0)));
}
