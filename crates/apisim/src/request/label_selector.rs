//! Label selectors as text (`a=b,c in (d,e),!f`): parsing and matching.

use std::collections::BTreeSet;

use serde_json::Value;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Operator {
    Exists,
    Absent,
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
    Greater(i64),
    Less(i64),
}

/// Requirements that must all hold; none selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector(Vec<(String, Operator)>);

impl LabelSelector {
    pub fn is_everything(&self) -> bool {
        self.0.is_empty()
    }

    pub fn matches(&self, labels: Option<&Value>) -> bool {
        self.0.iter().all(|(key, operator)| {
            let value = labels.and_then(|labels| labels.get(key)).and_then(Value::as_str);
            match operator {
                Operator::Exists => value.is_some(),
                Operator::Absent => value.is_none(),
                Operator::In(values) => value.is_some_and(|value| values.contains(value)),
                Operator::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
                Operator::Greater(bound) => number(value).is_some_and(|value| value > *bound),
                Operator::Less(bound) => number(value).is_some_and(|value| value < *bound),
            }
        })
    }

    /// Reads the text form; the error is the one that the real server prints.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parser = Parser {
            tokens: tokens(text),
            position: 0,
        };
        parser.requirements().map(Self)
    }

    /// The selector of a workload or budget (`matchLabels`, `matchExpressions`). A missing one selects nothing, an
    /// empty one everything.
    pub fn from_object(selector: &Value) -> Option<Self> {
        let mut requirements = Vec::new();
        for (key, value) in selector
            .get("matchLabels")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            let value = value.as_str().unwrap_or_default().to_owned();
            requirements.push((key.clone(), Operator::In(BTreeSet::from([value]))));
        }
        for expression in selector
            .get("matchExpressions")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            let key = expression.get("key")?.as_str()?.to_owned();
            let values = expression.get("values").and_then(Value::as_array);
            let values = values
                .into_iter()
                .flatten()
                .filter_map(|value| value.as_str().map(str::to_owned))
                .collect();
            let operator = match expression.get("operator")?.as_str()? {
                "In" => Operator::In(values),
                "NotIn" => Operator::NotIn(values),
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::Absent,
                _ => return None,
            };
            requirements.push((key, operator));
        }
        Some(Self(requirements))
    }
}

fn number(value: Option<&str>) -> Option<i64> {
    value?.parse().ok()
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Sign(&'static str),
    End,
}

impl Token {
    fn text(&self) -> &str {
        match self {
            Self::Word(word) => word,
            Self::Sign(sign) => sign,
            Self::End => "",
        }
    }
}

const SIGNS: [&str; 10] = ["==", "!=", "=", "!", "(", ")", ",", ">", "<", "\u{0}"];

fn tokens(text: &str) -> Vec<Token> {
    let mut found = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        if let Some(sign) = SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            found.push(Token::Sign(sign));
            rest = &rest[sign.len()..];
        } else {
            let end = rest
                .find(|letter: char| letter.is_whitespace() || "=!(),><".contains(letter))
                .unwrap_or(rest.len());
            found.push(Token::Word(rest[..end].to_owned()));
            rest = &rest[end..];
        }
        rest = rest.trim_start();
    }
    found
}

struct Parser {
    tokens: Vec<Token>,
    position: usize,
}

impl Parser {
    fn peek(&self) -> &Token {
        self.tokens.get(self.position).unwrap_or(&Token::End)
    }

    fn next(&mut self) -> Token {
        let token = self.peek().clone();
        self.position += 1;
        token
    }

    fn requirements(&mut self) -> Result<Vec<(String, Operator)>, String> {
        let mut requirements = Vec::new();
        if *self.peek() == Token::End {
            return Ok(requirements);
        }
        loop {
            match self.peek() {
                Token::Word(_) | Token::Sign("!") => {
                    let read = self
                        .requirement()
                        .map_err(|why| format!("unable to parse requirement: {why}"))?;
                    requirements.push(read);
                }
                token => {
                    return Err(format!(
                        "found '{}', expected: !, identifier, or 'end of string'",
                        token.text()
                    ));
                }
            }
            match self.next() {
                Token::End => return Ok(requirements),
                Token::Sign(",") => {
                    if !matches!(self.peek(), Token::Word(_) | Token::Sign("!")) {
                        return Err(format!(
                            "found '{}', expected: identifier after ','",
                            self.peek().text()
                        ));
                    }
                }
                token => return Err(format!("found '{}', expected: ',' or 'end of string'", token.text())),
            }
        }
    }

    fn requirement(&mut self) -> Result<(String, Operator), String> {
        let absent = *self.peek() == Token::Sign("!");
        if absent {
            self.next();
        }
        let key = match self.next() {
            Token::Word(word) => word,
            token => return Err(format!("found '{}', expected: identifier", token.text())),
        };
        check_key(&key)?;
        if absent {
            return Ok((key, Operator::Absent));
        }
        if matches!(self.peek(), Token::End | Token::Sign(",")) {
            return Ok((key, Operator::Exists));
        }
        let operator = match self.next() {
            Token::Sign("=" | "==") => Operator::In(BTreeSet::from([self.value(&key)?])),
            Token::Sign("!=") => Operator::NotIn(BTreeSet::from([self.value(&key)?])),
            Token::Sign(">") => Operator::Greater(self.bound()?),
            Token::Sign("<") => Operator::Less(self.bound()?),
            Token::Word(word) if word == "in" => Operator::In(self.values(&key)?),
            Token::Word(word) if word == "notin" => Operator::NotIn(self.values(&key)?),
            token => {
                return Err(format!(
                    "found '{}', expected: in, notin, =, ==, !=, gt, lt",
                    token.text()
                ));
            }
        };
        Ok((key, operator))
    }

    /// A single value; missing means the empty string, as in `a=`.
    fn value(&mut self, key: &str) -> Result<String, String> {
        match self.peek().clone() {
            Token::End | Token::Sign(",") => Ok(String::new()),
            Token::Word(word) => {
                self.next();
                check_value(key, &word, 0)?;
                Ok(word)
            }
            token @ Token::Sign(_) => Err(format!("found '{}', expected: identifier", token.text())),
        }
    }

    fn bound(&mut self) -> Result<i64, String> {
        let text = match self.next() {
            Token::Word(word) => word,
            token => return Err(format!("found '{}', expected: identifier", token.text())),
        };
        text.parse().map_err(|_| {
            format!("values[0]: Invalid value: {text:?}: for 'Gt', 'Lt' operators, the value must be an integer")
        })
    }

    fn values(&mut self, key: &str) -> Result<BTreeSet<String>, String> {
        if self.next() != Token::Sign("(") {
            self.position -= 1;
            return Err(format!("found '{}' expected: '('", self.peek().text()));
        }
        let mut values = BTreeSet::new();
        let mut expects_value = true;
        loop {
            match self.next() {
                Token::Word(word) if expects_value => {
                    check_value(key, &word, values.len())?;
                    values.insert(word);
                    expects_value = false;
                }
                Token::Sign(",") => {
                    if expects_value {
                        values.insert(String::new());
                    }
                    expects_value = true;
                }
                Token::Sign(")") => {
                    if expects_value {
                        values.insert(String::new());
                    }
                    return Ok(values);
                }
                token => return Err(format!("found '{}', expected: ',', ')' or identifier", token.text())),
            }
        }
    }
}

fn check_key(key: &str) -> Result<(), String> {
    match afloat_apischema::structural::names::qualified_name(key).first() {
        Some(why) => Err(format!("<nil>: Invalid value: {key:?}: {why}")),
        None => Ok(()),
    }
}

fn check_value(key: &str, value: &str, index: usize) -> Result<(), String> {
    match afloat_apischema::structural::names::label_value(value).first() {
        Some(why) => Err(format!("values[{index}][{key}]: Invalid value: {value:?}: {why}")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn selectors_select() {
        let labels = json!({"app": "web", "tier": "front", "n": "5"});
        let cases = [
            ("", true),
            ("app", true),
            ("!app", false),
            ("!gone", true),
            ("app=web", true),
            ("app==web,tier!=back", true),
            ("app=", false),
            ("app in (web, api)", true),
            ("app notin (web)", false),
            ("gone notin (web)", true),
            ("n>4,n<6", true),
            ("n>5", false),
        ];
        for (text, expected) in cases {
            assert_eq!(
                LabelSelector::parse(text).unwrap().matches(Some(&labels)),
                expected,
                "{text}"
            );
        }
        for bad in ["a=b=c", "a in", "a in (b", ",", "a,,b", "a b", "!"] {
            assert!(LabelSelector::parse(bad).is_err(), "{bad}");
        }
    }
}
