//! The options that bound a measurement, of `pinfold perf` and of `pinfold perf copy`: rounds, time
//! and processors.

use std::time::Duration;

use super::fail::{Fail, Result};

/// Seconds with `--quick`, which promises 30: the rest is for starting up and ending.
const QUICK_SECONDS: f64 = 24.0;

/// How often, how long and where.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Bounds {
    /// How often each has its turn in each row or cell, if there is time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,

    /// Seconds to take in all [default: 150, for copies 540; with --quick 24, and no more than
    /// that]
    #[arg(long, value_name = "S")]
    seconds: Option<f64>,

    /// The two processors to use, such as 0,2
    #[arg(long, value_delimiter = ',', num_args = 1, value_name = "A,B")]
    cores: Vec<usize>,
}

impl Bounds {
    /// The number of rounds; so many unless told otherwise.
    pub(super) fn rounds(&self, usual: u32) -> u32 {
        self.rounds.unwrap_or(usual)
    }

    /// The time of the run; so many seconds unless told otherwise.
    ///
    /// # Errors
    /// [`Fail::Usage`] if the time is zero, or more than `--quick` promises.
    pub(super) fn time(&self, quick: bool, usual: f64) -> Result<Duration> {
        let seconds = match self.seconds {
            Some(seconds) if quick && seconds > QUICK_SECONDS => {
                return Err(Fail::Usage(format!(
                    "--quick takes {QUICK_SECONDS} seconds at most; leave it out to take more"
                )));
            }
            Some(seconds) => seconds,
            None if quick => QUICK_SECONDS,
            None => usual,
        };
        match Duration::try_from_secs_f64(seconds) {
            Ok(time) if !time.is_zero() => Ok(time),
            _ => Err(Fail::Usage(format!("--seconds {seconds}: give a positive number"))),
        }
    }

    /// The two processors; `None` if the choice is left to the command.
    ///
    /// # Errors
    /// [`Fail::Usage`] if they are not two processors that this process may use.
    pub(super) fn cores(&self) -> Result<Option<[usize; 2]>> {
        let allowed = pinfold_sys::cpu::affinity::current_cpus();
        if let Some(missing) = self.cores.iter().find(|core| !allowed.contains(core)) {
            return Err(Fail::Usage(format!("--cores: processor {missing} is not to be had here")));
        }
        match *self.cores {
            [] => Ok(None),
            [first, second] => Ok(Some([first, second])),
            _ => Err(Fail::Usage("--cores: give two, such as 0,1".into())),
        }
    }
}
