//! The table of all experiments.

use crate::{
    LabError,
    experiment::{Experiment, Paper},
    experiments::{ape, bmo, pm, unet, vmmr},
};

/// The word for all experiments.
const ALL: &str = "all";

/// The experiments of a paper.
pub fn of(paper: Paper) -> &'static [Experiment] {
    match paper {
        Paper::Vmmr => vmmr::EXPERIMENTS,
        Paper::Unet => unet::EXPERIMENTS,
        Paper::Ape => ape::EXPERIMENTS,
        Paper::Bmo => bmo::EXPERIMENTS,
        Paper::Pm => pm::EXPERIMENTS,
    }
}

/// All experiments, paper by paper.
pub fn all() -> impl Iterator<Item = &'static Experiment> {
    Paper::ALL.into_iter().flat_map(of)
}

/// The experiments that words name: ids, papers' words such as `ape`, or `all`. Each once, in the
/// order of [`all`].
///
/// # Errors
/// [`LabError::Unknown`] naming the word.
pub fn find(words: &[String]) -> Result<Vec<&'static Experiment>, LabError> {
    let names = |word: &String, one: &Experiment| word == one.id || word == one.paper.word();
    if let Some(word) = words.iter().find(|word| *word != ALL && !all().any(|one| names(word, one)))
    {
        return Err(LabError::Unknown(word.clone()));
    }
    Ok(all().filter(|one| words.iter().any(|word| word == ALL || names(word, one))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_begin_with_the_papers_word() {
        let mut ids: Vec<&str> = all().map(|one| one.id).collect();
        let count = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), count);
        for one in all() {
            let rest = one.id.strip_prefix(one.paper.word()).and_then(|r| r.strip_prefix('-'));
            assert!(rest.is_some_and(|rest| !rest.is_empty()), "{}", one.id);
            for text in [one.title, one.what, one.claim] {
                assert!(!text.is_empty() && !text.ends_with('.'), "{}: {text:?}", one.id);
            }
        }
    }

    #[test]
    fn words_name_experiments() {
        let find = |words: &[&str]| find(&words.iter().map(|w| w.to_string()).collect::<Vec<_>>());
        assert_eq!(find(&["all"]).unwrap().len(), all().count());
        for one in all() {
            assert_eq!(find(&[one.id, one.id]).unwrap().len(), 1);
            assert_eq!(find(&[one.id, one.paper.word()]).unwrap().len(), of(one.paper).len());
        }
        let error = find(&["all", "nonsense"]).unwrap_err().to_string();
        assert!(error.contains("no experiment nonsense"), "{error}");
    }
}
