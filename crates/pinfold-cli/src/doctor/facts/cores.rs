//! The processors: their number, and the parts that they share.

use super::Root;

/// The processors of the machine.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cores {
    pub(crate) online: Option<Vec<usize>>,
    /// Processors that are hardware threads of one core, by each processor's number.
    siblings: Vec<(usize, Vec<usize>)>,
    /// Those that share the last cache.
    caches: Vec<(usize, Vec<usize>)>,
}

impl Cores {
    pub(super) fn read(root: Root<'_>) -> Cores {
        let online = root.text("/sys/devices/system/cpu/online").map(|list| parse_list(&list));
        let of_each = |file: &str| {
            let all = online.iter().flatten();
            all.filter_map(|cpu| {
                let list = root.text(&format!("/sys/devices/system/cpu/cpu{cpu}/{file}"))?;
                Some((*cpu, parse_list(&list)))
            })
            .collect()
        };
        Cores {
            siblings: of_each("topology/thread_siblings_list"),
            caches: of_each("cache/index3/shared_cpu_list"),
            online,
        }
    }

    /// Returns whether all of `cpus` are hardware threads of one core.
    pub(crate) fn is_one_core(&self, cpus: &[usize]) -> Option<bool> {
        shared(&self.siblings, cpus)
    }

    /// Returns whether all of `cpus` share their last cache.
    pub(crate) fn is_one_cache(&self, cpus: &[usize]) -> Option<bool> {
        shared(&self.caches, cpus)
    }
}

fn shared(groups: &[(usize, Vec<usize>)], cpus: &[usize]) -> Option<bool> {
    let first = cpus.first()?;
    let (_, group) = groups.iter().find(|(cpu, _)| cpu == first)?;
    Some(cpus.iter().all(|cpu| group.contains(cpu)))
}

/// Reads the kernel's lists of processors: `0-3,8`.
fn parse_list(list: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (from, to): (usize, usize) = (from.trim().parse().ok()?, to.trim().parse().ok()?);
        (to < 1 << 20).then_some(from..=to)
    };
    list.trim().split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::{super::tests::model, *};

    #[test]
    fn who_shares_what() {
        let root = model(&[
            ("/sys/devices/system/cpu/online", "0-3\n"),
            ("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list", "0,2\n"),
            ("/sys/devices/system/cpu/cpu0/cache/index3/shared_cpu_list", "0-3\n"),
        ]);
        let cores = Cores::read(Root(root.path()));
        assert_eq!(cores.online.as_deref(), Some(&[0, 1, 2, 3][..]));
        assert_eq!(cores.is_one_core(&[0, 2]), Some(true));
        assert_eq!(cores.is_one_core(&[0, 1]), Some(false));
        assert_eq!(cores.is_one_core(&[1, 3]), None);
        assert_eq!(cores.is_one_cache(&[0, 1, 2]), Some(true));
        assert_eq!(cores.is_one_core(&[]), None);
    }

    #[test]
    fn nonsense_is_no_processor() {
        assert_eq!(parse_list("0-99999999999,x,-,3-1"), [0usize; 0]);
    }
}
