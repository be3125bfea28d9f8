//! Numbers for people.

use std::time::Duration;

/// A size: `8 B`, `4 KiB`, `1 MiB`.
pub fn bytes(size: usize) -> String {
    for (unit, shift) in [("GiB", 30), ("MiB", 20), ("KiB", 10)] {
        if size >= 1 << shift && size.trailing_zeros() >= shift {
            return format!("{} {unit}", size >> shift);
        }
    }
    format!("{size} B")
}

/// A great size: `3.91 GiB`. A lesser one in a lesser unit.
pub fn gibibytes(bytes: u64) -> String {
    for (unit, shift) in [("GiB", 30), ("MiB", 20), ("KiB", 10)] {
        if bytes >= 1 << shift {
            return format!("{} {unit}", number(bytes as f64 / (1u64 << shift) as f64));
        }
    }
    format!("{bytes} B")
}

/// A number with three digits that count, thousands set apart; numbers below 0.1 with two. Only
/// zero is shown as 0.00.
pub fn number(value: f64) -> String {
    match value {
        v if !v.is_finite() => "?".into(),
        v if v >= 99.95 => grouped(v.round() as u64),
        v if v >= 9.995 => format!("{v:.1}"),
        v if v >= 0.0995 => format!("{v:.2}"),
        v if v >= 0.00995 => format!("{v:.3}"),
        v if v >= 0.000_995 => format!("{v:.4}"),
        v if v > 0.0 => "<0.001".into(),
        _ => "0".into(),
    }
}

/// A time given in nanoseconds: `80.0 ns`, `1.25 µs`.
pub fn time(ns: f64) -> String {
    match ns {
        ns if ns < 999.5 => format!("{} ns", number(ns)),
        ns if ns < 999.5e3 => format!("{} µs", number(ns / 1e3)),
        ns if ns < 999.5e6 => format!("{} ms", number(ns / 1e6)),
        ns => format!("{} s", number(ns / 1e9)),
    }
}

/// A duration, for a person: `0.4 seconds`, `1 second`, `24 seconds`.
pub fn seconds(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds < 0.05 {
        return "less than 0.1 seconds".into();
    }
    if seconds < 0.95 {
        return format!("{seconds:.1} seconds");
    }
    let whole = seconds.round();
    format!("{whole} second{}", if whole == 1.0 { "" } else { "s" })
}

/// A bandwidth given in megabytes (10^6 bytes) a second: `512 MB/s`, `12.3 GB/s`.
pub fn bandwidth(megabytes: f64) -> String {
    if megabytes < 999.5 {
        format!("{} MB/s", number(megabytes))
    } else {
        format!("{} GB/s", number(megabytes / 1e3))
    }
}

fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
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
    fn great_sizes() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (64 << 10, "64.0 KiB"),
            (400 << 20, "400 MiB"),
            (4_198_000_000, "3.91 GiB"),
        ] {
            assert_eq!(gibibytes(bytes), text);
        }
    }

    #[test]
    fn quantities() {
        assert_eq!(time(80.0), "80.0 ns");
        assert_eq!(time(999.9), "1.00 µs");
        assert_eq!(time(2.5e6), "2.50 ms");
        assert_eq!(time(3e9), "3.00 s");
        assert_eq!(bandwidth(512.3), "512 MB/s");
        assert_eq!(bandwidth(12_345.0), "12.3 GB/s");
    }

    #[test]
    fn durations() {
        for (ms, text) in [
            (0, "less than 0.1 seconds"),
            (49, "less than 0.1 seconds"),
            (50, "0.1 seconds"),
            (420, "0.4 seconds"),
            (960, "1 second"),
            (1_499, "1 second"),
            (1_500, "2 seconds"),
            (23_700, "24 seconds"),
        ] {
            assert_eq!(seconds(Duration::from_millis(ms)), text);
        }
    }

    #[test]
    fn numbers() {
        for (value, text) in [
            (0.0, "0"),
            (1e-9, "<0.001"),
            (0.000_994, "<0.001"),
            (0.000_996, "0.0010"),
            (0.003_03, "0.0030"),
            (0.009_96, "0.010"),
            (0.0994, "0.099"),
            (0.0996, "0.10"),
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
