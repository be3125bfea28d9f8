//! The results that are kept: a folder with a JSON file for each experiment and depth.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{
    LabError,
    experiment::{Depth, Experiment},
    outcome::Outcome,
    registry, table,
};

/// The format of the files; a file of another format is no result.
const FORMAT: u32 = 1;

/// A result, and all that it depends on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The format of the file.
    pub format: u32,
    /// The experiment.
    pub id: String,
    /// The version of Pinfold.
    pub version: String,
    /// How much was run.
    pub depth: Depth,
    /// The seed.
    pub seed: u64,
    /// True if this machine was to be measured.
    pub here: bool,
    /// The machine, in words.
    pub machine: String,
    /// Time of the run, seconds.
    pub took_s: f64,
    /// The results.
    pub outcome: Outcome,
}

/// All that a result depends on, but the machine's mood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// How much is run.
    pub depth: Depth,
    /// The seed.
    pub seed: u64,
    /// True if this machine is to be measured.
    pub here: bool,
    /// The machine, in words.
    pub machine: String,
}

impl Terms {
    /// A result that was got under these terms.
    pub fn record(&self, id: &str, took_s: f64, outcome: Outcome) -> Record {
        let Terms { depth, seed, here, machine } = self.clone();
        let (id, version) = (id.into(), env!("CARGO_PKG_VERSION").into());
        Record { format: FORMAT, id, version, depth, seed, here, machine, took_s, outcome }
    }

    /// Returns whether a result answers what these terms ask: it is of this version, and this
    /// machine was measured if it is to be.
    pub fn has(&self, record: &Record) -> bool {
        let same = (record.depth, record.seed, record.version.as_str())
            == (self.depth, self.seed, env!("CARGO_PKG_VERSION"));
        same && (!self.here || record.here && record.machine == self.machine)
    }
}

/// A folder of results.
#[derive(Clone, Debug)]
pub struct Store {
    folder: PathBuf,
}

impl Store {
    /// The results in a folder, which is made as soon as there is one to keep.
    pub fn at(folder: impl Into<PathBuf>) -> Store {
        Store { folder: folder.into() }
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The file of a result.
    pub fn file(&self, id: &str, depth: Depth) -> PathBuf {
        self.folder.join(format!("{id}-{depth}.json"))
    }

    /// The result of an experiment, if there is one.
    ///
    /// # Errors
    /// The file cannot be read, or holds no result.
    pub fn get(&self, id: &str, depth: Depth) -> Result<Option<Record>, LabError> {
        let path = self.file(id, depth);
        match path.try_exists() {
            Ok(false) => Ok(None),
            _ => read(&path).map(Some),
        }
    }

    /// Keeps a result, and its table as CSV beside it.
    ///
    /// # Errors
    /// The folder cannot be made, or a file not be written.
    pub fn put(&self, record: &Record) -> Result<(), LabError> {
        let made = fs::create_dir_all(&self.folder);
        made.map_err(|source| file_error("make", &self.folder, source))?;
        let path = self.file(&record.id, record.depth);
        let mut text =
            serde_json::to_string_pretty(record).map_err(|why| unreadable(&path, why))?;
        text.push('\n');
        write(&path.with_extension("csv"), &table::csv(&record.outcome))?;
        // The result is there once all of it is.
        write(&path, &text)
    }

    /// All results of a depth, in the order of the registry.
    ///
    /// # Errors
    /// A file cannot be read, or holds no result; there is none at all.
    pub fn all(&self, depth: Depth) -> Result<Vec<Record>, LabError> {
        let get = |one: &'static Experiment| self.get(one.id, depth).transpose();
        let found: Vec<Record> = registry::all().filter_map(get).collect::<Result<_, _>>()?;
        if found.is_empty() {
            return Err(LabError::Nothing { path: self.folder.clone() });
        }
        Ok(found)
    }
}

/// Reads the result in a file.
///
/// # Errors
/// It cannot be read, or holds no result.
pub fn read(path: &Path) -> Result<Record, LabError> {
    let text = fs::read_to_string(path).map_err(|source| file_error("read", path, source))?;
    let record: Record = serde_json::from_str(&text).map_err(|why| unreadable(path, why))?;
    if record.format != FORMAT {
        return Err(unreadable(path, format!("its format is {}, not {FORMAT}", record.format)));
    }
    Ok(record)
}

/// Writes a file beside its place, then puts it there.
fn write(path: &Path, text: &str) -> Result<(), LabError> {
    pinfold_bench::html::replace(path, text.as_bytes())
        .map_err(|source| file_error("write", path, source))
}

fn file_error(doing: &'static str, path: &Path, source: io::Error) -> LabError {
    LabError::File { doing, path: path.into(), source }
}

fn unreadable(path: &Path, why: impl ToString) -> LabError {
    LabError::Unreadable { path: path.into(), why: why.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{experiment::SEED, outcome::Value};

    fn terms() -> Terms {
        Terms { depth: Depth::Quick, seed: SEED, here: true, machine: "a machine".into() }
    }

    fn record() -> Record {
        let mut outcome = Outcome::new();
        outcome.values.push(Value::new("time", "a", "4 B", "s").paper(0.1, "Table 1").model(0.3));
        terms().record("ape-system", 0.25, outcome)
    }

    #[test]
    fn what_is_kept_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::at(folder.path().join("new/results"));
        assert_eq!(store.get("ape-system", Depth::Quick).unwrap(), None);
        assert!(store.all(Depth::Quick).unwrap_err().to_string().contains("has no results"));
        store.put(&record()).unwrap();
        assert_eq!(store.get("ape-system", Depth::Quick).unwrap(), Some(record()));
        assert_eq!(store.get("ape-system", Depth::Full).unwrap(), None);
        let csv = store.file("ape-system", Depth::Quick).with_extension("csv");
        assert!(fs::read_to_string(csv).unwrap().contains("0.3"));
    }

    #[test]
    fn a_result_answers_the_terms_that_it_was_got_under() {
        let kept = record();
        assert!(terms().has(&kept));
        assert!(!Terms { seed: 1, ..terms() }.has(&kept));
        assert!(!Terms { depth: Depth::Full, ..terms() }.has(&kept));
        assert!(!Terms { machine: "another".into(), ..terms() }.has(&kept));
        assert!(Terms { machine: "another".into(), here: false, ..terms() }.has(&kept));
        assert!(!terms().has(&Record { here: false, ..kept.clone() }));
        assert!(!terms().has(&Record { version: "0.0.0".into(), ..kept }));
    }

    #[test]
    fn files_that_hold_no_result_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::at(folder.path());
        let path = store.file("pm-pin", Depth::Quick);
        for text in ["", "{}", "nonsense", &serde_json::to_string(&record()).unwrap()[..40]] {
            fs::write(&path, text).unwrap();
            let error = store.get("pm-pin", Depth::Quick).unwrap_err().to_string();
            assert!(error.contains("pm-pin-quick.json is no result"), "{error}");
        }
        let old = serde_json::to_string(&Record { format: 0, ..record() }).unwrap();
        fs::write(&path, old).unwrap();
        let error = store.get("pm-pin", Depth::Quick).unwrap_err().to_string();
        assert!(error.contains("its format is 0"), "{error}");
        let nowhere = Store::at("/dev/null/results").put(&record()).unwrap_err().to_string();
        assert!(nowhere.contains("cannot make /dev/null/results"), "{nowhere}");
    }
}
