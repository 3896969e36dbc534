//! `pattern`: regular expressions written for Go's RE2, run by Rust's. The two differ in what `\d` and its kin mean
//! (ASCII there, Unicode here) and in what may stand unescaped in a bracket expression.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use regex::Regex;

thread_local! {
    /// Patterns are few and come from installed schemas; compiling one costs far more than running it.
    static COMPILED: RefCell<HashMap<String, Rc<Result<Regex, String>>>> = RefCell::new(HashMap::new());
}

/// Whether the text holds a match; `Err` with the complaint when the pattern is none.
pub fn matches(pattern: &str, text: &str) -> Result<bool, String> {
    let compiled = COMPILED.with_borrow_mut(|cache| {
        if let Some(compiled) = cache.get(pattern) {
            return Rc::clone(compiled);
        }
        let compiled = Rc::new(compile(pattern));
        cache.insert(pattern.to_owned(), Rc::clone(&compiled));
        compiled
    });
    match compiled.as_ref() {
        Ok(regex) => Ok(regex.is_match(text)),
        Err(complaint) => Err(complaint.clone()),
    }
}

/// Compiles a pattern of Go's syntax.
pub fn compile(pattern: &str) -> Result<Regex, String> {
    Regex::new(&translate(pattern)).map_err(|error| {
        let text = error.to_string();
        let last = text.lines().last().unwrap_or_default().trim_start_matches("error: ");
        let (words, shown) = match last {
            "unclosed group" => ("missing closing )", pattern),
            "unclosed character class" => (
                "missing closing ]",
                pattern.find('[').map_or(pattern, |at| &pattern[at..]),
            ),
            "unopened group" => ("unexpected )", pattern),
            "repetition operator missing expression" => ("missing argument to repetition operator", "*"),
            other => (other, pattern),
        };
        format!("error parsing regexp: {words}: `{shown}`")
    })
}

fn translate(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len() + 8);
    let mut characters = pattern.chars().peekable();
    let mut in_class = false;
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some('d') => out.push_str("[0-9]"),
                Some('D') => out.push_str("[^0-9]"),
                Some('w') => out.push_str("[0-9A-Za-z_]"),
                Some('W') => out.push_str("[^0-9A-Za-z_]"),
                Some('s') => out.push_str("[\\t\\n\\f\\r ]"),
                Some('S') => out.push_str("[^\\t\\n\\f\\r ]"),
                Some('b') if !in_class => out.push_str("(?-u:\\b)"),
                Some(other) => {
                    out.push('\\');
                    out.push(other);
                }
                None => out.push('\\'),
            },
            '[' if !in_class => {
                in_class = true;
                out.push('[');
                if characters.next_if_eq(&'^').is_some() {
                    out.push('^');
                }
                // A bracket right at the start is a member of the class.
                if characters.next_if_eq(&']').is_some() {
                    out.push_str("\\]");
                }
            }
            ']' if in_class => {
                in_class = false;
                out.push(']');
            }
            '[' if characters.peek() == Some(&':') => {
                out.push('[');
                let mut before = ' ';
                for inner in characters.by_ref() {
                    out.push(inner);
                    if before == ':' && inner == ']' {
                        break;
                    }
                    before = inner;
                }
            }
            '[' | '&' | '~' if in_class => {
                out.push('\\');
                out.push(character);
            }
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_syntax_means_what_go_means() {
        for (pattern, text, expected) in [
            (r"^\d+$", "12", true),
            (r"^\d+$", "\u{663}", false),
            (r"^[\w.-]+$", "a_b.c-d", true),
            (r"^[[&~]+$", "[&~", true),
            (r"^v\d+\.\d+\.\d+(-[0-9A-Za-z-.]+)?$", "v1.2.3-rc.1", true),
            (r"^[^]]$", "]", false),
            (r"a\/b", "a/b", true),
            (r"^[[:alpha:]&]+$", "ab&", true),
        ] {
            assert_eq!(matches(pattern, text), Ok(expected), "{pattern} {text}");
        }
        assert!(matches("(", "x").is_err());
    }
}
