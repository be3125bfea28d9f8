//! `pinfold lab`: lists, results that are kept, the report, comparisons, exit statuses.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use pinfold_lab::registry;
use pinfold_tests::skip;
use serde_json::Value;
use tempfile::TempDir;

/// A place of its own for results.
struct Place(TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn lab(&self, words: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pinfold"));
        command.arg("lab").args(words.split(' ')).current_dir(self.0.path());
        command.output().unwrap()
    }

    /// The experiments, by their results in the folder `results`, with a claim that fails in the
    /// model.
    fn failed(&self) -> Vec<&'static str> {
        let fails = |one: &&pinfold_lab::experiment::Experiment| {
            let file = self.path(&format!("results/{}-quick.json", one.id));
            let record: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
            let claims = record["outcome"]["claims"].as_array().unwrap().clone();
            claims.iter().any(|claim| claim["model"]["verdict"] == "fails")
        };
        registry::all().filter(fails).map(|one| one.id).collect()
    }

    /// The output of a command that has to end so.
    #[track_caller]
    fn ends(&self, words: &str, code: i32) -> (String, String) {
        let done = self.lab(words);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (out, err) = (text(&done.stdout), text(&done.stderr));
        assert_eq!(done.status.code(), Some(code), "{words}: {out}{err}");
        (out, err)
    }
}

#[track_caller]
fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn edit(file: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(file).unwrap();
    assert!(text.contains(from), "{from}: {text}");
    fs::write(file, text.replacen(from, to, 1)).unwrap();
}

#[test]
fn the_list_has_every_experiment() {
    let place = Place::new();
    let (text, _) = place.ends("list", 0);
    let (json, _) = place.ends("list --json", 0);
    let all = lines(&json);
    assert_eq!(all.len(), registry::all().count());
    for (one, object) in registry::all().zip(all) {
        assert!(text.contains(one.id) && text.contains(one.title), "{}: {text}", one.id);
        assert_eq!(object["id"], one.id);
        assert_eq!(object["claim"], one.claim);
    }
}

#[test]
fn results_are_kept_and_not_got_again() {
    let place = Place::new();
    let (json, _) = place.ends("run ape-system --no-here --json --out results", 0);
    let result = &lines(&json)[0];
    assert_eq!((&result["id"], &result["depth"]), (&"ape-system".into(), &"quick".into()));
    let value = &result["outcome"]["values"][0];
    assert_eq!(
        (&value["series"], &value["paper"]["place"]),
        (&"two-copy".into(), &"Table 5.1".into())
    );
    assert_eq!(result["outcome"]["claims"][0]["model"]["verdict"], "holds");
    assert_eq!(result["outcome"]["claims"][0]["here"]["verdict"], "not_measured");
    let kept = fs::read_to_string(place.path("results/ape-system-quick.json")).unwrap();
    let kept: Value = serde_json::from_str(&kept).unwrap();
    assert_eq!(&kept, result);
    assert!(place.path("results/ape-system-quick.csv").exists());

    let earlier = "kept from an earlier run";
    let (text, _) = place.ends("run ape-system --no-here --out results", 0);
    assert!(text.contains(earlier) && text.contains("two-copy") && text.contains("24"), "{text}");
    let (text, _) = place.ends("run ape-system --no-here --out results --again", 0);
    assert!(!text.contains(earlier), "{text}");
    let (text, _) = place.ends("run ape-system --no-here --out results --seed 7", 0);
    assert!(!text.contains(earlier), "{text}");
    // A whole paper: no tables, a claim for each.
    let (text, _) = place.ends("run ape --no-here --out results --seed 7", 0);
    assert_eq!(text.matches(earlier).count(), 1, "{text}");
    assert!(text.contains("ape-gather: ") && !text.contains("two-copy  "), "{text}");
}

#[test]
fn a_claim_that_fails_is_a_failure_and_the_results_are_shown() {
    let place = Place::new();
    place.ends("run ape-lock --no-here --out results", 0);
    let file = place.path("results/ape-lock-quick.json");
    edit(&file, "\"verdict\": \"holds\"", "\"verdict\": \"fails\"");
    let (text, why) = place.ends("run ape-lock --no-here --out results", 1);
    assert!(
        text.contains("fails") && why.contains("claims fail in the models of ape-lock"),
        "{why}"
    );
}

#[test]
fn words_that_make_no_sense() {
    let place = Place::new();
    for (words, says) in [
        ("run", "required arguments"),
        ("run nonsense", "there is no experiment nonsense"),
        ("run ape-system --quick --full", "cannot be used with"),
        ("run ape-system --seed x", "invalid value"),
        ("compare one", "required arguments"),
        ("compare nowhere nowhere", "cannot read nowhere"),
    ] {
        let (out, why) = place.ends(words, 2);
        assert!(out.is_empty() && why.contains(says), "{words}: {why}");
    }
    fs::create_dir(place.path("empty")).unwrap();
    let (_, why) = place.ends("compare empty empty", 2);
    assert!(why.contains("empty has no results"), "{why}");
    assert_eq!(fs::read_dir(place.0.path()).unwrap().count(), 1, "something was made");
}

#[test]
fn files_that_are_no_results_are_named() {
    let place = Place::new();
    fs::create_dir(place.path("results")).unwrap();
    fs::write(place.path("results/ape-lock-quick.json"), "{").unwrap();
    let (_, why) = place.ends("run ape-lock --no-here --out results", 1);
    assert!(why.contains("ape-lock-quick.json is no result"), "{why}");
    // A new result takes its place.
    place.ends("run ape-lock --no-here --out results --again", 0);
    place.ends("run ape-lock --no-here --out results", 0);
    fs::write(place.path("file"), "").unwrap();
    let (_, why) = place.ends("run ape-lock --no-here --out file", 1);
    assert!(why.contains("file"), "{why}");
}

#[test]
fn the_report_has_every_experiment_and_its_plots() {
    let place = Place::new();
    let done = place.lab("report --no-here --results results --out lab.html");
    let failed = place.failed();
    let code = i32::from(!failed.is_empty());
    let (text, why) =
        (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert_eq!(done.status.code(), Some(code), "{text}{why}");
    if code == 1 {
        let named = format!("claims fail in the models of {}\n", failed.join(", "));
        assert!(why.contains(&named), "{named}: {why}");
    }
    let count = registry::all().count();
    assert!(text.contains(&format!("{count} experiments are in lab.html")), "{text}");
    let page = fs::read_to_string(place.path("lab.html")).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
    let sections: Vec<&str> = page.split("<h3>").skip(1).collect();
    assert_eq!(sections.len(), count);
    for (one, section) in registry::all().zip(sections) {
        assert!(section.starts_with(&format!("{}: ", one.id)), "{}", one.id);
        assert!(section.contains("<svg") && section.contains("</svg>"), "{} has no plot", one.id);
    }
    for reference in ["http:", "https:", "src=", "href=", "url(", "@import", "<script"] {
        assert!(!page.contains(reference), "{reference}");
    }
    in_a_browser(&place, &page);
    // All results are there now.
    let (text, _) = place.ends("run all --no-here --out results", code);
    assert_eq!(text.matches("kept from an earlier run").count(), count, "{text}");
    let (_, why) = place.ends("report --no-here --results results --out nowhere/lab.html", 1);
    assert!(why.contains("cannot write nowhere/lab.html"), "{why}");
}

/// A program that looks at every plot of a page as it is drawn, and says what it found: how many
/// there are, the numbers of those that take no room or in which nothing does, by how much the page
/// is wider than the window, and the words that lie outside of their plot.
const LOOK: &str = "<script>
const has_room = it => { const at = it.getBoundingClientRect(); return at.width + at.height > 1; };
const all = [...document.querySelectorAll('svg')];
const bad = all.flatMap((svg, at) => {
  const inner = [...svg.querySelectorAll('circle, polyline, path')];
  return has_room(svg) && inner.some(has_room) ? [] : [at];
});
const root = document.documentElement, wide = root.scrollWidth - root.clientWidth;
const box = it => it.getBoundingClientRect();
const out = all.flatMap((svg, at) => [...svg.querySelectorAll('text')].filter(text => {
  const a = box(text), b = box(svg), within = a.left > b.left - 2 && a.right < b.right + 2;
  return text.textContent.trim() && !(within && a.top > b.top - 2 && a.bottom < b.bottom + 2);
}).map(text => at + text.textContent.trim()));
document.title = `plots ${all.length} bad ${bad.join(' ')} wide ${wide} out ${out.join(' ')}.`;
</script></body>";

/// Opens a page in Chromium, if there is one, without a screen.
fn in_a_browser(place: &Place, page: &str) {
    let names = ["chromium", "chromium-browser", "google-chrome", "chrome", "headless_shell"];
    let is_there = |name: &&&str| Command::new(name).arg("--version").output().is_ok();
    let Some(browser) = names.iter().find(is_there) else {
        skip(&format!("the report is opened in no browser: there is none of {}", names.join(", ")));
        return;
    };
    let file = place.path("look.html");
    fs::write(&file, page.replace("</body>", LOOK)).unwrap();
    let words = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=10000"];
    let plots = page.matches("<svg").count();
    assert!(plots >= registry::all().count(), "{plots}");
    let title = format!("<title>plots {plots} bad  wide 0 out .</title>");
    // A screen, and a telephone's.
    for size in ["1280,900", "420,800"] {
        let mut command = Command::new(browser);
        command.args(words).arg(format!("--window-size={size}"));
        command.arg("--dump-dom").arg(format!("file://{}", file.display()));
        let done = command.env("HOME", place.0.path()).output().unwrap();
        let dom = String::from_utf8_lossy(&done.stdout);
        let found = dom.split("<title>").nth(1).map(|it| it.chars().take(200).collect::<String>());
        let why = String::from_utf8_lossy(&done.stderr);
        assert!(dom.contains(&title), "{size}: {title}: {found:?}: {why}");
    }
}

#[test]
fn comparisons_name_what_differs() {
    let place = Place::new();
    place.ends("run pm-pin ape-lock --no-here --out one", 0);
    place.ends("run pm-pin ape-lock --no-here --out two", 0);
    let (text, _) = place.ends("compare one two", 0);
    assert_eq!(text, "nothing differs\n");
    let file = place.path("two/pm-pin-quick.json");
    edit(&file, "\"model\": 47.0", "\"model\": 94.0");
    let (text, _) = place.ends("compare one two", 1);
    assert_eq!(text, "pm-pin: pinning, miss, 1 page: model: 47.00 / 94.00 µs (+100.0 %)\n");
    let (same, _) = place.ends("compare one/pm-pin-quick.json two/pm-pin-quick.json", 1);
    assert_eq!(same, text);
    fs::remove_file(file).unwrap();
    let (text, _) = place.ends("compare one two", 1);
    assert_eq!(text, "pm-pin: only the first has it\n");
}

#[test]
fn a_program_is_sized_the_same_each_time_and_each_figure_has_a_source() {
    let place = Place::new();
    let words = "size --peers 16 --mix 64:8,64K:2,1M:1 --memlock 64M --reuse 90 --nic-tlb 1024";
    let (json, _) = place.ends(&format!("{words} --json"), 0);
    assert_eq!(place.ends(&format!("{words} --json"), 0).0, json);
    let object = &lines(&json)[0];
    assert_eq!(object["inputs"]["mix"][1]["bytes"], 65_536);
    let figures = object["figures"].as_array().unwrap();
    assert!(figures.iter().all(|it| !it["from"].as_str().unwrap().is_empty()), "{json}");
    let value = |name: &str| &figures.iter().find(|it| it["name"] == name).unwrap()["value"];
    let number = |name: &str| value(name).as_f64().unwrap();
    assert_eq!(number("inline up to"), 56.0);
    assert_eq!(value("mix 2: tcp mode"), "pinned per send");
    assert_eq!(value("mix 3: tcp mode"), "cached pins");
    assert_eq!(number("pin-down cache: most"), f64::from(32 << 20));
    let budget = number("pin-down cache: budget");
    assert!(budget > 0.0 && budget <= f64::from(32 << 20), "{budget}");
    assert!(number("nic tlb: misses with these") < 1.0);
    assert!(
        number("nic tlb: entries wanted") > 1024.0 && number("nic tlb: misses as given") >= 1.0
    );

    let sensitivity = object["sensitivity"].as_array().unwrap();
    assert_eq!(sensitivity.len(), 10);
    let of = |input: &str| sensitivity.iter().find(|it| it["input"] == input).unwrap();
    let peers = of("peers")["changes"].as_array().unwrap();
    assert!(peers.iter().any(|it| it["name"] == "lanes: least, all peers"), "{json}");
    let (text, _) = place.ends(words, 0);
    assert!(text.contains("memlock halved: ") && text.contains("from the library's"), "{text}");
}

#[test]
fn sizes_of_no_program_are_refused() {
    let place = Place::new();
    let rest = "--memlock 1M --reuse";
    for (words, says) in [
        ("size", "required arguments"),
        ("size --peers 1 --mix 64K --memlock 1 --reuse 1", "write LEN:SHARE"),
        (&*format!("size --peers 0 --mix 1:1 {rest} 1"), "0 peers"),
        (&*format!("size --peers 1 --mix 1:1 {rest} 101"), "cannot be used again"),
        (&*format!("size --peers 1 --mix 1:1 {rest} 1 --nic-tlb 3"), "power of two"),
        (&*format!("size --peers 1 --mix 1G:1 {rest} 1"), "1 to 67108864"),
        (&*format!("size --peers 1 --mix 1:0 {rest} 1"), "share of 0"),
    ] {
        let (out, why) = place.ends(words, 2);
        assert!(out.is_empty() && why.contains(says), "{words}: {why}");
    }
}
