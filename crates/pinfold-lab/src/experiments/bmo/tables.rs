//! The paper's tables of five programs' block memory operations.

/// A program.
pub(super) struct Program {
    pub(super) name: &'static str,
    /// Table 3.1: the share of bzero, bcopy, copyin and copyout, percent.
    pub(super) kinds: [f64; 4],
    /// Table 3.1: the share of the kernel's and of all cycles that they take, percent.
    pub(super) cycles: [f64; 2],
    /// Tables 5.1 and 5.2, a row for each size: source blocks, and how often the first line tells
    /// the state of source and destination, percent.
    pub(super) rows: &'static [Row],
    /// Their last row.
    pub(super) total: Row,
    /// Table 5.4: run time with the software probe, and the least time of the probe, percent.
    pub(super) probed: [f64; 2],
}

/// A row of Table 5.1 or 5.2.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Row {
    /// Blocks are so long at most, bytes, and longer than those of the row before.
    pub(super) bytes: u64,
    pub(super) blocks: u64,
    pub(super) told: [f64; 2],
}

const fn row(bytes: u64, blocks: u64, source: f64, destination: f64) -> Row {
    Row { bytes, blocks, told: [source, destination] }
}

pub(super) const PROGRAMS: [Program; 5] = [
    Program {
        name: "FreeBSD compile",
        kinds: [21.4, 26.5, 8.7, 43.4],
        cycles: [26.4, 3.1],
        rows: &[
            row(128, 1_215_683, 99.9, 99.1),
            row(256, 12_433, 95.8, 43.1),
            row(512, 12_666, 99.2, 82.7),
            row(1 << 10, 8021, 99.5, 97.3),
            row(2 << 10, 9890, 98.1, 96.9),
            row(4 << 10, 65_282, 91.2, 92.3),
            row(8 << 10, 12_410, 99.6, 91.4),
            row(16 << 10, 18_658, 91.0, 90.3),
            row(32 << 10, 22, 100.0, 94.6),
            row(64 << 10, 17, 100.0, 100.0),
        ],
        total: row(0, 1_355_082, 99.3, 97.9),
        probed: [1.01, 2.4],
    },
    Program {
        name: "PostMark",
        kinds: [84.7, 2.8, 4.4, 8.0],
        cycles: [59.4, 51.5],
        rows: &[
            row(128, 644_817, 99.9, 99.9),
            row(256, 2220, 98.6, 46.2),
            row(512, 3721, 98.2, 99.8),
            row(1 << 10, 3696, 100.0, 92.3),
            row(2 << 10, 9498, 99.9, 96.8),
            row(4 << 10, 17_253, 97.6, 97.3),
            row(8 << 10, 20_908, 99.9, 94.3),
            row(16 << 10, 10_430, 99.7, 71.4),
        ],
        total: row(0, 712_543, 99.8, 99.0),
        probed: [1.03, 0.22],
    },
    Program {
        name: "bw_pipe",
        kinds: [0.0, 0.0, 0.6, 99.4],
        cycles: [76.6, 74.0],
        rows: &[
            row(128, 2_098_078, 99.9, 99.9),
            row(256, 6, 100.0, 31.3),
            row(512, 13, 100.0, 100.0),
            row(4 << 10, 170, 61.8, 96.4),
            row(16 << 10, 1, 100.0, 100.0),
            row(64 << 10, 1_125_555, 58.4, 99.3),
        ],
        total: row(0, 200_554, 99.9, 99.9),
        probed: [1.09, 3.9],
    },
    Program {
        name: "Netperf",
        kinds: [4.8, 28.8, 31.4, 35.0],
        cycles: [76.1, 73.8],
        rows: &[
            row(128, 660_667, 99.9, 99.9),
            row(256, 140, 72.9, 21.8),
            row(512, 853, 95.1, 99.8),
            row(2 << 10, 1_953_838, 99.9, 50.0),
            row(4 << 10, 2159, 82.1, 99.4),
            row(16 << 10, 83, 100.0, 100.0),
        ],
        total: row(0, 2_617_740, 99.9, 67.9),
        probed: [0.29, 3.4],
    },
    Program {
        name: "Chat",
        kinds: [36.0, 27.8, 33.6, 2.6],
        cycles: [64.3, 58.7],
        rows: &[
            row(128, 116_394, 99.9, 99.9),
            row(256, 36_651, 99.8, 82.5),
            row(512, 24_759, 98.9, 99.4),
            row(1 << 10, 5516, 89.3, 94.7),
            row(2 << 10, 785_462, 93.2, 96.5),
            row(4 << 10, 48_940, 91.9, 97.3),
            row(8 << 10, 23_028, 37.8, 11.0),
            row(16 << 10, 15_710, 67.7, 5.1),
            row(32 << 10, 75, 100.0, 60.0),
        ],
        total: row(0, 1_056_547, 92.6, 93.3),
        probed: [1.12, 6.2],
    },
];

/// A size as the tables have it, such as "128 B" and "2 KB".
pub(super) fn size(bytes: u64) -> String {
    if bytes < 1 << 10 { format!("{bytes} B") } else { format!("{} KB", bytes >> 10) }
}

impl Program {
    /// Blocks of all rows.
    pub(super) fn blocks(&self) -> u64 {
        self.rows.iter().map(|row| row.blocks).sum()
    }

    /// The mean of the rows, source and destination, percent, each row counted by its blocks.
    pub(super) fn told(&self) -> [f64; 2] {
        [0, 1].map(|side| {
            let all = self.rows.iter().map(|row| row.told[side] * row.blocks as f64);
            all.sum::<f64>() / self.blocks() as f64
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_rows_add_up_to_their_totals() {
        let off = PROGRAMS.map(|it| it.blocks().abs_diff(it.total.blocks));
        assert_eq!(off, [0, 0, 3_023_269, 0, 12], "bw_pipe's do not at all");
        for program in &PROGRAMS {
            let kinds: f64 = program.kinds.iter().sum();
            assert!((kinds - 100.0).abs() < 0.11, "{}: {kinds}", program.name);
            assert!(program.rows.windows(2).all(|pair| pair[0].bytes < pair[1].bytes));
        }
    }

    #[test]
    fn means_are_by_blocks() {
        let [source, _] = PROGRAMS[2].told();
        assert!((source - 85.4).abs() < 0.05, "{source}");
        let [_, destination] = PROGRAMS[3].told();
        assert!((destination - 62.7).abs() < 0.05, "{destination}");
    }
}
