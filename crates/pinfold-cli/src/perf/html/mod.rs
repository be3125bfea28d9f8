//! The results as one HTML file that needs nothing else: plots, tables, and what they were
//! measured on. Readable in light and dark.

mod page;
mod plot;

use std::path::Path;

use super::{
    fail::{Fail, Result},
    run::Findings,
};

/// Writes the page to `file`, replacing what is there.
///
/// # Errors
/// [`Fail::Output`] naming the file.
pub(crate) fn write(findings: &Findings, file: &Path) -> Result<()> {
    let page = page::page(findings);
    std::fs::write(file, page)
        .map_err(|source| Fail::Output { what: file.display().to_string(), source })
}

/// Makes any text safe to stand in the page.
fn escaped(text: &str) -> String {
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
mod tests {
    use super::*;
    use crate::perf::testing;

    /// Whether every element that is opened is closed, in order.
    fn balanced(page: &str) -> Result<(), String> {
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
        for part in ["Test &lt;processor&gt; &amp; co", "no &lt;network&gt;", "near", "80.0 ns"] {
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
    }
}
