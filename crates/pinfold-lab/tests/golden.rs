//! Every experiment, quick and without measuring this machine: its model's values are those of the
//! committed table, its predictions agree with the paper or are explained, and the report shows it.

use pinfold_lab::{
    agreement::{self, Agreement},
    experiment::{Depth, Experiment, Paper, SEED},
    golden, registry, report, runner,
    store::{Record, Terms},
};

fn run(one: &Experiment) -> Record {
    let terms = Terms { depth: Depth::Quick, seed: SEED, here: false, machine: "a machine".into() };
    runner::run_one(one, &terms, &mut |_, _| {}).unwrap()
}

/// The parts of a result that are missing.
fn missing(one: &Experiment, record: &Record) -> Vec<String> {
    let (id, outcome) = (one.id, &record.outcome);
    let mut missing = Vec::new();
    let mut say = |text: String| missing.push(format!("{id}: {text}"));
    if outcome.claims.is_empty() {
        say("no claim is judged".into());
    }
    for claim in &outcome.claims {
        let why = [&claim.model.why, &claim.here.why];
        if why.into_iter().any(String::is_empty) || claim.sentence.ends_with('.') {
            say(format!("{}: without a reason, or with a dot", claim.sentence));
        }
    }
    let mut names: Vec<String> = outcome.values.iter().map(|value| value.name()).collect();
    names.sort();
    if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        say(format!("two values are {}", pair[0]));
    }
    for value in &outcome.values {
        let differs = matches!(agreement::of(value), Agreement::Differs(_));
        if differs && value.note.is_none() {
            say(format!("{} differs from the paper, and no note says why", value.name()));
        }
        if value.here.is_some() {
            say(format!("{} was measured although nobody asked for that", value.name()));
        }
    }
    missing
}

/// The elements of a page that are closed in another order than they were opened.
fn unbalanced(page: &str) -> Option<String> {
    const VOID: [&str; 2] = ["meta", "!DOCTYPE"];
    let mut open: Vec<&str> = Vec::new();
    for tag in page.split('<').skip(1) {
        let Some((tag, _)) = tag.split_once('>') else { return Some(format!("no end: {tag}")) };
        let name = tag.trim_start_matches('/').split([' ', '/', '\n']).next().unwrap_or("");
        match tag {
            _ if VOID.contains(&name) || tag.ends_with('/') => {}
            _ if tag.starts_with('/') && open.pop() != Some(name) => return Some(tag.into()),
            _ if tag.starts_with('/') => {}
            _ => open.push(name),
        }
    }
    (!open.is_empty()).then(|| format!("left open: {open:?}"))
}

/// Complaints about the plots of a page: each is there, and something is drawn for each series.
fn undrawn(page: &str, record: &Record) -> Vec<String> {
    let drawn: Vec<usize> = page
        .split("<svg")
        .skip(1)
        .map(|svg| {
            let svg = svg.split("</svg>").next().unwrap_or("");
            ["<circle", "<polyline", "<path"].iter().map(|it| svg.matches(it).count()).sum()
        })
        .collect();
    let plots = &record.outcome.plots;
    let mut wrong = Vec::new();
    if drawn.len() != plots.len() {
        wrong.push(format!("{}: {} of {} plots", record.id, drawn.len(), plots.len()));
    }
    for (plot, drawn) in plots.iter().zip(drawn) {
        let series = plot.series.iter().filter(|it| !it.points.is_empty()).count();
        if series == 0 || drawn < series {
            let title = &plot.title;
            wrong.push(format!("{}: {title}: {drawn} elements, {series} series", record.id));
        }
    }
    wrong
}

#[track_caller]
fn all_of(paper: Paper) {
    let mut wrong = Vec::new();
    for one in registry::of(paper) {
        let record = run(one);
        assert_eq!(record.outcome, run(one).outcome, "{}: two runs differ", one.id);
        wrong.extend(golden::check(one.id, &record.outcome).err());
        wrong.extend(missing(one, &record));
        let page = report::page(std::slice::from_ref(&record));
        wrong.extend(unbalanced(&page).map(|tag| format!("{}: {tag}", one.id)));
        wrong.extend(undrawn(&page, &record));
        for part in [&format!("<h3>{}: ", one.id), "<svg", "</svg>"] {
            if !page.contains(part) {
                wrong.push(format!("{}: the report has no {part}", one.id));
            }
        }
        // Nothing is fetched from anywhere.
        for reference in ["http:", "https:", "src=", "href=", "url(", "@import", "<script"] {
            assert!(!page.contains(reference), "{}: {reference}", one.id);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn experiments_of_vmmr() {
    all_of(Paper::Vmmr);
}

#[test]
fn experiments_of_unet() {
    all_of(Paper::Unet);
}

#[test]
fn experiments_of_ape() {
    all_of(Paper::Ape);
}

#[test]
fn experiments_of_bmo() {
    all_of(Paper::Bmo);
}

#[test]
fn experiments_of_pm() {
    all_of(Paper::Pm);
}

#[test]
fn each_golden_table_has_its_experiment() {
    let folder = golden::file("x").parent().unwrap().to_owned();
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name.starts_with('.') {
            continue;
        }
        let id = name.strip_suffix(".csv").unwrap_or_else(|| panic!("{name} is no table"));
        assert!(registry::all().any(|one| one.id == id), "{name} has no experiment");
    }
}
