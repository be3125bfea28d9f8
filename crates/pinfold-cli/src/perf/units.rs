//! Numbers for people.

/// A size: `8 B`, `4 KiB`, `1 MiB`.
pub(crate) fn bytes(size: usize) -> String {
    for (unit, shift) in [("GiB", 30), ("MiB", 20), ("KiB", 10)] {
        if size >= 1 << shift && size.trailing_zeros() >= shift {
            return format!("{} {unit}", size >> shift);
        }
    }
    format!("{size} B")
}

/// A number with three digits that count, thousands set apart.
pub(crate) fn number(value: f64) -> String {
    match value {
        v if !v.is_finite() => "?".into(),
        v if v >= 99.95 => grouped(v.round() as u64),
        v if v >= 9.995 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            out.push(' ');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (size, text) in [
            (8, "8 B"),
            (1000, "1000 B"),
            (1024, "1 KiB"),
            (1536, "1536 B"),
            (3 << 20, "3 MiB"),
            (1 << 30, "1 GiB"),
        ] {
            assert_eq!(bytes(size), text);
        }
    }

    #[test]
    fn numbers() {
        for (value, text) in [
            (0.5, "0.50"),
            (9.99, "9.99"),
            (9.996, "10.0"),
            (99.94, "99.9"),
            (99.96, "100"),
            (12345.6, "12 346"),
            (1234567.0, "1 234 567"),
            (f64::NAN, "?"),
        ] {
            assert_eq!(number(value), text);
        }
    }
}
