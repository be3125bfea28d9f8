//! `pinfold lab size`: the options, and the answer as text or JSON.

use std::fmt::Write as _;

use clap::Args;
use pinfold_lab::{
    experiment::SEED,
    size::{Answer, Change, Datum, Inputs, Part, Varied, answer, bytes_of, vary},
};
use serde_json::json;

use super::Fail;
use crate::{
    fold::{Width, hanging, width_of_stdout},
    output::put,
};

/// Size a program: modes, thresholds and budgets for its messages, and what they hang on
///
/// The library's own costs, limits and caches answer, on a trace of the program's buffers that is
/// made from a seed. Nothing of this machine counts.
#[derive(Args)]
#[command(after_help = AFTER)]
pub(super) struct SizeArgs {
    /// Peers
    #[arg(long, value_name = "N")]
    peers: u32,

    /// Lengths of messages and their shares; a length may end in K or M
    #[arg(long, value_name = "LEN:SHARE,...", value_delimiter = ',', required = true)]
    mix: Vec<Part>,

    /// Entries of the network interface's TLB, a power of two; 0: it has none
    #[arg(long, value_name = "ENTRIES", default_value_t = 0)]
    nic_tlb: u32,

    /// Bytes that the program may lock (ulimit -l); may end in K, M or G
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    memlock: u64,

    /// Messages whose buffer was used before
    #[arg(long, value_name = "PERCENT")]
    reuse: u32,

    /// Misses of the network interface's TLB that are acceptable, beside compulsory ones
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0)]
    tlb_misses: f64,

    /// The seed of the trace
    #[arg(long, value_name = "NUMBER", default_value_t = SEED)]
    seed: u64,

    /// Print a JSON object instead of text
    #[arg(long)]
    json: bool,
}

const AFTER: &str = "\
Examples:
  pinfold lab size --peers 16 --mix 64:90,64K:9,1M:1 --memlock 8M --reuse 90
  pinfold lab size --peers 64 --mix 256K:1 --memlock 1G --reuse 50 --nic-tlb 1024 --json

Fields of --json:
  inputs       as given: peers, mix (bytes, share), nic_tlb, memlock, reuse_percent,
               tlb_misses_percent, seed
  figures      name, value (a number, a word, or null where there is none), unit, from
  sensitivity  for each input halved and doubled: input, is_doubled, changes (name, before, after,
               unit)

Exit status:
  0  the answer is printed
  1  it could not be printed
  2  the command line makes no sense, or an input is out of its range";

fn bytes(text: &str) -> Result<u64, String> {
    bytes_of(text).ok_or_else(|| "write bytes as 65536, 64K or 8M".into())
}

/// Runs `pinfold lab size`.
pub(super) fn size(args: &SizeArgs) -> Result<(), Fail> {
    let inputs = Inputs {
        peers: args.peers,
        mix: args.mix.clone(),
        nic_tlb: args.nic_tlb,
        memlock: args.memlock,
        reuse_percent: args.reuse,
        tlb_misses_percent: args.tlb_misses,
        seed: args.seed,
    };
    let answer = answer(&inputs)?;
    let sensitivity = vary(&inputs, &answer)?;
    let text = match args.json {
        true => {
            let figures = &answer.figures;
            let object =
                json!({ "inputs": inputs, "figures": figures, "sensitivity": sensitivity });
            format!("{object}\n")
        }
        false => text(&answer, &sensitivity, width_of_stdout()),
    };
    Ok(put("the sizes", &text)?)
}

/// A value with its unit. Bytes are exact; per cent have two digits behind the point.
fn words(value: &Datum, unit: &str) -> String {
    let words = match value {
        Datum::Number(number) if unit == "%" => format!("{number:.2}"),
        Datum::Number(number) => format!("{number}"),
        Datum::Word(word) => (*word).to_owned(),
        Datum::None => return "-".into(),
    };
    if unit.is_empty() { words } else { format!("{words} {unit}") }
}

fn lines(text: &mut String, head: &str, rest: &str, width: Width) {
    for line in hanging(head, rest, width) {
        let _ = writeln!(text, "{line}");
    }
}

/// A line for each figure, with its source, and one for each varied input.
fn text(answer: &Answer, sensitivity: &[Varied], width: Width) -> String {
    let mut text = String::new();
    for figure in &answer.figures {
        let head = format!("{:<40} {:<16} ", figure.name, words(&figure.value, figure.unit));
        lines(&mut text, &head, &format!("from {}", figure.from), width);
    }
    text.push('\n');
    for varied in sensitivity {
        let how = if varied.is_doubled { "doubled" } else { "halved" };
        let of = |it: &Change| {
            format!("{}: {} -> {}", it.name, words(&it.before, it.unit), words(&it.after, it.unit))
        };
        let rest = match varied.changes.is_empty() {
            true => "nothing changes".into(),
            false => varied.changes.iter().map(of).collect::<Vec<_>>().join("; "),
        };
        lines(&mut text, &format!("{} {how}: ", varied.input.words()), &rest, width);
    }
    text
}
