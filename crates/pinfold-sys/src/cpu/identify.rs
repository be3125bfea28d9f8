//! Identity and features of the processor, as it tells them itself.
#![allow(unsafe_code)]
// Invariant: the one unsafe call is an instruction that every x86-64 processor has and that
// touches no memory.
#![cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]

/// Features of this processor that matter for moving bytes and for atomics: names as in
/// `/proc/cpuinfo`. Empty on other processors than x86-64 and AArch64.
pub fn features() -> Vec<&'static str> {
    #[cfg(target_arch = "x86_64")]
    {
        let (seven, extended) = (leaf(7), leaf(0x8000_0007));
        let has = |register: u32, bit: u32| register >> bit & 1 == 1;
        let all = [
            // The wide registers need the system's support; the standard library checks for that.
            ("avx2", std::is_x86_feature_detected!("avx2")),
            ("avx512f", std::is_x86_feature_detected!("avx512f")),
            ("erms", has(seven[1], 9)),
            ("fsrm", has(seven[3], 4)),
            ("clflushopt", has(seven[1], 23)),
            ("clwb", has(seven[1], 24)),
            ("movdir64b", has(seven[2], 28)),
            ("waitpkg", has(seven[2], 5)),
            ("constant_tsc", has(extended[3], 8)),
        ];
        all.into_iter().filter_map(|(name, is)| is.then_some(name)).collect()
    }
    #[cfg(target_arch = "aarch64")]
    {
        let all = [
            ("asimd", std::arch::is_aarch64_feature_detected!("neon")),
            ("atomics", std::arch::is_aarch64_feature_detected!("lse")),
            ("lrcpc", std::arch::is_aarch64_feature_detected!("rcpc")),
            ("sve", std::arch::is_aarch64_feature_detected!("sve")),
            ("sve2", std::arch::is_aarch64_feature_detected!("sve2")),
        ];
        all.into_iter().filter_map(|(name, is)| is.then_some(name)).collect()
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    Vec::new()
}

/// The processor's maker, as it names itself, such as `GenuineIntel` or `AuthenticAMD`; `None` on
/// other processors than x86-64.
pub fn vendor() -> Option<String> {
    #[cfg(target_arch = "x86_64")]
    {
        let [_, b, c, d] = leaf(0);
        Some(name_in([b, d, c]))
    }
    #[cfg(not(target_arch = "x86_64"))]
    None
}

/// The hypervisor of this virtual machine, as it names itself; `None` on bare metal, and on
/// processors that do not say.
pub fn hypervisor() -> Option<String> {
    #[cfg(target_arch = "x86_64")]
    {
        if leaf(1)[2] >> 31 & 1 == 0 {
            return None;
        }
        let [_, b, c, d] = leaf(0x4000_0000);
        let name = name_in([b, c, d]);
        Some(if name.is_empty() { "unknown".to_owned() } else { name })
    }
    #[cfg(not(target_arch = "x86_64"))]
    None
}

/// The text in three registers.
#[cfg(target_arch = "x86_64")]
fn name_in(registers: [u32; 3]) -> String {
    let bytes = registers.into_iter().flat_map(u32::to_le_bytes);
    bytes.map(char::from).filter(char::is_ascii_graphic).collect()
}

/// The answer of `CPUID`: eax, ebx, ecx, edx; zeros where the processor has no such leaf.
#[cfg(target_arch = "x86_64")]
pub(crate) fn leaf(number: u32) -> [u32; 4] {
    use std::arch::x86_64::__cpuid_count;
    // Newer compilers call it safe.
    #[allow(unused_unsafe)]
    // SAFETY: every x86-64 processor has the instruction.
    let ask = |leaf| unsafe { __cpuid_count(leaf, 0) };
    // The first of the hypervisor's leaves is the one that says how many there are.
    if number != 0x4000_0000 && ask(number & 0x8000_0000).eax < number {
        return [0; 4];
    }
    let answer = ask(number);
    [answer.eax, answer.ebx, answer.ecx, answer.edx]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_arch = "aarch64")]
    fn the_kernel_names_the_same() {
        // Every processor that Rust compiles for by this name has it.
        assert!(features().contains(&"asimd"));
        let Ok(info) = std::fs::read_to_string("/proc/cpuinfo") else { return };
        // An emulator that runs single programs shows the file of the machine below it.
        let Some(line) = info.lines().find(|line| line.starts_with("Features")) else { return };
        let known: Vec<&str> = line.split_whitespace().collect();
        for name in ["asimd", "atomics", "lrcpc", "sve", "sve2"] {
            assert_eq!(features().contains(&name), known.contains(&name), "{name}");
        }
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn the_kernel_agrees() {
        let Ok(info) = std::fs::read_to_string("/proc/cpuinfo") else { return };
        let Some(flags) = info.lines().find(|line| line.starts_with("flags")) else { return };
        let known: Vec<&str> = flags.split_whitespace().collect();
        // The kernel may hide features of the processor; it invents none.
        for name in ["avx2", "avx512f"] {
            assert_eq!(features().contains(&name), known.contains(&name), "{name}");
        }
        assert_eq!(hypervisor().is_some(), known.contains(&"hypervisor"));
        let vendor =
            info.lines().find_map(|line| line.strip_prefix("vendor_id")?.split(": ").nth(1));
        assert_eq!(self::vendor().as_deref(), vendor);
    }
}
