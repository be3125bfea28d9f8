//! The table on a terminal, drawn over the one before.
//!
//! No state of the terminal is changed that would have to be restored: the cursor waits below the
//! table, and the next one is drawn from its first line on. So the terminal is clean however the
//! program ends, and the last table stays.

use std::io;

use super::layout::cut;

/// The size assumed of a terminal that does not say, columns and lines.
const SIZE: (usize, usize) = (80, 24);

/// Erases the terminal's echo of the interrupt.
pub(super) const END: &str = "\r\x1b[K";

#[derive(Default)]
pub(super) struct Screen {
    /// Lines of the table that is there.
    drawn: usize,
}

impl Screen {
    /// The size of the terminal, columns and lines.
    pub(super) fn size(&self) -> (usize, usize) {
        let size = rustix::termios::tcgetwinsize(io::stdout()).ok();
        let size = size.map_or(SIZE, |size| (usize::from(size.ws_col), usize::from(size.ws_row)));
        if size.0 == 0 || size.1 == 0 { SIZE } else { size }
    }

    /// Draws the table, as much as fits.
    pub(super) fn text(&mut self, lines: &[String], (columns, rows): (usize, usize)) -> String {
        // The line of the cursor is the last.
        let room = rows.saturating_sub(1).max(2);
        let (shown, left) = match lines.len() <= room {
            true => (lines, 0),
            false => (&lines[..room - 1], lines.len() - (room - 1)),
        };
        let mut text = String::new();
        if self.drawn > 0 {
            // Up, and away with all below.
            text += &format!("\x1b[{}A\r\x1b[J", self.drawn);
        }
        for line in shown {
            text += &cut(line, columns);
            text.push('\n');
        }
        if left > 0 {
            text += &cut(&format!("and {left} lines more"), columns);
            text.push('\n');
        }
        self.drawn = shown.len() + usize::from(left > 0);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_fits_the_terminal_and_covers_the_last() {
        let lines: Vec<String> = (0..30).map(|line| format!("line {line:020}")).collect();
        let mut screen = Screen::default();
        assert_eq!(screen.text(&lines[..2], (10, 24)), "line 0000…\nline 0000…\n");
        let text = screen.text(&lines, (80, 10));
        assert!(text.starts_with("\x1b[2A\r\x1b[J"));
        assert_eq!(text.lines().count(), 9);
        assert!(text.ends_with("and 22 lines more\n"), "{text}");
        assert!(screen.text(&lines[..1], (80, 10)).starts_with("\x1b[9A"));
        assert_eq!(screen.text(&lines, (80, 1)).lines().count(), 2);
    }
}
