//! The options of `pinfold tune`.

use std::time::Duration;

/// Measure which copy algorithm suits which block, and keep the table for this machine
///
/// Every copy of the library goes by that table from then on: by size, by where source and
/// destination are cached, by how they lie in memory, and by who reads next. Takes two processors
/// for half a minute and up to 130 MB of memory; best on a machine that does nothing else
/// meanwhile.
#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub struct TuneArgs {
    /// How long to measure, 0.1 to 600 [default: 30]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    seconds: Option<Duration>,

    /// Print one JSON object in place of the report
    #[arg(long)]
    pub(super) json: bool,

    /// Measure and print, but keep nothing
    #[arg(long)]
    pub(super) dry_run: bool,

    /// Print what is in force, and where it comes from; measure no copies
    #[arg(long, conflicts_with_all = ["seconds", "dry_run"])]
    pub(super) show: bool,
}

const AFTER: &str = "\
Examples:
  pinfold tune
  pinfold tune --seconds 60
  pinfold tune --show
  pinfold tune --show --json | jq '.table[] | select(.reader == \"other_core\")'

The table lies in $XDG_CONFIG_HOME/pinfold, or ~/.config/pinfold, and holds for one processor, kernel and
version; delete it to go back to the defaults. PINFOLD_COPY=NAME in the environment of a program has it
copy everything from 2 KiB on by one algorithm, such as libc or avx2+streaming.

Fields of --json (a field that nothing is known about is null):
  format           1
  version          of this program
  machine          processor, kernel, features, caches_bytes (nearest first)
  origin           measured (now), tuned (measured and kept before), variable (PINFOLD_COPY) or defaults
  file             where the table is kept, or would be
  kept             whether it is there now
  measured_s       when, seconds since 1970
  seen             in how many cases the other core was near, far or mixed (neither) when it read; what
                   is chosen for other_core is for near and far alike, and where one was not seen, the
                   kind of stores that the defaults have is preferred
  measuring        null with --show; else seconds, cases, measured (of the cases, in that time; the others
                   go with their neighbours), other_core (whether a second processor read what was
                   copied), gain (times as fast as libc, geometric mean where one side is uncached or the
                   reader is another core; null where others ran meanwhile), withheld (why)
  probe            works, why (it does not), threshold_ticks, cost_cached_ns, cost_uncached_ns,
                   accuracy (of 1), accuracy_partly (where parts of blocks are cached)
  ignored          what should be in force and is not, and why
  table            rows: operation (copy or zero), reader (me, other_core, near_core, far_core, device
                   or nobody), source (null for zero) and destination (cached, uncached or unknown; the
                   destination also dirty or clean), placement (plain, misaligned or aliased), from:
                   bytes, algorithm

Exit status:
  0  done
  1  nothing could be measured, or the table could not be kept, or the report not be written
  2  the command line makes no sense";

impl TuneArgs {
    /// Time of the measurement.
    pub(super) fn budget(&self) -> Duration {
        self.seconds.unwrap_or(Duration::from_secs(30))
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "it is no number".to_owned())?;
    if !(0.1..=600.0).contains(&seconds) {
        return Err("it is not between 0.1 and 600".into());
    }
    Ok(Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for bad in ["0", "-1", "NaN", "inf", "601", "soon", ""] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }
}
