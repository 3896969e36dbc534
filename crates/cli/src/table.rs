//! Text in columns: aligned, cut to a width, painted where colour is welcome. What stands in the columns is decided elsewhere.

/// How a piece of text is painted; the words alone carry the meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    Plain,
    Heading,
    Good,
    Careful,
    Bad,
}

/// A piece of text whose tone is lost where colour is not wanted.
pub struct Cell {
    pub text: String,
    pub tone: Tone,
}

pub fn plain(text: impl Into<String>) -> Cell {
    toned(text, Tone::Plain)
}

pub fn toned(text: impl Into<String>, tone: Tone) -> Cell {
    Cell {
        text: text.into(),
        tone,
    }
}

/// Rows with columns aligned, two blanks before each; a column without any text is left out.
pub fn table(rows: &[Vec<Cell>], width: usize, colour: bool) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let length = |row: &Vec<Cell>, column: usize| row.get(column).map_or(0, |cell| cell.text.chars().count());
    let widths: Vec<usize> = (0..columns)
        .map(|column| rows.iter().map(|row| length(row, column)).max().unwrap_or(0))
        .collect();
    rows.iter()
        .map(|row| {
            let mut line = String::new();
            let mut used = 0;
            for (cell, wanted) in row.iter().zip(&widths) {
                if used + 2 >= width || *wanted == 0 {
                    continue;
                }
                let text = cut(&cell.text, width - used - 2);
                let padded = pad(&text, (*wanted).min(width - used - 2));
                used += 2 + padded.chars().count();
                line.push_str("  ");
                line.push_str(&paint(&padded, cell.tone, colour));
            }
            line.trim_end().to_owned()
        })
        .collect()
}

pub fn pad(text: &str, width: usize) -> String {
    format!("{text:width$}")
}

/// At most `width` characters, the last one an ellipsis when something is missing.
pub fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(width.saturating_sub(1)).collect();
    short.push('…');
    short
}

pub fn paint(text: &str, tone: Tone, colour: bool) -> String {
    let code = match tone {
        Tone::Plain => "",
        Tone::Heading => "1",
        Tone::Good => "32",
        Tone::Careful => "33",
        Tone::Bad => "31",
    };
    if colour && !code.is_empty() {
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    } else {
        text.to_owned()
    }
}

/// Breaks text at blanks into lines of at most `width` characters; a longer word stands alone.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cut_never_exceeds_the_width() {
        assert_eq!(cut("worker-1", 20), "worker-1");
        assert_eq!(cut("worker-1", 5), "work…");
        assert_eq!(cut("ä–ö", 2), "ä…");
    }

    #[test]
    fn colour_is_only_paint() {
        assert_eq!(paint("Ready", Tone::Good, false), "Ready");
        assert_eq!(paint("Ready", Tone::Good, true), "\u{1b}[32mReady\u{1b}[0m");
    }

    #[test]
    fn text_is_broken_at_blanks() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("incomprehensible words", 5), ["incomprehensible", "words"]);
    }
}
