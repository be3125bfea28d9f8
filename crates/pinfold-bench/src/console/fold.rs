//! Text in lines that fit.

/// The width of lines; `None` for lines as wide as they need, as no terminal shows them.
pub type Width = Option<usize>;

/// The least room for a text beside the words before it, characters.
const LEAST: usize = 8;

/// The width of the terminal that standard output is, if it is one.
pub fn width_of_stdout() -> Width {
    use std::io::IsTerminal;
    let out = std::io::stdout();
    let size = out.is_terminal().then(|| rustix::termios::tcgetwinsize(&out).ok()).flatten();
    size.map(|size| usize::from(size.ws_col)).filter(|&columns| columns > 0)
}

/// Breaks `text` at blanks, so that each line fits behind `before` characters. Nothing is lost: a
/// word that does not fit by itself is broken, too.
pub fn fold(text: &str, before: usize, width: Width) -> Vec<String> {
    let Some(width) = width else { return vec![text.to_owned()] };
    let room = width.saturating_sub(before).max(LEAST);
    let (mut lines, mut line, mut len) = (Vec::new(), String::new(), 0);
    for word in text.split(' ') {
        let mut word_len = word.chars().count();
        if len > 0 && len + 1 + word_len > room {
            lines.push(std::mem::take(&mut line));
            len = 0;
        } else if len > 0 {
            line.push(' ');
            len += 1;
        }
        let mut chars = word.chars();
        while word_len > room {
            lines.push(chars.by_ref().take(room).collect());
            word_len -= room;
        }
        line.extend(chars);
        len += word_len;
    }
    lines.push(line);
    lines
}

/// The same behind `head`, on the first line; the others are indented as far.
pub fn hanging(head: &str, text: &str, width: Width) -> Vec<String> {
    let before = head.chars().count();
    let lines = fold(text, before, width).into_iter().enumerate();
    let lines = lines.map(|(at, line)| match at {
        0 => format!("{head}{line}"),
        _ => format!("{:before$}{line}", ""),
    });
    lines.map(|line| line.trim_end().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_fit_and_nothing_is_lost() {
        let text = "waits on its descriptor, 12 posted, arenas /run/user/1000/a/long/place 3.15 MB";
        for width in 20..100 {
            let lines = hanging("    state ", text, Some(width));
            assert!(lines.iter().all(|line| line.chars().count() <= width), "{width}: {lines:?}");
            let together: String = lines.concat().replace("    state ", "").replace(' ', "");
            assert_eq!(together, text.replace(' ', ""), "{width}");
            assert!(lines[1..].iter().all(|line| line.starts_with("          ")), "{lines:?}");
        }
        assert_eq!(fold(text, 10, None), [text]);
        assert_eq!(fold(text, 10, Some(200)), [text]);
    }

    #[test]
    fn words_are_broken_only_where_they_must_be() {
        assert_eq!(fold("one two three", 0, Some(9)), ["one two", "three"]);
        assert_eq!(fold("äöüäöüäöüä x", 0, Some(9)), ["äöüäöüäöü", "ä x"]);
        assert_eq!(fold("", 5, Some(9)), [""]);
        // However narrow the line, some room is left.
        assert_eq!(fold("one two three", 50, Some(9)), ["one two", "three"]);
    }
}
