//! The text exposition format of Prometheus, version 0.0.4: families of samples, each with its help
//! and its type once and its samples together (prometheus.io, *Exposition formats*).

use std::fmt::{Display, Write};

/// A family's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It only grows while its endpoint lives.
    Counter,
    /// It may fall.
    Gauge,
}

/// Names and values of labels.
pub(super) type Labels = Vec<(&'static str, String)>;

struct Family {
    kind: Kind,
    name: &'static str,
    help: &'static str,
    samples: String,
}

/// Families in the order in which they were first added to.
#[derive(Default)]
pub(super) struct Exposition(Vec<Family>);

impl Exposition {
    /// Adds a sample to a family, which begins with its first.
    pub(super) fn add(
        &mut self,
        (kind, name, help): (Kind, &'static str, &'static str),
        labels: &Labels,
        value: impl Display,
    ) {
        let at = self.0.iter().position(|family| family.name == name).unwrap_or_else(|| {
            self.0.push(Family { kind, name, help, samples: String::new() });
            self.0.len() - 1
        });
        let samples = &mut self.0[at].samples;
        samples.push_str(name);
        for (n, (label, value)) in labels.iter().enumerate() {
            let before = if n == 0 { '{' } else { ',' };
            let _ = write!(samples, "{before}{label}=\"{}\"", escaped(value));
        }
        if !labels.is_empty() {
            samples.push('}');
        }
        let _ = writeln!(samples, " {value}");
    }

    /// All of it; every line ends.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for Family { kind, name, help, samples } in &self.0 {
            let kind = match kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
            };
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
            text += samples;
        }
        text
    }
}

/// The value of a label as it stands between quotes: backslash, quote and line feed have a
/// backslash before them.
fn escaped(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for char in value.chars() {
        match char {
            '\\' => text += "\\\\",
            '"' => text += "\\\"",
            '\n' => text += "\\n",
            other => text.push(other),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_labels_are_escaped() {
        assert_eq!(escaped("plain, {with} = signs µ"), "plain, {with} = signs µ");
        assert_eq!(escaped(r#"a "quoted" word"#), r#"a \"quoted\" word"#);
        assert_eq!(escaped("two\nlines"), r"two\nlines");
        // A backslash before an n is no line feed, and one before a quote does not end the value.
        assert_eq!(escaped(r"C:\new"), r"C:\\new");
        assert_eq!(escaped("\\\""), r#"\\\""#);
        assert_eq!(escaped(""), "");
    }

    #[test]
    fn samples_of_a_family_stand_together() {
        let mut all = Exposition::default();
        let sent = (Kind::Counter, "sent_total", "Messages sent.");
        let peers = (Kind::Gauge, "peers", "Peers.");
        let labels = |of: &str| vec![("of", of.to_owned()), ("path", "eager".to_owned())];
        all.add(sent, &labels("a\"b"), 3);
        all.add(peers, &Labels::new(), 0.5);
        all.add(sent, &labels("c"), u64::MAX);
        let wanted = "# HELP sent_total Messages sent.\n\
                      # TYPE sent_total counter\n\
                      sent_total{of=\"a\\\"b\",path=\"eager\"} 3\n\
                      sent_total{of=\"c\",path=\"eager\"} 18446744073709551615\n\
                      # HELP peers Peers.\n\
                      # TYPE peers gauge\n\
                      peers 0.5\n";
        assert_eq!(all.text(), wanted);
        assert_eq!(Exposition::default().text(), "");
    }
}
