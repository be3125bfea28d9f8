//! A ping-pong of samples between two processes, over topics of Pinfold and services of iceoryx2 in
//! turns.
//!
//! Each process is bound to a core. Of every sample the first word is written before it goes and
//! checked when it comes back; the rest stays as it was. Before and after each turn a word is bounced
//! between the cores: a turn counts for its class, near or far, if both say the same.

mod hop;
mod iceoryx;
mod topics;
mod turn;

use std::{collections::BTreeMap, process::ExitCode, time::Duration};

use clap::{Parser, ValueEnum};
use hdrhistogram::Histogram;
use indicatif::{ProgressBar, ProgressStyle};

use self::turn::{Turn, Turns};

/// A library to be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
enum Subject {
    Pinfold,
    Iceoryx2,
}

/// Times a ping-pong of samples, Pinfold and iceoryx2 in turns; one way is half of the way there
/// and back.
#[derive(Parser)]
struct Args {
    /// Bytes of the samples.
    #[arg(long, value_delimiter = ',', default_values_t = [8, 4096, 65536, 4 << 20])]
    sizes: Vec<usize>,
    /// Turns of each subject and size.
    #[arg(long, default_value_t = 10)]
    rounds: u32,
    /// Length of a turn, milliseconds.
    #[arg(long, default_value_t = 300)]
    turn_ms: u64,
    /// Print a line of JSON for each row.
    #[arg(long)]
    json: bool,
    /// Answer samples, as the process that a turn starts: subject, size, name.
    #[arg(long, hide = true, num_args = 3)]
    answer: Option<Vec<String>>,
}

/// The turns of one subject and size in one class.
type Row = (usize, &'static str, Subject);

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> turn::Result<()> {
    if let Some(answer) = &args.answer {
        let [subject, size, name] = &answer[..] else { return Err("three words".into()) };
        let subject = Subject::from_str(subject, true)?;
        return turn::answer(subject, size.parse()?, name);
    }
    let mut rows: BTreeMap<Row, (Turns, Histogram<u64>)> = BTreeMap::new();
    let turns = u64::from(args.rounds) * args.sizes.len() as u64 * 2;
    let bar = ProgressBar::new(turns).with_style(
        ProgressStyle::with_template("{bar:40} {pos}/{len} turns, {eta} left")
            .unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    for round in 0..args.rounds {
        for &size in &args.sizes {
            let mut subjects = [Subject::Pinfold, Subject::Iceoryx2];
            subjects.rotate_left(round as usize % 2);
            for subject in subjects {
                let Turn { class, took, times } =
                    turn::ask(subject, size, Duration::from_millis(args.turn_ms))?;
                let (turns, all) = rows
                    .entry((size, class, subject))
                    .or_insert_with(|| (Turns::default(), turn::histogram()));
                turns.add(took, times.len());
                all.add(&times)?;
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    print(args, &rows)
}

fn print(args: &Args, rows: &BTreeMap<Row, (Turns, Histogram<u64>)>) -> turn::Result<()> {
    if !args.json {
        println!("One way, ns. The mean is all the time of all turns over all samples.");
        println!("    bytes class subject      mean  median     p99  samples  turns");
    }
    for ((size, class, subject), (turns, times)) in rows {
        let (mean, name) = (turns.mean_ns(), format!("{subject:?}").to_lowercase());
        let (median, p99) = (times.value_at_quantile(0.5), times.value_at_quantile(0.99));
        if args.json {
            let row = serde_json::json!({
                "bytes": size, "class": class, "subject": name, "mean_ns": mean,
                "median_ns": median, "p99_ns": p99, "samples": times.len(), "turns": turns.count(),
            });
            println!("{row}");
        } else {
            println!(
                "{size:9} {class:5} {name:9} {mean:7.0} {median:7} {p99:7} {:8} {:6}",
                times.len(),
                turns.count()
            );
        }
    }
    Ok(())
}
