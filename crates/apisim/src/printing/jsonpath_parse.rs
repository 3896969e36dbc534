//! Reading a JSONPath expression into steps, with the quirks of the one parser that clusters use: a quoted key is read
//! again as a dotted path, and a filter is split at its first run of comparison signs.

use serde_json::Value;

/// One step from a set of values to the next.
#[derive(Clone, Debug)]
pub enum Step {
    Field(String),
    Children,
    Descendants,
    Index(Index),
    Union(Vec<Vec<Step>>),
    Filter(Filter),
    Literal(Value),
}

/// `[start:end:step]`, or `[start]`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Index {
    pub start: Option<i64>,
    pub end: Option<i64>,
    pub step: Option<i64>,
    /// No colon: exactly one element.
    pub single: bool,
}

/// `[?(left comparison right)]`.
#[derive(Clone, Debug)]
pub struct Filter {
    pub left: Vec<Step>,
    pub comparison: Comparison,
    pub right: Vec<Step>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    Exists,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// Reads a whole expression; `None` when it is malformed.
pub fn parse(text: &str) -> Option<Vec<Step>> {
    let mut parser = Parser { rest: text };
    let mut steps = Vec::new();
    while parser.step(&mut steps)? {}
    Some(steps)
}

struct Parser<'t> {
    rest: &'t str,
}

impl<'t> Parser<'t> {
    /// Reads one step; false at the end of the text.
    fn step(&mut self, steps: &mut Vec<Step>) -> Option<bool> {
        if let Some(rest) = self.rest.strip_prefix("[?(") {
            self.rest = rest;
            steps.push(self.filter()?);
            return Some(true);
        }
        if let Some(rest) = self.rest.strip_prefix("..") {
            if matches!(steps.last(), Some(Step::Descendants)) {
                return None;
            }
            self.rest = rest;
            steps.push(Step::Descendants);
            if self
                .rest
                .starts_with(|next: char| next == '_' || next.is_alphanumeric())
            {
                steps.push(self.field());
            }
            return Some(true);
        }
        let Some(next) = self.rest.chars().next() else {
            return Some(false);
        };
        let after = &self.rest[next.len_utf8()..];
        match next {
            ' ' | '@' | '$' => self.rest = after,
            '[' => {
                self.rest = after;
                self.brackets(steps)?;
            }
            '"' | '\'' => steps.push(self.quoted(next)?),
            '.' => {
                self.rest = after;
                steps.push(self.field());
            }
            '+' | '-' | '0'..='9' => steps.push(self.number()?),
            _ if next == '_' || next.is_alphanumeric() => steps.push(self.truth()?),
            _ => return None,
        }
        Some(true)
    }

    /// Everything up to the next character that ends a name, escaped ones included.
    fn name(&mut self) -> &'t str {
        let mut escaped = false;
        let end = self.rest.find(|character: char| {
            if escaped {
                escaped = false;
                return false;
            }
            escaped = character == '\\';
            matches!(
                character,
                ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}'
            )
        });
        let (name, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        name
    }

    fn field(&mut self) -> Step {
        match self.name() {
            "*" => Step::Children,
            name => Step::Field(name.replace('\\', "")),
        }
    }

    fn truth(&mut self) -> Option<Step> {
        self.name()
            .parse::<bool>()
            .ok()
            .map(|truth| Step::Literal(truth.into()))
    }

    fn number(&mut self) -> Option<Step> {
        let signed = usize::from(self.rest.starts_with(['+', '-']));
        let digits = self.rest[signed..].find(|next: char| next != '.' && !next.is_ascii_digit());
        let (number, rest) = self.rest.split_at(digits.map_or(self.rest.len(), |end| end + signed));
        self.rest = rest;
        let literal = match number.parse::<i64>() {
            Ok(integer) => Value::from(integer),
            Err(_) => Value::from(number.parse::<f64>().ok()?),
        };
        Some(Step::Literal(literal))
    }

    fn quoted(&mut self, quote: char) -> Option<Step> {
        let mut text = String::new();
        let mut characters = self.rest.char_indices().skip(1);
        while let Some((position, character)) = characters.next() {
            match character {
                '\\' => text.push(characters.next()?.1),
                '\n' => return None,
                _ if character == quote => {
                    self.rest = &self.rest[position + 1..];
                    return Some(Step::Literal(text.into()));
                }
                _ => text.push(character),
            }
        }
        None
    }

    fn brackets(&mut self, steps: &mut Vec<Step>) -> Option<()> {
        let (inside, rest) = self.rest.split_once(']')?;
        self.rest = rest;
        if inside.contains(',') {
            let paths: Option<Vec<_>> = inside
                .split(',')
                .map(|member| parse(&format!("[{}]", member.trim_matches(' '))))
                .collect();
            steps.push(Step::Union(paths?));
        } else if let Some(key) = quoted_key(inside) {
            steps.extend(parse(&format!(".{key}"))?);
        } else {
            steps.push(Step::Index(index(if inside == "*" { ":" } else { inside })?));
        }
        Some(())
    }

    fn filter(&mut self) -> Option<Step> {
        let end = filter_end(self.rest)?;
        let (text, rest) = (&self.rest[..end], &self.rest[end + 1..]);
        self.rest = rest.strip_prefix(']')?;
        let is_sign = |character: char| matches!(character, '!' | '<' | '>' | '=');
        let split = text.find(is_sign).filter(|start| *start > 0).and_then(|start| {
            let length = text[start..].find(|character| !is_sign(character))?;
            Some((&text[..start], &text[start..start + length], &text[start + length..]))
        });
        let Some((left, signs, right)) = split else {
            return Some(Step::Filter(Filter {
                left: parse(text)?,
                comparison: Comparison::Exists,
                right: Vec::new(),
            }));
        };
        let comparison = match signs {
            "==" => Comparison::Equal,
            "!=" => Comparison::NotEqual,
            "<" => Comparison::Less,
            "<=" => Comparison::LessOrEqual,
            ">" => Comparison::Greater,
            ">=" => Comparison::GreaterOrEqual,
            _ => return None,
        };
        Some(Step::Filter(Filter {
            left: parse(left)?,
            comparison,
            right: parse(right)?,
        }))
    }
}

/// Where the closing parenthesis of a filter is: one that does not stand in quotes.
fn filter_end(text: &str) -> Option<usize> {
    let mut quote = None;
    let mut previous = ' ';
    for (position, character) in text.char_indices() {
        match (character, quote) {
            ('\n', _) => return None,
            ('"' | '\'', None) => quote = Some(character),
            (_, Some(open)) if character == open && previous != '\\' => quote = None,
            (')', None) => return Some(position),
            _ => {}
        }
        previous = character;
    }
    None
}

fn quoted_key(text: &str) -> Option<&str> {
    let key = text.strip_prefix('\'')?.strip_suffix('\'')?;
    (!key.contains('\'')).then_some(key)
}

fn index(text: &str) -> Option<Index> {
    let parts: Vec<&str> = text.split(':').collect();
    if parts.len() > 3 {
        return None;
    }
    let number = |position: usize| -> Option<Option<i64>> {
        match parts.get(position) {
            None | Some(&"") => Some(None),
            Some(digits)
                if digits
                    .trim_start_matches('-')
                    .bytes()
                    .all(|digit| digit.is_ascii_digit()) =>
            {
                digits.parse().ok().map(Some)
            }
            Some(_) => None,
        }
    };
    Some(Index {
        start: number(0)?,
        end: number(1)?,
        step: number(2)?,
        single: parts.len() == 1,
    })
}
