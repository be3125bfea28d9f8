//! The side of a rank: its part of the job, and the lines to the process that started it.

use std::{
    cell::RefCell,
    io::{BufRead, Write},
};

use pinfold::RegionKey;

use super::{
    super::live::{Meet, rank},
    lines::{Begin, Part, Said, Told, sum},
};

/// The line to the process that started this one.
struct Line<R, W> {
    names: Vec<String>,
    ends: RefCell<(R, W)>,
}

/// Reads a line. `None` at the end.
fn line<T: serde::de::DeserializeOwned>(input: &mut impl BufRead) -> Result<Option<T>, String> {
    let mut text = String::new();
    match input.read_line(&mut text) {
        Ok(0) => Ok(None),
        Ok(_) => serde_json::from_str(&text).map(Some).map_err(|why| format!("{why}: {text}")),
        Err(why) => Err(why.to_string()),
    }
}

fn say(output: &mut impl Write, what: &Said) -> Result<(), String> {
    let text = serde_json::to_string(what).map_err(|why| why.to_string())?;
    let written = writeln!(output, "{text}").and_then(|()| output.flush());
    written.map_err(|why| format!("the process that started this one does not listen: {why}"))
}

impl<R: BufRead, W: Write> Line<R, W> {
    fn ask(&self, what: &Said) -> Result<Told, String> {
        let (input, output) = &mut *self.ends.borrow_mut();
        say(output, what)?;
        line(input)?.ok_or_else(|| "the process that started this one has ended".into())
    }
}

impl<R: BufRead, W: Write> Meet for Line<R, W> {
    fn names(&self) -> &[String] {
        &self.names
    }

    fn keys(&self, _rank: usize, key: RegionKey) -> Result<Vec<RegionKey>, String> {
        match self.ask(&Said::Key(key.to_bytes().to_vec()))? {
            Told::Keys(keys) if keys.len() == self.names.len() => {
                let key = |bytes: &Vec<u8>| RegionKey::from_bytes(bytes);
                keys.iter().map(key).collect::<Result<_, _>>().map_err(|why| why.to_string())
            }
            other => Err(format!("{other:?} is no answer to a key")),
        }
    }

    fn wait(&self) -> Result<(), String> {
        match self.ask(&Said::Here)? {
            Told::Go => Ok(()),
            other => Err(format!("{other:?} is no answer to a rank that waits")),
        }
    }

    /// The process that started this one ends it if another rank fails.
    fn is_broken(&self) -> bool {
        false
    }
}

fn run<R: BufRead, W: Write>(begin: &Begin, line: &Line<R, W>) -> Result<Part, String> {
    begin.job.check()?;
    if begin.names.len() != begin.job.ranks {
        return Err(format!("{} names of {} ranks", begin.names.len(), begin.job.ranks));
    }
    let mut part = begin.job.part(begin.rank)?;
    let traced = rank(begin.rank, &mut *part, line)?;
    Ok(Part::new(sum(&part.result()), traced.address, &traced.log, &traced.at_ns))
}

/// Runs a rank, as the lines of `input` say, and says to `output` how it went.
///
/// # Errors
/// It failed, in words; the process that started this one has been told, if it listens.
pub fn serve(mut input: impl BufRead, output: impl Write) -> Result<(), String> {
    let begin: Option<Begin> = line(&mut input)?;
    let begin =
        begin.ok_or("a rank is started by `pinfold lab workload`, which says what it is")?;
    let line = Line { names: begin.names.clone(), ends: RefCell::new((input, output)) };
    let done = run(&begin, &line);
    let output = &mut line.ends.borrow_mut().1;
    match done {
        Ok(part) => say(output, &Said::Ended(Box::new(part))),
        Err(why) => {
            say(output, &Said::Failed(why.clone()))?;
            Err(why)
        }
    }
}
