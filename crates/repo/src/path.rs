//! The path of a request, from its characters to names. It is decoded once and never again, and what could mean another file to
//! someone else (`..`, a coded slash, a NUL) is refused rather than cleaned.

use std::fmt::Write as _;

/// Longer paths are refused: no file system has them.
const LONGEST: usize = 4096;

/// What a path asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub names: Vec<String>,
    /// It ends in a slash.
    pub folder: bool,
}

/// Why a path is no path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    #[error("the path does not begin with a slash")]
    NoSlash,
    #[error("the path is longer than {LONGEST} characters")]
    TooLong,
    #[error("the path has a '%' that two hexadecimal digits do not follow")]
    BadCode,
    #[error("the path is not UTF-8")]
    NoText,
    #[error("the path has '.' or '..' in it: ask for the file by its full path")]
    Dots,
    #[error("a name in the path has a slash, a backslash or a control character in it")]
    BadName,
}

impl Wanted {
    /// Reads the path of a request line. Several slashes are one, as web servers have it.
    pub fn read(raw: &str) -> Result<Self, PathError> {
        if raw.len() > LONGEST {
            return Err(PathError::TooLong);
        }
        let rest = raw.strip_prefix('/').ok_or(PathError::NoSlash)?;
        let mut names = Vec::new();
        for coded in rest.split('/').filter(|coded| !coded.is_empty()) {
            let name = decode(coded)?;
            if name == "." || name == ".." {
                return Err(PathError::Dots);
            }
            if name
                .chars()
                .any(|letter| matches!(letter, '/' | '\\') || letter.is_control())
            {
                return Err(PathError::BadName);
            }
            names.push(name);
        }
        let folder = raw.ends_with('/');
        Ok(Self { names, folder })
    }

    /// Whether a name in it begins with a dot.
    pub fn hidden(&self) -> bool {
        self.names.iter().any(|name| name.starts_with('.'))
    }
}

fn decode(coded: &str) -> Result<String, PathError> {
    let mut bytes = Vec::with_capacity(coded.len());
    let mut rest = coded.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits = rest.next().and_then(hexadecimal).zip(rest.next().and_then(hexadecimal));
            let (high, low) = digits.ok_or(PathError::BadCode)?;
            bytes.push(high << 4 | low);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).map_err(|_| PathError::NoText)
}

fn hexadecimal(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

/// A name as it is written in a path.
pub(crate) fn encode(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            let _infallible = write!(text, "%{byte:02X}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h51_paths_that_could_leave_the_root_are_refused() {
        for (path, expected) in [
            ("/", Ok("")),
            ("/a/b", Ok("a|b")),
            ("//a///b/", Ok("a|b")),
            ("/a%20b/c%C3%A4", Ok("a b|cä")),
            ("/a+b", Ok("a+b")),
            ("/100%25", Ok("100%")),
            // Decoded once: what remains is a name like any other.
            ("/%252e%252e/x", Ok("%2e%2e|x")),
            ("/...", Ok("...")),
            ("/..", Err(PathError::Dots)),
            ("/a/../b", Err(PathError::Dots)),
            ("/a/./b", Err(PathError::Dots)),
            ("/%2e%2e/etc/passwd", Err(PathError::Dots)),
            ("/.%2E/etc/passwd", Err(PathError::Dots)),
            ("/%2e", Err(PathError::Dots)),
            ("/..%2f..%2fetc%2fpasswd", Err(PathError::BadName)),
            ("/a%2fb", Err(PathError::BadName)),
            ("/..%5c..%5cetc", Err(PathError::BadName)),
            ("/a\\b", Err(PathError::BadName)),
            ("/a%00b", Err(PathError::BadName)),
            ("/a%0d%0aSet-Cookie:x", Err(PathError::BadName)),
            ("/%c0%ae%c0%ae/etc", Err(PathError::NoText)),
            ("/%ff", Err(PathError::NoText)),
            ("/%", Err(PathError::BadCode)),
            ("/%2", Err(PathError::BadCode)),
            ("/%zz", Err(PathError::BadCode)),
            ("/%+1", Err(PathError::BadCode)),
            ("", Err(PathError::NoSlash)),
            ("a/b", Err(PathError::NoSlash)),
            ("http://elsewhere/a", Err(PathError::NoSlash)),
        ] {
            let found = Wanted::read(path).map(|wanted| wanted.names.join("|"));
            assert_eq!(found, expected.map(str::to_owned), "{path:?}");
        }
        assert_eq!(Wanted::read(&format!("/{}", "a".repeat(5000))), Err(PathError::TooLong));
    }

    #[test]
    fn what_is_encoded_is_read_as_it_was() {
        for name in ["plain.txt", "a b", "ä", "100%", "a?b#c", "<x>&\"'", "%2e"] {
            let wanted = Wanted::read(&format!("/{}", encode(name))).unwrap();
            assert_eq!(wanted.names, [name], "{name:?}");
        }
    }

    #[test]
    fn a_name_with_a_dot_in_front_is_hidden_wherever_it_stands() {
        for (path, hidden) in [("/a/.b/c", true), ("/.a", true), ("/a.b/c", false), ("/", false)] {
            assert_eq!(Wanted::read(path).unwrap().hidden(), hidden, "{path}");
        }
    }
}
