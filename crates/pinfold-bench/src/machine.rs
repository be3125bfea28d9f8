//! The machine that a result was measured on: facts a reader needs to judge it.

use std::fs;

use super::units;

/// The machine, in words.
#[derive(Clone, Debug)]
pub struct Machine {
    pub(crate) processor: String,
    pub(crate) processors: usize,
    pub(crate) kernel: String,
    /// 0 if the number is not known.
    pub(crate) memory_bytes: u64,
    /// The processors that the two processes were bound to.
    pub(crate) cores: [Option<usize>; 2],
}

impl Machine {
    /// Looks around, for processes bound to these processors. Facts that cannot be found out are
    /// said to be unknown.
    pub fn look(cores: [Option<usize>; 2]) -> Machine {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Machine {
            processor: field(&cpuinfo, "model name").unwrap_or("unknown processor").into(),
            // This process may be bound to one of them by now.
            processors: cpuinfo
                .lines()
                .filter(|l| l.starts_with("processor"))
                .count()
                .max(processors),
            kernel: match kernel.trim() {
                "" => "unknown kernel".into(),
                kernel => format!("Linux {kernel}"),
            },
            memory_bytes: field(&meminfo, "MemTotal").map_or(0, kib),
            cores,
        }
    }

    /// The processors that the two processes ran on.
    pub(crate) fn placement(&self) -> String {
        match self.cores {
            [Some(one), Some(two)] if one == two => format!("both processes on core {one}"),
            [Some(one), Some(two)] => format!("processes on cores {one} and {two}"),
            _ => "processes not bound to cores".into(),
        }
    }

    /// One line.
    pub(crate) fn line(&self) -> String {
        format!("{}, {}", self.alone(), self.placement())
    }

    /// The same without the processors.
    pub fn alone(&self) -> String {
        let Machine { processor, processors, kernel, memory_bytes, .. } = self;
        let memory = match memory_bytes {
            0 => "unknown memory".into(),
            bytes if *bytes < 1 << 30 => units::gibibytes(*bytes),
            bytes => format!("{:.0} GiB", *bytes as f64 / (1u64 << 30) as f64),
        };
        let s = if *processors == 1 { "" } else { "s" };
        format!("{processor}, {processors} processor{s}, {memory}, {kernel}")
    }
}

/// Memory that programs may still take, bytes, if the kernel says so.
pub(crate) fn available_bytes() -> Option<u64> {
    let meminfo = fs::read_to_string("/proc/meminfo").ok()?;
    field(&meminfo, "MemAvailable").map(kib)
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    line.split_once(':').map(|(_, value)| value.trim())
}

fn kib(text: &str) -> u64 {
    text.trim_end_matches("kB").trim().parse::<u64>().unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields() {
        assert_eq!(field("a\t: b c\nd: e", "a"), Some("b c"));
        assert_eq!(field("a: b", "x"), None);
        assert_eq!(kib("16 kB"), 16384);
        assert_eq!(kib("?"), 0);
    }

    #[test]
    fn nothing_is_made_up() {
        let of = |memory_bytes| Machine { memory_bytes, ..Machine::look([None; 2]) }.alone();
        assert!(of(0).contains(", unknown memory, "), "{}", of(0));
        assert!(of(400 << 20).contains(", 400 MiB, "), "{}", of(400 << 20));
        assert!(of(24 << 30).contains(", 24 GiB, "), "{}", of(24 << 30));
    }

    #[test]
    fn the_line_is_one_line() {
        let machine = Machine::look([Some(0), Some(1)]);
        assert!(machine.line().contains("cores 0 and 1"));
        assert!(!machine.line().contains('\n'));
        assert!(machine.processors >= 1);
    }
}
