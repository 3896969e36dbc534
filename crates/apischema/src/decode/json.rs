//! A JSON parser that complains as Go's does and notices fields given twice. Numbers follow the API machinery: whole
//! ones that fit are 64-bit integers, all others floats.

use std::fmt::Write as _;

use serde_json::{Map, Number, Value};

use super::DecodeError;

/// Go refuses at ten thousand. Everything after decoding walks values recursively, on stacks that are not Go's, so the
/// same complaint comes earlier here.
pub(super) const MAX_DEPTH: usize = 500;

/// The value, and whether any object names a field twice.
pub(super) fn parse(bytes: &[u8]) -> Result<(Value, bool), DecodeError> {
    let mut parser = Parser {
        bytes,
        position: 0,
        depth: 0,
        duplicates: false,
        trace: None,
        path: String::new(),
    };
    let value = parser.document()?;
    Ok((value, parser.duplicates))
}

/// Every field in the order of the document with its path, and whether its object has named it before.
pub(super) fn trace(bytes: &[u8]) -> Vec<(String, bool)> {
    let trace = Some(Vec::new());
    let mut parser = Parser {
        bytes,
        position: 0,
        depth: 0,
        duplicates: false,
        trace,
        path: String::new(),
    };
    // The body parsed before, or nobody asks; what was seen until an error is the answer in any case.
    let _ = parser.document();
    parser.trace.unwrap_or_default()
}

/// Turns the numbers of a value that came from elsewhere into the form this parser gives.
pub(super) fn plain_numbers(value: Value) -> Value {
    match value {
        Value::Number(number) => Value::Number(plain_number(number)),
        Value::Array(items) => Value::Array(items.into_iter().map(plain_numbers).collect()),
        Value::Object(fields) => Value::Object(
            fields
                .into_iter()
                .map(|(key, child)| (key, plain_numbers(child)))
                .collect(),
        ),
        other => other,
    }
}

/// Go prints a whole float without a fraction, so that it comes back as an integer: it may as well be one at once.
fn plain_number(number: Number) -> Number {
    if number.is_i64() {
        return number;
    }
    let float = number.as_f64().unwrap_or_default();
    #[expect(clippy::cast_possible_truncation, reason = "bounded just before")]
    let whole = (float.fract() == 0.0 && float.abs() < 9.0e15).then_some(float as i64);
    whole
        .map(Number::from)
        .or_else(|| Number::from_f64(float))
        .unwrap_or(number)
}

struct Parser<'b> {
    bytes: &'b [u8],
    position: usize,
    depth: usize,
    duplicates: bool,
    trace: Option<Vec<(String, bool)>>,
    path: String,
}

impl Parser<'_> {
    fn document(&mut self) -> Result<Value, DecodeError> {
        let value = self.value()?;
        self.skip_blanks();
        match self.bytes.get(self.position) {
            None => Ok(value),
            Some(byte) => Err(invalid(*byte, "after top-level value")),
        }
    }

    fn skip_blanks(&mut self) {
        while matches!(self.bytes.get(self.position), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.position += 1;
        }
    }

    fn peek(&mut self) -> Result<u8, DecodeError> {
        self.skip_blanks();
        self.bytes.get(self.position).copied().ok_or_else(unexpected_end)
    }

    fn value(&mut self) -> Result<Value, DecodeError> {
        match self.peek()? {
            b'{' => self.nested(Self::object),
            b'[' => self.nested(Self::array),
            b'"' => self.string().map(Value::String),
            b'-' | b'0'..=b'9' => self.number(),
            b't' => self.literal("true").map(|()| Value::Bool(true)),
            b'f' => self.literal("false").map(|()| Value::Bool(false)),
            b'n' => self.literal("null").map(|()| Value::Null),
            other => Err(invalid(other, "looking for beginning of value")),
        }
    }

    fn nested(&mut self, read: fn(&mut Self) -> Result<Value, DecodeError>) -> Result<Value, DecodeError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(DecodeError("exceeded max depth".to_owned()));
        }
        self.position += 1;
        let value = read(self)?;
        self.depth -= 1;
        Ok(value)
    }

    fn object(&mut self) -> Result<Value, DecodeError> {
        let mut fields = Map::new();
        if self.peek()? == b'}' {
            self.position += 1;
            return Ok(Value::Object(fields));
        }
        loop {
            match self.peek()? {
                b'"' => {}
                other => return Err(invalid(other, "looking for beginning of object key string")),
            }
            let key = self.string()?;
            match self.peek()? {
                b':' => self.position += 1,
                other => return Err(invalid(other, "after object key")),
            }
            let repeated = fields.contains_key(&key);
            self.duplicates |= repeated;
            let length = self.enter(&key, repeated);
            let value = self.value()?;
            self.path.truncate(length);
            fields.insert(key, value);
            match self.peek()? {
                b',' => self.position += 1,
                b'}' => {
                    self.position += 1;
                    return Ok(Value::Object(fields));
                }
                other => return Err(invalid(other, "after object key:value pair")),
            }
        }
    }

    fn enter(&mut self, key: &str, repeated: bool) -> usize {
        let length = self.path.len();
        if let Some(trace) = &mut self.trace {
            if length > 0 {
                self.path.push('.');
            }
            self.path.push_str(key);
            trace.push((self.path.clone(), repeated));
        }
        length
    }

    fn array(&mut self) -> Result<Value, DecodeError> {
        let mut items = Vec::new();
        if self.peek()? == b']' {
            self.position += 1;
            return Ok(Value::Array(items));
        }
        loop {
            let length = self.path.len();
            if self.trace.is_some() {
                let _ = write!(self.path, "[{}]", items.len());
            }
            items.push(self.value()?);
            self.path.truncate(length);
            match self.peek()? {
                b',' => self.position += 1,
                b']' => {
                    self.position += 1;
                    return Ok(Value::Array(items));
                }
                other => return Err(invalid(other, "after array element")),
            }
        }
    }

    fn literal(&mut self, word: &str) -> Result<(), DecodeError> {
        for expected in word.bytes() {
            match self.bytes.get(self.position) {
                None => return Err(unexpected_end()),
                Some(byte) if *byte == expected => self.position += 1,
                Some(byte) => {
                    let place = format!("in literal {word} (expecting {})", quote_byte(expected));
                    return Err(invalid(*byte, &place));
                }
            }
        }
        Ok(())
    }

    fn number(&mut self) -> Result<Value, DecodeError> {
        let start = self.position;
        let mut whole = true;
        if self.current() == Some(b'-') {
            self.position += 1;
        }
        match self.current() {
            Some(b'0') => self.position += 1,
            Some(b'1'..=b'9') => self.digits(),
            other => return Err(other.map_or_else(unexpected_end, |byte| invalid(byte, "in numeric literal"))),
        }
        if self.current() == Some(b'.') {
            whole = false;
            self.position += 1;
            self.some_digits("after decimal point in numeric literal")?;
        }
        if matches!(self.current(), Some(b'e' | b'E')) {
            whole = false;
            self.position += 1;
            if matches!(self.current(), Some(b'+' | b'-')) {
                self.position += 1;
            }
            self.some_digits("in exponent of numeric literal")?;
        }
        let text = std::str::from_utf8(&self.bytes[start..self.position]).unwrap_or_default();
        if whole && let Ok(integer) = text.parse::<i64>() {
            return Ok(Value::from(integer));
        }
        let float: f64 = text.parse().unwrap_or_default();
        // Go's parser calls a number that no float can hold out of range.
        Number::from_f64(float)
            .map(|number| Value::Number(plain_number(number)))
            .ok_or_else(|| {
                DecodeError(format!(
                    "json: cannot unmarshal number {text} into Go value of type float64"
                ))
            })
    }

    fn current(&self) -> Option<u8> {
        self.bytes.get(self.position).copied()
    }

    fn digits(&mut self) {
        while matches!(self.current(), Some(b'0'..=b'9')) {
            self.position += 1;
        }
    }

    fn some_digits(&mut self, place: &str) -> Result<(), DecodeError> {
        match self.current() {
            Some(b'0'..=b'9') => {
                self.digits();
                Ok(())
            }
            Some(other) => Err(invalid(other, place)),
            None => Err(unexpected_end()),
        }
    }

    fn string(&mut self) -> Result<String, DecodeError> {
        self.position += 1;
        let start = self.position;
        let mut plain = true;
        loop {
            match self.current().ok_or_else(unexpected_end)? {
                b'"' => break,
                b'\\' => {
                    plain = false;
                    self.position += 1;
                    self.escape()?;
                }
                byte @ 0..=0x1f => return Err(invalid(byte, "in string literal")),
                _ => self.position += 1,
            }
        }
        let raw = &self.bytes[start..self.position];
        self.position += 1;
        if plain {
            return Ok(String::from_utf8_lossy(raw).into_owned());
        }
        Ok(unescape(&String::from_utf8_lossy(raw)))
    }

    fn escape(&mut self) -> Result<(), DecodeError> {
        match self.current().ok_or_else(unexpected_end)? {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => self.position += 1,
            b'u' => {
                self.position += 1;
                for _ in 0..4 {
                    match self.current().ok_or_else(unexpected_end)? {
                        byte if byte.is_ascii_hexdigit() => self.position += 1,
                        other => return Err(invalid(other, "in \\u hexadecimal character escape")),
                    }
                }
            }
            other => return Err(invalid(other, "in string escape code")),
        }
        Ok(())
    }
}

/// Resolves escapes whose form has been checked; half a surrogate pair becomes the replacement character.
fn unescape(raw: &str) -> String {
    let mut out = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let Some(kind) = rest.chars().next() else { break };
        rest = &rest[kind.len_utf8()..];
        match kind {
            'b' => out.push('\u{8}'),
            'f' => out.push('\u{c}'),
            'n' => out.push('\n'),
            'r' => out.push('\r'),
            't' => out.push('\t'),
            'u' => {
                let first = hex(rest);
                rest = rest.get(4..).unwrap_or_default();
                let second = rest
                    .strip_prefix("\\u")
                    .map(hex)
                    .filter(|unit| (0xdc00..0xe000).contains(unit));
                match (first, second) {
                    (0xd800..0xdc00, Some(second)) => {
                        let code = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
                        out.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
                        rest = rest.get(6..).unwrap_or_default();
                    }
                    (code, _) => out.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)),
                }
            }
            other => out.push(other),
        }
    }
    out.push_str(rest);
    out
}

fn hex(text: &str) -> u32 {
    text.get(..4)
        .and_then(|digits| u32::from_str_radix(digits, 16).ok())
        .unwrap_or_default()
}

fn unexpected_end() -> DecodeError {
    DecodeError("unexpected end of JSON input".to_owned())
}

fn invalid(byte: u8, place: &str) -> DecodeError {
    DecodeError(format!("invalid character {} {place}", quote_byte(byte)))
}

/// Go names the offending *byte*, as if it were a character.
fn quote_byte(byte: u8) -> String {
    match byte {
        b'\'' => "'\\''".to_owned(),
        b'"' => "'\"'".to_owned(),
        other => {
            let quoted = crate::field_error::go_quote(char::from(other).encode_utf8(&mut [0; 2]));
            format!("'{}'", &quoted[1..quoted.len() - 1])
        }
    }
}
