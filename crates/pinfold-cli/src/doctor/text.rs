//! The report, for people.

use std::fmt::Write as _;

use pinfold_bench::units;

use super::report::{
    Cost, Costs, Facility, Limit, Problem, Remedy, Report, Room, Severity, Status, Use,
};
use crate::fold::{Width, fold, hanging};

/// Good, worth a look, bad.
#[derive(Clone, Copy)]
enum Shade {
    Plain,
    Bold,
    Green,
    Yellow,
    Red,
}

/// Text that grows.
struct Page {
    text: String,
    color: bool,
    width: Width,
}

impl Page {
    fn line(&mut self, text: impl std::fmt::Display) {
        // Writing to a string does not fail.
        let _ = writeln!(self.text, "{text}");
    }

    /// A text behind `head`, in as many lines as it needs. Commands are not for this: they are
    /// copied.
    fn said(&mut self, head: &str, text: &str) {
        for line in hanging(head, text, self.width) {
            self.line(line);
        }
    }

    fn title(&mut self, text: &str) {
        let title = self.paint(text, Shade::Bold);
        self.line(format_args!("\n{title}"));
    }

    fn paint(&self, text: &str, shade: Shade) -> String {
        let code = match shade {
            Shade::Plain => return text.to_owned(),
            Shade::Bold => 1,
            Shade::Green => 32,
            Shade::Yellow => 33,
            Shade::Red => 31,
        };
        if self.color { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// A name, a word, and remarks on it.
    fn row(&mut self, name: &str, word: &str, shade: Shade, more: &str) {
        let (name, word) = (format!("  {name:20} "), format!("{word:8}"));
        let before = name.chars().count() + word.chars().count() + 1;
        let word = self.paint(&word, shade);
        for (at, line) in fold(more, before, self.width).into_iter().enumerate() {
            match at {
                0 => self.line(format!("{name}{word} {line}").trim_end()),
                _ => self.line(format_args!("{:before$}{line}", "")),
            }
        }
    }
}

/// All of it, in lines that fit into `width`, but for commands.
pub(crate) fn render(report: &Report, color: bool, width: Width) -> String {
    let mut page = Page { text: String::new(), color, width };
    let shade = match report.verdict.exit {
        0 => Shade::Green,
        1 => Shade::Yellow,
        _ => Shade::Red,
    };
    let head = format!("pinfold {}: ", report.version);
    for (at, line) in hanging(&head, &format!("{}.", report.verdict.text), width).iter().enumerate()
    {
        let (head, line) = line.split_at(if at == 0 { head.len() } else { 0 });
        let line = page.paint(line, shade);
        page.line(format_args!("{head}{line}"));
    }
    here(&mut page, report);
    paths(&mut page, report);
    facilities(&mut page, &report.facilities);
    if let Some(found) = &report.costs {
        costs(&mut page, found);
    }
    limits(&mut page, &report.limits);
    problems(&mut page, &report.problems);
    page.text
}

fn here(page: &mut Page, report: &Report) {
    let (machine, user, processors) = (&report.machine, &report.user, &report.processors);
    page.title("HERE");
    let mut parts = vec![machine.processor.clone().unwrap_or_else(|| "unknown processor".into())];
    parts.extend(machine.hypervisor.as_ref().map(|name| format!("a virtual machine ({name})")));
    parts.extend(machine.memory_bytes.map(units::gibibytes));
    parts.extend(machine.kernel.as_ref().map(|kernel| format!("Linux {kernel}")));
    page.said("  ", &parts.join(", "));
    let mut parts = Vec::new();
    if let Some(usable) = &processors.usable {
        let of = processors.online.filter(|&online| online != usable.len());
        let of = of.map_or(String::new(), |online| format!(" of {online}"));
        let s = if usable.len() == 1 { "" } else { "s" };
        parts.push(format!("{}{of} processor{s} usable", usable.len()));
    }
    parts.extend(processors.quota.map(|quota| format!("time for {}", units::number(quota))));
    match (processors.same_core, processors.shared_cache) {
        (Some(true), _) => parts.push("hardware threads of one core".into()),
        (_, Some(true)) => parts.push("one cache".into()),
        (_, Some(false)) => parts.push("several caches".into()),
        _ => {}
    }
    if !machine.features.is_empty() {
        parts.push(machine.features.join(" "));
    }
    page.said("  ", &parts.join(", "));
    let name = user.name.as_ref().map_or(String::new(), |name| format!(" ({name})"));
    let mut parts = vec![format!("user {}{name}", user.uid)];
    match machine.container {
        "none" => {}
        name => parts.push(format!("in a container ({name})")),
    }
    if user.user_namespace == Some("other") {
        parts.push("in a user namespace of its own".into());
    }
    match user.seccomp {
        Some("off") => parts.push("system calls not filtered".into()),
        Some(_) => parts.push(
            "system calls filtered (peers without that filter leave its memory alone)".into(),
        ),
        None => {}
    }
    if user.dumpable == Some(false) {
        parts.push("not dumpable".into());
    }
    page.said("  ", &parts.join(", "));
}

fn paths(page: &mut Page, report: &Report) {
    page.title("PATHS");
    let mut all: Vec<_> = report.paths.iter().collect();
    all.sort_by_key(|(name, _)| {
        PATHS.iter().position(|known| known == name).unwrap_or(PATHS.len())
    });
    for (name, path) in all {
        let good_for = match name.as_str() {
            "inline" => "up to 56 bytes, in the descriptor",
            "eager" => "two copies, through shared memory",
            "cma" => "one copy, by the kernel",
            "mapped" => "one copy, out of an arena that is mapped",
            "handoff" => "no copy: memory of an arena changes hands",
            _ => "",
        };
        let (word, shade) = if path.works { ("yes", Shade::Green) } else { ("no", Shade::Red) };
        let more = path.why.as_deref().unwrap_or(good_for);
        page.row(name, word, shade, more);
    }
    let names = &report.names;
    let (word, shade) = if names.works { ("yes", Shade::Green) } else { ("no", Shade::Red) };
    let more = match (&names.directory, names.free_bytes, &names.why) {
        (Some(place), Some(free), _) => format!("in {place}, {} free", units::gibibytes(free)),
        (Some(place), None, _) => format!("in {place}"),
        (None, _, Some(why)) => why.clone(),
        _ => String::new(),
    };
    page.row("names", word, shade, &more);
}

fn facilities(page: &mut Page, all: &[Facility]) {
    page.title("WHAT THEY REST ON");
    let groups = [
        (Use::Required, "needed"),
        (Use::Faster, "faster with it"),
        (Use::Safer, "safer with it"),
        (Use::Arenas, "for memory that peers can map"),
        (Use::Hosts, "for peers on other hosts"),
        (Use::Memory, "to know when memory changes, and to move pages"),
    ];
    for (used, what) in groups {
        for one in all.iter().filter(|one| one.used == used) {
            let shade = match (one.status, used) {
                (Status::Works, _) => Shade::Green,
                (_, Use::Required) | (Status::Killed, _) => Shade::Red,
                (_, Use::Memory) => Shade::Plain,
                _ => Shade::Yellow,
            };
            let word = match one.status {
                Status::Works => "yes",
                Status::Denied => "no",
                Status::Killed => "killed",
                Status::Unknown => "unknown",
            };
            let more = one.why.as_deref().or(one.detail.as_deref());
            let more = more.map_or(what.to_owned(), |more| format!("{what}; {more}"));
            page.row(one.name, word, shade, &more);
            // Problems are reported below, with their remedies.
            let apart = matches!(used, Use::Arenas | Use::Hosts | Use::Memory);
            if let Some(remedy) = one.remedies.first().filter(|_| apart) {
                page.line(format_args!("  {:29} to allow it: {}", "", self::one(remedy)));
            }
        }
    }
}

/// The paths in the order of the tables; the first three are always measured.
const PATHS: [&str; 5] = ["inline", "eager", "cma", "mapped", "handoff"];

/// Columns of the table that the chosen path takes, with the path and the class, characters.
const CHOSEN: usize = 31;

fn costs(page: &mut Page, costs: &Costs) {
    page.title("COSTS");
    let where_ = match costs.cores {
        [Some(one), Some(two)] => format!(" between processors {one} and {two}"),
        _ => String::new(),
    };
    if let Some(why) = &costs.withheld {
        page.said("  ", &format!("Withheld: {why}. Run it again when nothing else runs."));
        return;
    }
    let hop = costs.hop_ns.map_or("?".into(), units::time);
    let class = costs.class.unwrap_or("?");
    let what = format!("A cache line takes {hop}{where_} ({class}). Medians; - is not possible.");
    page.said("  ", &what);
    table(page, costs, "one way", |cost| cost.latency_ns.map(units::time));
    table(page, costs, "stream", |cost| cost.bandwidth_mb_s.map(units::bandwidth));
    for row in &costs.rows {
        if let Some(why) = &row.withheld {
            let size = units::bytes(row.size);
            page.said("  Withheld: ", &format!("{size}, {}, {why}.", row.path));
        }
    }
    for note in &costs.notes {
        page.said("  Note: ", &format!("{note}."));
    }
}

fn table(page: &mut Page, costs: &Costs, title: &str, value: impl Fn(&Cost) -> Option<String>) {
    let mut paths: Vec<&str> = PATHS[..3].to_vec();
    for row in &costs.rows {
        if row.path != "auto" && !paths.contains(&row.path) {
            paths.push(row.path);
        }
    }
    // In a narrow table the chosen path has lines of its own.
    let wide = page.width.is_none_or(|width| width >= 12 + 13 * paths.len() + CHOSEN);
    let (first, each) = if wide { (10, 12) } else { (8, 9) };
    let mut head = format!("  {title:first$}");
    for path in &paths {
        let _ = write!(head, " {path:>each$}");
    }
    match wide {
        true => page.line(format_args!("{head}   {:>12} by itself", "chosen")),
        false => page.line(head),
    }
    let mut sizes: Vec<usize> = costs.rows.iter().map(|row| row.size).collect();
    sizes.dedup();
    for size in sizes {
        let find = |path: &str| costs.rows.iter().find(|row| row.size == size && row.path == path);
        let show = |path: &str| {
            let row = find(path);
            // A path that is not possible has no reason to be withheld.
            let is_withheld = row.is_some_and(|row| row.withheld.is_some());
            let without = if is_withheld { "withheld" } else { "-" };
            row.and_then(&value).unwrap_or_else(|| without.into())
        };
        let mut line = format!("  {:first$}", units::bytes(size));
        for path in &paths {
            let _ = write!(line, " {:>each$}", show(path));
        }
        let auto = find("auto");
        let taken = auto.and_then(|row| row.taken.as_deref()).unwrap_or("");
        let class = auto.map(|row| row.class).filter(|class| Some(*class) != costs.class);
        let class = class.map_or(String::new(), |class| format!(" ({class})"));
        let auto = show("auto");
        if wide {
            page.line(format!("{line}   {auto:>12} {taken}{class}").trim_end());
        } else {
            page.line(line);
            let chosen = format!("chosen by itself: {auto} {taken}{class}");
            page.line(format_args!("  {:first$}   {}", "", chosen.trim_end()));
        }
    }
}

fn limits(page: &mut Page, all: &[Limit]) {
    page.title("LIMITS");
    for limit in all {
        let amount = |value: u64| match limit.unit {
            "bytes" => units::gibibytes(value),
            _ => value.to_string(),
        };
        // A limit of 2^60 or more is as good as none.
        let most = limit.limit.filter(|&most| most < 1 << 60);
        let of = most.map_or("no limit".to_owned(), amount);
        let used = limit.used.filter(|&used| used > 0);
        let used = used.map_or(String::new(), |used| format!("{} of ", amount(used)));
        let used = if most.is_none() { String::new() } else { used };
        let (word, shade) = match limit.status {
            Room::Ok => ("ok", Shade::Green),
            Room::Unknown => ("ok?", Shade::Plain),
            Room::Near => ("near", Shade::Yellow),
            Room::Low => ("low", Shade::Yellow),
        };
        let hard = match (limit.hard, limit.limit) {
            (Some(hard), Some(soft)) if hard > soft && hard < 1 << 60 => {
                format!(", up to {} on request", amount(hard))
            }
            _ => String::new(),
        };
        let what = if limit.name == "locked_memory" { "; for what stays pinned" } else { "" };
        let unit = if limit.unit == "bytes" { "" } else { limit.unit };
        let scope = match limit.scope.as_str() {
            "process" => String::new(),
            scope => format!(" ({scope})"),
        };
        let more = match most {
            Some(_) => format!("{used}{of} {unit}{hard}{scope}{what}"),
            None => format!("{of}{scope}"),
        };
        page.row(
            &limit.name.replace('_', " "),
            word,
            shade,
            &more.replace("  ", " ").replace(" ;", ";"),
        );
    }
    page.row("/dev/shm", "ok", Shade::Green, "not used: its size (--shm-size) does not matter");
}

fn problems(page: &mut Page, all: &[Problem]) {
    if all.is_empty() {
        return;
    }
    page.title("WHAT TO CHANGE");
    for problem in all {
        let shade = match problem.severity {
            Severity::Fatal => Shade::Red,
            Severity::Slower | Severity::Warning => Shade::Yellow,
        };
        for line in fold(&problem.what, 4, page.width) {
            let line = page.paint(&line, shade);
            page.line(format_args!("  {line}"));
        }
        if let Some(why) = &problem.why {
            page.said("    because: ", why);
        }
        for (at, remedy) in problem.remedies.iter().enumerate() {
            let begin = if at == 0 { "to allow more:" } else { "or:" };
            page.line(format_args!("    {begin} {}", one(remedy)));
        }
    }
}

fn one(remedy: &Remedy) -> String {
    match (&remedy.run, &remedy.note) {
        (Some(run), Some(note)) => format!("{run}   ({note})"),
        (Some(run), None) => run.clone(),
        (None, note) => note.clone().unwrap_or_default(),
    }
}
