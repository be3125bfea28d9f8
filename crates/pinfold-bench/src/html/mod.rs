//! The results as one HTML file that needs nothing else: plots, tables, and the machine they were
//! measured on. Readable in light and dark.

mod page;
pub(crate) mod plot;
mod scale;

use std::{
    fmt::Write as _,
    fs::{self, File},
    io::{self, Write as _},
    path::Path,
    time::Duration,
};

use rustix::{
    fs::{Access, access},
    io::Errno,
};

use super::{
    fail::{Fail, Result},
    findings::Findings,
    units,
};

pub use self::scale::Scale;

/// The style of pages.
pub const STYLE: &str = include_str!("page.css");

/// Checks, before anything is measured, that the page can be written to `file`, as far as that can
/// be known.
///
/// # Errors
/// [`Fail::Output`] naming the file.
pub(crate) fn check(file: &Path) -> Result<()> {
    let writable = |path: &Path| access(path, Access::WRITE_OK);
    let found = match file.metadata() {
        Ok(found) if found.is_dir() => Err(Errno::ISDIR),
        Ok(_) => writable(file).or_else(|why| writable(folder(file)).map_err(|_| why)),
        Err(why) if why.kind() == io::ErrorKind::NotFound => writable(folder(file)),
        Err(why) => Err(Errno::from_io_error(&why).unwrap_or(Errno::IO)),
    };
    found.map_err(|why| failed(file, why.into()))
}

/// Writes the page to `file`, replacing its old contents once all of it is written.
///
/// # Errors
/// [`Fail::Output`] naming the file, which is left as it was.
pub(crate) fn write(findings: &Findings, file: &Path) -> Result<()> {
    put(&page::page(findings), file)
}

/// The same of any page.
///
/// # Errors
/// As [`write()`].
pub(crate) fn put(page: &str, file: &Path) -> Result<()> {
    replace(file, page.as_bytes()).map_err(|why| failed(file, why))
}

fn failed(file: &Path, source: io::Error) -> Fail {
    Fail::Output { what: file.display().to_string(), source }
}

fn folder(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Writes `bytes` beside `file`, then puts them in its place.
///
/// # Errors
/// The file cannot be written; it is left as it was.
pub fn replace(file: &Path, bytes: &[u8]) -> io::Result<()> {
    // The target of a link is replaced, not the link; a device or a pipe is written to.
    let place = fs::canonicalize(file).unwrap_or_else(|_| file.into());
    if place.is_symlink() || place.metadata().is_ok_and(|found| !found.is_file()) {
        return fs::write(place, bytes);
    }
    let part = folder(&place).join(format!(".pinfold-perf-{}.part", std::process::id()));
    let mut whole = match File::create_new(&part) {
        Ok(whole) => whole,
        // Only the file itself may be written to.
        Err(why) if why.kind() == io::ErrorKind::PermissionDenied => {
            return fs::write(place, bytes);
        }
        Err(why) => return Err(why),
    };
    // A failed write of the file system shows at the latest when the file is to be on the disk.
    let done = whole.write_all(bytes).and_then(|()| whole.sync_all());
    let done = done.and_then(|()| fs::rename(&part, place));
    if done.is_err() {
        let _ = fs::remove_file(&part);
    }
    done
}

/// The beginning of a page of `command`: the machine, more facts, the time taken, and notes.
pub(crate) fn begin(
    command: &str,
    machine: &str,
    facts: &[&str],
    took: Duration,
    notes: &[String],
) -> String {
    let facts: Vec<String> = facts.iter().map(|fact| escaped(fact)).collect();
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{command}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         <h1>{command}</h1>\n<p class=\"facts\">pinfold {} on {}<br/>{} It took {}.</p>\n",
        env!("CARGO_PKG_VERSION"),
        escaped(machine),
        facts.join("<br/>"),
        units::seconds(took),
    );
    for note in notes {
        let _ = writeln!(page, "<p class=\"note\">{}.</p>", escaped(note));
    }
    page
}

/// A list of sentences under a heading.
pub(crate) fn list(page: &mut String, title: &str, lines: &[String]) {
    let _ = writeln!(page, "<h2>{title}</h2>\n<ul>");
    for line in lines {
        let _ = writeln!(page, "<li>{}</li>", escaped(line));
    }
    page.push_str("</ul>\n");
}

/// Makes any text safe to stand in the page.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::testing;

    /// Succeeds if every element that is opened is closed, in order.
    pub(crate) fn balanced(page: &str) -> Result<(), String> {
        const VOID: [&str; 2] = ["meta", "!DOCTYPE"];
        let mut open: Vec<&str> = Vec::new();
        for tag in page.split('<').skip(1) {
            let (tag, _) = tag.split_once('>').ok_or_else(|| format!("no end: {tag}"))?;
            let name = tag.trim_start_matches('/').split([' ', '/', '\n']).next().unwrap_or("");
            match tag {
                _ if tag.starts_with("!--") || VOID.contains(&name) || tag.ends_with('/') => {}
                _ if tag.starts_with('/') => {
                    let last = open.pop();
                    if last != Some(name) {
                        return Err(format!("{last:?} closed by {name}"));
                    }
                }
                _ => open.push(name),
            }
        }
        if open.is_empty() { Ok(()) } else { Err(format!("left open: {open:?}")) }
    }

    #[test]
    fn the_page_is_whole_and_needs_nothing_else() {
        let page = page::page(&testing::findings());
        balanced(&page).unwrap();
        assert!(page.starts_with("<!DOCTYPE html>"));
        // Nothing is fetched from anywhere.
        for reference in ["http:", "https:", "//", "src=", "href=", "url(", "@import", "<script"] {
            assert!(!page.contains(reference), "{reference}");
        }
        assert!(page.matches("<svg").count() >= 2);
        assert!(page.contains("prefers-color-scheme: dark"));
        for part in [
            "Test &lt;processor&gt; &amp; co",
            "no &lt;network&gt;",
            "near",
            "107 ns",
            "80.0 ns",
            "Where Pinfold is behind",
        ] {
            assert!(page.contains(part), "{part}");
        }
    }

    #[test]
    fn nothing_found_is_a_page_too() {
        let mut findings = testing::findings();
        findings.collected = Default::default();
        balanced(&page::page(&findings)).unwrap();
    }

    #[test]
    fn markup_in_text_is_made_safe() {
        assert_eq!(escaped("<a b=\"c\">&"), "&lt;a b=&quot;c&quot;&gt;&amp;");
    }

    #[test]
    fn a_file_that_cannot_be_written_is_named() {
        let error = write(&testing::findings(), Path::new("/nowhere/x.html")).unwrap_err();
        assert!(error.to_string().contains("/nowhere/x.html"), "{error}");
        let error = check(Path::new("/nowhere/x.html")).unwrap_err();
        assert!(error.to_string().contains("/nowhere/x.html"), "{error}");
        assert!(check(Path::new("/")).is_err());
        let error = write(&testing::findings(), Path::new("/dev/full")).unwrap_err();
        assert!(error.to_string().contains("/dev/full"), "{error}");
    }

    #[test]
    fn a_page_is_replaced_as_a_whole() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("page.html"), folder.path().join("link.html"));
        std::os::unix::fs::symlink(&file, &link).unwrap();
        for old in [None, Some("old")] {
            if let Some(old) = old {
                fs::write(&file, old).unwrap();
            }
            check(&file).unwrap();
            write(&testing::findings(), &link).unwrap();
            assert!(fs::read_to_string(&file).unwrap().ends_with("</html>\n"));
        }
        assert!(link.is_symlink());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "something is left behind");
    }
}
