//! The properties of this machine that copying depends on.

use std::{env, io, path::Path};

use serde::{Deserialize, Serialize};

use crate::persisted;

/// The size of the last cache if none is known: most cores have a share of so much.
const LAST_CACHE_BYTES: usize = 8 << 20;

/// The processor's maker, as a hint to the algorithms that suit a processor that was not measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maker {
    /// Intel.
    Intel,
    /// AMD, or any other maker.
    Other,
}

impl Maker {
    /// The maker of this processor.
    pub fn this() -> Maker {
        match pinfold_sys::cpu::identify::vendor().as_deref() {
            Some("GenuineIntel") => Maker::Intel,
            _ => Maker::Other,
        }
    }
}

/// The machine that a tuned table holds for: another processor, kernel or virtual machine wants
/// another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// The processor's name.
    pub processor: String,
    /// The kernel's release. Empty if it does not say.
    pub kernel: String,
    /// The processor's features that matter for moving bytes: as in `/proc/cpuinfo`.
    pub features: Vec<String>,
    /// The data caches of one core, nearest first, bytes. Empty where the kernel does not say.
    pub caches_bytes: Vec<usize>,
}

impl Machine {
    /// This one; if the kernel cannot be asked, with only the properties that the processor itself
    /// reports. Some 100 µs.
    pub fn this() -> Machine {
        Machine::now().unwrap_or_else(|_| Machine {
            processor: env::consts::ARCH.to_owned(),
            kernel: String::new(),
            features: features(),
            caches_bytes: Vec::new(),
        })
    }

    /// The same.
    ///
    /// # Errors
    /// The kernel cannot be asked just now, for want of a descriptor or memory.
    pub(super) fn now() -> io::Result<Machine> {
        Ok(Machine {
            processor: persisted::cpu_model()?,
            kernel: persisted::kernel()?,
            features: features(),
            caches_bytes: caches_in(Path::new("/sys/devices/system/cpu/cpu0/cache"))?,
        })
    }

    /// The cache that is farthest from the core, bytes; a guess where none is known.
    pub fn last_cache_bytes(&self) -> usize {
        self.caches_bytes.last().copied().unwrap_or(LAST_CACHE_BYTES)
    }
}

fn features() -> Vec<String> {
    pinfold_sys::cpu::identify::features().into_iter().map(str::to_owned).collect()
}

/// The caches for data that the kernel lists in this directory (see `sysfs-devices-system-cpu` in
/// its documentation).
///
/// # Errors
/// The errors of [`persisted::beginning`].
fn caches_in(dir: &Path) -> io::Result<Vec<usize>> {
    let mut caches = Vec::new();
    for index in 0.. {
        let field = |name| persisted::beginning(dir.join(format!("index{index}/{name}")));
        let Ok(level) = field("level")?.trim().parse::<u8>() else { break };
        let is_for_data = field("type")?.trim() != "Instruction";
        caches
            .extend(bytes_of(field("size")?.trim()).filter(|_| is_for_data).map(|it| (level, it)));
    }
    caches.sort_unstable();
    Ok(caches.into_iter().map(|(_, bytes)| bytes).collect())
}

/// Reads the kernel's sizes: `32768K`.
fn bytes_of(text: &str) -> Option<usize> {
    let (number, unit) = match text.as_bytes().last()? {
        b'K' => (&text[..text.len() - 1], 1 << 10),
        b'M' => (&text[..text.len() - 1], 1 << 20),
        _ => (text, 1),
    };
    number.parse::<usize>().ok()?.checked_mul(unit).filter(|&bytes| bytes > 0)
}

/// One of `allowed` that is not `taken`, nor a hardware thread of the same core if that can be
/// helped.
pub(super) fn other_cpu(allowed: &[usize], taken: usize) -> Option<usize> {
    let list = format!("/sys/devices/system/cpu/cpu{taken}/topology/thread_siblings_list");
    let threads = list_of(&persisted::beginning(list).unwrap_or_default());
    let others = || allowed.iter().copied().filter(|&cpu| cpu != taken);
    others().find(|cpu| !threads.contains(cpu)).or_else(|| others().next())
}

/// Reads the kernel's lists of processors: `0-3,8`.
fn list_of(text: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (from, to): (usize, usize) = (from.trim().parse().ok()?, to.trim().parse().ok()?);
        (to < 1 << 20).then_some(from..=to)
    };
    text.trim().split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn this_one_does_not_change() {
        let machine = Machine::this();
        assert_eq!(machine, Machine::this());
        assert!(!machine.processor.is_empty() && machine.last_cache_bytes() >= 64 << 10);
        let text = serde_json::to_string(&machine).unwrap();
        assert_eq!(serde_json::from_str::<Machine>(&text).unwrap(), machine);
    }

    #[test]
    fn caches() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(caches_in(dir.path()).unwrap(), [0usize; 0]);
        // Not in their order, and one for instructions.
        for (index, (level, kind, size)) in [
            ("3", "Unified", "32768K"),
            ("1", "Data", "48K"),
            ("1", "Instruction", "32K"),
            ("2", "Unified", "1M"),
            ("4", "Unified", "0K"),
        ]
        .into_iter()
        .enumerate()
        {
            let one = dir.path().join(format!("index{index}"));
            fs::create_dir(&one).unwrap();
            for (name, text) in [("level", level), ("type", kind), ("size", size)] {
                fs::write(one.join(name), format!("{text}\n")).unwrap();
            }
        }
        assert_eq!(caches_in(dir.path()).unwrap(), [48 << 10, 1 << 20, 32 << 20]);
        for nonsense in ["", "K", "xK", "-1K", "99999999999999999999K", "18446744073709551615K"] {
            assert_eq!(bytes_of(nonsense), None, "{nonsense}");
        }
        let unknown = Machine { caches_bytes: Vec::new(), ..Machine::this() };
        assert_eq!(unknown.last_cache_bytes(), LAST_CACHE_BYTES);
    }

    #[test]
    fn another_processor() {
        assert_eq!(other_cpu(&[900, 901], 901), Some(900));
        assert_eq!(other_cpu(&[900], 900), None);
        assert_eq!(list_of("0-2,8\n"), [0, 1, 2, 8]);
        assert_eq!(list_of("x,3-"), [0usize; 0]);
    }
}
