//! The answer: figures, each with its source, and how they change with the inputs.

use pinfold::{
    LANE_BYTES_MAX, LANE_GROWTH_MAX, PAIR_BYTES_MIN,
    route::{DIRECT_FROM, INLINE_MAX, PinLimits, SendMode},
};
use serde::Serialize;

use super::{
    Input, Inputs, Trace, Wrong,
    pins::{self, Pins},
    thresholds::{cheaper_from, may_pin, path, rendezvous_from, send_mode},
    tlb,
};

/// The value of a figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Datum {
    /// A number.
    Number(f64),
    /// A mode or a path, by its name.
    Word(&'static str),
    /// There is none.
    None,
}

impl From<Option<u64>> for Datum {
    fn from(value: Option<u64>) -> Datum {
        value.map_or(Datum::None, |value| Datum::Number(value as f64))
    }
}

/// One line of the answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// Its name. For a length of the mix, that is the length's position from 1 on: `mix 2: ...`.
    pub name: String,
    /// The value.
    pub value: Datum,
    /// The unit; none for words and counts.
    pub unit: &'static str,
    /// The part of the library, or the replay, that says so.
    pub from: &'static str,
}

/// All figures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Answer {
    /// In the order in which they are shown.
    pub figures: Vec<Figure>,
}

/// A figure that changes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// Its name.
    pub name: String,
    /// The value for the inputs as given.
    pub before: Datum,
    /// The value for the varied ones.
    pub after: Datum,
    /// The unit of both.
    pub unit: &'static str,
}

/// The answer for inputs of which one is halved or doubled.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Varied {
    /// The input.
    pub input: Input,
    /// True if it is doubled, else it is halved.
    pub is_doubled: bool,
    /// The figures that change; those of the trace itself do not count.
    pub changes: Vec<Change>,
}

const COSTS: &str = "the library's costs before any transfer (CostModel::DEFAULT)";
const SENDS: &str = "the library's costs before any send (SendModes::priors)";
const REPLAY: &str = "the library's pin-down cache, replayed";
const TLB: &str = "the library's TLB, direct-mapped with 16 victims, replayed";
const LANES: &str = "the layout of a pair's shared memory";
const TRACE: &str = "the trace, of the inputs and the seed";
const TRACED: [&str; 2] = ["trace: messages", "trace: buffers used again"];

impl Answer {
    fn add(
        &mut self,
        name: impl Into<String>,
        value: Datum,
        unit: &'static str,
        from: &'static str,
    ) {
        self.figures.push(Figure { name: name.into(), value, unit, from });
    }

    fn count(
        &mut self,
        name: impl Into<String>,
        value: u64,
        unit: &'static str,
        from: &'static str,
    ) {
        self.add(name, Datum::Number(value as f64), unit, from);
    }

    /// The value of a figure.
    pub fn value(&self, name: &str) -> Option<&Datum> {
        self.figures.iter().find(|figure| figure.name == name).map(|figure| &figure.value)
    }

    fn thresholds(&mut self) {
        self.count("inline up to", INLINE_MAX, "B", "the length of a descriptor (INLINE_MAX)");
        for (words, is_shareable) in [("any memory", false), ("arena memory", true)] {
            let from = rendezvous_from(is_shareable).into();
            self.add(format!("rendezvous from, {words}"), from, "B", COSTS);
        }
        let past = "the length from which a message passes the lane (DIRECT_FROM)";
        self.count("tcp: past the lane from", DIRECT_FROM, "B", past);
        let per_send = cheaper_from(SendMode::PerSend, SendMode::Plain).into();
        self.add("tcp: pinned per send from", per_send, "B", SENDS);
        let cached = cheaper_from(SendMode::Cached, SendMode::PerSend).into();
        self.add("tcp: cached pins from, if all hit", cached, "B", SENDS);
    }

    fn mix(&mut self, inputs: &Inputs, pins: &Pins) {
        for (at, (part, counts)) in inputs.mix.iter().zip(&pins.counts).enumerate() {
            let name = |what: &str| format!("mix {}: {what}", at + 1);
            self.count(name("length"), part.bytes, "B", "the inputs");
            for (words, is_shareable) in [("any memory", false), ("arena memory", true)] {
                let path = Datum::Word(path(part.bytes, is_shareable).name());
                self.add(name(&format!("path, {words}")), path, "", COSTS);
            }
            let mode = send_mode(part.bytes, inputs.memlock, counts.hit_part());
            self.add(name("tcp mode"), Datum::Word(mode_words(mode)), "", SENDS);
            let hits = match counts.hits + counts.misses {
                0 => Datum::None,
                _ => Datum::Number(100.0 * counts.hit_part()),
            };
            self.add(name("pin-down cache hits"), hits, "%", REPLAY);
        }
    }

    fn memory(&mut self, inputs: &Inputs, pins: &Pins) {
        let limit = PinLimits::of(inputs.memlock).endpoint_bytes;
        let half = "half of what may be locked, 1 GiB at most (PinLimits)";
        self.count("pin-down cache: most", limit, "B", half);
        self.count("pin-down cache: budget", pins.budget_bytes, "B", REPLAY);
        let peers = u64::from(inputs.peers);
        let growth = peers * LANE_GROWTH_MAX as u64;
        self.count("lanes: least, all peers", peers * PAIR_BYTES_MIN as u64, "B", LANES);
        self.count("lanes: budget for all to grow", growth, "B", LANES);
        let default = LANE_BYTES_MAX as u64;
        self.count("lanes: default budget", default, "B", "Builder::lane_bytes_max");
        let full = (default / LANE_GROWTH_MAX as u64).min(peers);
        self.count("lanes: peers that can grow by default", full, "", LANES);
    }

    fn tlb(&mut self, inputs: &Inputs, trace: &Trace) -> Result<(), Wrong> {
        let failed = |why| Wrong::new(format!("the TLB: {why}"));
        let found = tlb::wanted(trace, inputs.tlb_misses_percent).map_err(failed)?;
        self.add("nic tlb: entries wanted", found.map(|it| it.0 as u64).into(), "", TLB);
        if let Some((_, misses)) = found {
            self.add("nic tlb: misses with these", Datum::Number(misses.other), "%", TLB);
            self.add("nic tlb: compulsory misses", Datum::Number(misses.compulsory), "%", TLB);
        }
        let given = match inputs.nic_tlb {
            0 => Datum::None,
            entries => Datum::Number(tlb::misses(trace, entries as usize).map_err(failed)?.other),
        };
        self.add("nic tlb: misses as given", given, "%", TLB);
        Ok(())
    }
}

fn mode_words(mode: SendMode) -> &'static str {
    match mode {
        SendMode::Plain | SendMode::TwoCopy => "copied",
        SendMode::PerSend => "pinned per send",
        SendMode::Cached | SendMode::Aligned => "cached pins",
    }
}

/// Sizes a program. Some 0.1 s; the same for the same inputs.
///
/// # Errors
/// An input is out of its range.
pub fn answer(inputs: &Inputs) -> Result<Answer, Wrong> {
    inputs.check()?;
    let trace = Trace::of(inputs);
    let pinned: Vec<bool> =
        inputs.mix.iter().map(|part| may_pin(part.bytes, inputs.memlock)).collect();
    let limit = PinLimits::of(inputs.memlock).endpoint_bytes;
    let pins = pins::size(&trace, &pinned, limit)
        .map_err(|why| Wrong::new(format!("the pin-down cache: {why}")))?;
    let mut answer = Answer { figures: Vec::new() };
    answer.thresholds();
    answer.mix(inputs, &pins);
    answer.memory(inputs, &pins);
    answer.tlb(inputs, &trace)?;
    answer.count(TRACED[0], trace.all.len() as u64, "", TRACE);
    answer.count(TRACED[1], trace.buffers, "", TRACE);
    Ok(answer)
}

/// The changes of an answer when each input is halved, and doubled. Ten times the time of
/// [`answer`].
///
/// # Errors
/// As for [`answer`].
pub fn vary(inputs: &Inputs, given: &Answer) -> Result<Vec<Varied>, Wrong> {
    let mut all = Vec::new();
    for input in Input::ALL {
        for is_doubled in [false, true] {
            let other = answer(&input.varied(inputs, is_doubled))?;
            let changes = given
                .figures
                .iter()
                .filter(|figure| !TRACED.contains(&figure.name.as_str()))
                .filter_map(|figure| {
                    let after = other.value(&figure.name).cloned().unwrap_or(Datum::None);
                    (after != figure.value).then(|| Change {
                        name: figure.name.clone(),
                        before: figure.value.clone(),
                        after,
                        unit: figure.unit,
                    })
                })
                .collect();
            all.push(Varied { input, is_doubled, changes });
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::size::testing::inputs;

    fn number(answer: &Answer, name: &str) -> f64 {
        match answer.value(name) {
            Some(Datum::Number(number)) => *number,
            other => panic!("{name}: {other:?}"),
        }
    }

    #[test]
    fn the_same_inputs_have_the_same_answer_and_another_seed_another() {
        let mut inputs = inputs("4K:8,256K:1");
        let one = answer(&inputs).unwrap();
        assert_eq!(answer(&inputs).unwrap(), one);
        inputs.seed = 2;
        assert_ne!(answer(&inputs).unwrap(), one);
    }

    #[test]
    fn lanes_grow_with_peers_and_a_budget_is_within_memlock() {
        let given = inputs("1M:1");
        let varied = vary(&given, &answer(&given).unwrap()).unwrap();
        assert_eq!(varied.len(), 10);
        let twice = &varied[1];
        assert_eq!((twice.input, twice.is_doubled), (Input::Peers, true));
        let lanes = twice.changes.iter().find(|it| it.name == "lanes: least, all peers").unwrap();
        // A control page, and two pages for each direction.
        assert_eq!(lanes.before, Datum::Number(8.0 * 20_480.0));
        assert_eq!(lanes.after, Datum::Number(16.0 * 20_480.0));
        for shift in [0, 12, 18, 19, 20, 21, 24, 30, 33] {
            let given = Inputs { memlock: 1 << shift, ..given.clone() };
            let answer = answer(&given).unwrap();
            let budget = number(&answer, "pin-down cache: budget");
            assert!(budget <= number(&answer, "pin-down cache: most"), "{shift}: {budget}");
            assert!(budget <= (1u64 << shift) as f64, "{shift}: {budget}");
            let mode = answer.value("mix 1: tcp mode");
            assert_eq!(mode == Some(&Datum::Word("copied")), shift < 19, "{shift}: {mode:?}");
        }
    }

    #[test]
    fn short_messages_pin_nothing_and_wrong_inputs_are_said() {
        let mut inputs = inputs("56:1,8K:1");
        let answer_of_short = answer(&inputs).unwrap();
        assert_eq!(answer_of_short.value("mix 1: path, any memory"), Some(&Datum::Word("inline")));
        assert_eq!(
            answer_of_short.value("mix 2: path, arena memory"),
            Some(&Datum::Word("mapped"))
        );
        assert_eq!(answer_of_short.value("mix 2: pin-down cache hits"), Some(&Datum::None));
        assert_eq!(number(&answer_of_short, "pin-down cache: budget"), 0.0);
        inputs.nic_tlb = 3;
        assert!(answer(&inputs).unwrap_err().to_string().contains("power of two"));
    }
}
