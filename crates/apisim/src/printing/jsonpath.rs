//! The JSONPath dialect of printer columns: what `kubectl -o jsonpath` and the API server understand, without `range`
//! and text around the expression. Paths that lead nowhere give nothing; comparing apples with pears is a failure.

use std::borrow::Cow;

use serde_json::Value;

use super::jsonpath_parse::{self, Comparison, Index, Step};

/// A path that was read once and can be followed in many objects.
#[derive(Debug)]
pub struct JsonPath {
    steps: Vec<Step>,
}

/// The expression asks for something that this value cannot answer (an index out of bounds, a comparison of kinds
/// that do not compare).
#[derive(Debug, PartialEq, Eq)]
pub struct NotApplicable;

type Found<'a> = Vec<Cow<'a, Value>>;

impl JsonPath {
    /// Reads a path as a printer column has it: `.status.conditions[?(@.type=="Ready")].status`.
    pub fn parse(text: &str) -> Option<Self> {
        jsonpath_parse::parse(text).map(|steps| Self { steps })
    }

    /// All values that the path leads to.
    pub fn find<'a>(&self, value: &'a Value) -> Result<Found<'a>, NotApplicable> {
        follow(&self.steps, vec![Cow::Borrowed(value)])
    }
}

fn follow<'a>(steps: &[Step], start: Found<'a>) -> Result<Found<'a>, NotApplicable> {
    steps.iter().try_fold(start, |values, step| take(step, values))
}

fn take<'a>(step: &Step, values: Found<'a>) -> Result<Found<'a>, NotApplicable> {
    match step {
        Step::Literal(literal) => Ok(values.iter().map(|_| Cow::Owned(literal.clone())).collect()),
        Step::Field(name) => Ok(values.into_iter().filter_map(|value| field(value, name)).collect()),
        Step::Children => Ok(values.into_iter().flat_map(children).collect()),
        Step::Descendants => Ok(values.into_iter().flat_map(descendants).collect()),
        Step::Index(index) => {
            let mut found = Vec::new();
            for value in values.into_iter().filter(|value| !value.is_null()) {
                found.extend(elements(value, *index)?);
            }
            Ok(found)
        }
        Step::Union(paths) => {
            let mut found = Vec::new();
            for path in paths {
                found.extend(follow(path, values.clone())?);
            }
            Ok(found)
        }
        Step::Filter(filter) => {
            let mut found = Vec::new();
            for value in values {
                if !value.is_array() {
                    return Err(NotApplicable);
                }
                for child in children(value) {
                    if passes(&filter.left, filter.comparison, &filter.right, &child)? {
                        found.push(child);
                    }
                }
            }
            Ok(found)
        }
    }
}

fn field<'a>(value: Cow<'a, Value>, name: &str) -> Option<Cow<'a, Value>> {
    match value {
        Cow::Borrowed(value) => value.get(name).map(Cow::Borrowed),
        Cow::Owned(value) => value.get(name).cloned().map(Cow::Owned),
    }
}

fn children(value: Cow<'_, Value>) -> Found<'_> {
    match value {
        Cow::Borrowed(Value::Array(list)) => list.iter().map(Cow::Borrowed).collect(),
        Cow::Borrowed(Value::Object(map)) => map.values().map(Cow::Borrowed).collect(),
        Cow::Owned(Value::Array(list)) => list.into_iter().map(Cow::Owned).collect(),
        Cow::Owned(Value::Object(map)) => map.into_iter().map(|(_, value)| Cow::Owned(value)).collect(),
        _ => Vec::new(),
    }
}

/// The value and everything below it, except leaves.
fn descendants(value: Cow<'_, Value>) -> Found<'_> {
    let below = children(value.clone());
    if below.is_empty() {
        return Vec::new();
    }
    std::iter::once(value)
        .chain(below.into_iter().flat_map(descendants))
        .collect()
}

fn elements(value: Cow<'_, Value>, index: Index) -> Result<Found<'_>, NotApplicable> {
    if !value.is_array() {
        return Err(NotApplicable);
    }
    let list = children(value);
    let length = i64::try_from(list.len()).map_err(|_| NotApplicable)?;
    let from_end = |position: i64| if position < 0 { position + length } else { position };
    let start = from_end(index.start.unwrap_or(0));
    let end = match index.end {
        None if index.single => from_end(index.start.unwrap_or(0)) + 1,
        None => length,
        Some(end) => from_end(end),
    };
    if start == end {
        return Ok(Vec::new());
    }
    if start < 0 || start >= length || end < 0 || end > length || start > end {
        return Err(NotApplicable);
    }
    let step = match index.step {
        None => 1,
        Some(step) => usize::try_from(step)
            .ok()
            .filter(|step| *step > 0)
            .ok_or(NotApplicable)?,
    };
    let skip = usize::try_from(start).map_err(|_| NotApplicable)?;
    let count = usize::try_from(end - start).map_err(|_| NotApplicable)?;
    Ok(list.into_iter().skip(skip).take(count).step_by(step).collect())
}

fn passes(left: &[Step], comparison: Comparison, right: &[Step], element: &Value) -> Result<bool, NotApplicable> {
    let lefts = follow(left, vec![Cow::Borrowed(element)]);
    if comparison == Comparison::Exists {
        // Upstream looks only at how far evaluation came, and a failure leaves its input standing.
        return Ok(lefts.map_or(true, |found| !found.is_empty()));
    }
    let lefts = lefts?;
    let Some(one) = only(&lefts)? else { return Ok(false) };
    let rights = follow(right, vec![Cow::Borrowed(element)])?;
    let Some(other) = only(&rights)? else { return Ok(false) };
    let order = compare(one, other)?;
    match comparison {
        Comparison::Equal => Ok(order == Some(std::cmp::Ordering::Equal)),
        Comparison::NotEqual => Ok(order != Some(std::cmp::Ordering::Equal)),
        // Truth values are equal or not, never more or less.
        _ if one.is_boolean() => Err(NotApplicable),
        Comparison::Less => Ok(order.is_some_and(std::cmp::Ordering::is_lt)),
        Comparison::LessOrEqual => Ok(order.is_some_and(std::cmp::Ordering::is_le)),
        Comparison::Greater => Ok(order.is_some_and(std::cmp::Ordering::is_gt)),
        Comparison::GreaterOrEqual => Ok(order.is_some_and(std::cmp::Ordering::is_ge)),
        Comparison::Exists => Ok(true),
    }
}

fn only<'v>(found: &'v [Cow<'_, Value>]) -> Result<Option<&'v Value>, NotApplicable> {
    match found {
        [] => Ok(None),
        [one] => Ok(Some(one)),
        _ => Err(NotApplicable),
    }
}

fn compare(one: &Value, other: &Value) -> Result<Option<std::cmp::Ordering>, NotApplicable> {
    match (one, other) {
        (Value::String(one), Value::String(other)) => Ok(Some(one.cmp(other))),
        (Value::Bool(one), Value::Bool(other)) => Ok(Some(one.cmp(other))),
        (Value::Number(one), Value::Number(other)) => match (one.as_i64(), other.as_i64()) {
            (Some(one), Some(other)) => Ok(Some(one.cmp(&other))),
            (None, None) => Ok(one.as_f64().partial_cmp(&other.as_f64())),
            // An integer and a fraction are different kinds to the real server.
            _ => Err(NotApplicable),
        },
        _ => Err(NotApplicable),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn find(path: &str) -> Result<Vec<Value>, NotApplicable> {
        let object = json!({
            "spec": {"arr": ["x", "w", "z"], "map": {"k.v/w": 7, "one": {"two": 2}}, "nul": null, "items": [
                {"name": "a", "cnt": 1}, {"name": "b", "cnt": 2, "flag": true}, {"name": "c", "cnt": 3.5},
            ]},
        });
        let path = JsonPath::parse(path).expect("the path is well formed");
        path.find(&object)
            .map(|found| found.into_iter().map(Cow::into_owned).collect())
    }

    #[test]
    fn paths_lead_where_the_real_server_goes() {
        let cases: &[(&str, Value)] = &[
            (".spec.arr[0]", json!(["x"])),
            (".spec.arr[-1]", json!(["z"])),
            (".spec.arr[*]", json!(["x", "w", "z"])),
            (".spec.arr[1:3]", json!(["w", "z"])),
            (".spec.arr[::2]", json!(["x", "z"])),
            (".spec.arr[0,2]", json!(["x", "z"])),
            (".spec.map.k\\.v/w", json!([7])),
            (".spec.map['k\\.v/w']", json!([7])),
            (".spec.map['one']['two']", json!([2])),
            (".spec.map.one.*", json!([2])),
            ("$.spec.arr[0]", json!(["x"])),
            (".spec.nul", json!([null])),
            (".spec.missing.deeper[0].x", json!([])),
            (".spec.missing[?(@.type==\"Ready\")].status", json!([])),
            (".spec.items[?(@.name==\"b\")].cnt", json!([2])),
            (".spec.items[?(@.name=='b')].cnt", json!([2])),
            (".spec.items[?(@.name!='b')].name", json!(["a", "c"])),
            (".spec.items[?(@.flag)].name", json!(["b"])),
            (".spec.items[?(@.flag==true)].name", json!(["b"])),
            (".spec.items[?(@.name>='b')].name", json!(["b", "c"])),
            ("..cnt", json!([1, 2, 3.5])),
        ];
        for (path, expected) in cases {
            assert_eq!(find(path).map(Value::Array), Ok(expected.clone()), "{path}");
        }
    }

    #[test]
    fn question_without_an_answer_is_a_failure() {
        for path in [
            ".spec.arr[3]",
            ".spec.map[0]",
            ".spec.items[?(@.cnt>1)]",
            ".spec.nul[?(@.a==1)]",
        ] {
            assert_eq!(find(path), Err(NotApplicable), "{path}");
        }
    }

    #[test]
    fn malformed_path_is_refused() {
        for path in [
            ".spec[",
            ".spec[?(@.a==1]",
            ".spec[a]",
            ".spec{",
            ".spec[?(@.a=='b)]",
            "....a",
            ".a!",
        ] {
            let read = JsonPath::parse(path);
            // `.a!` is a field with an odd name: the parser takes everything up to a terminator.
            assert_eq!(read.is_none(), path != ".a!", "{path}");
        }
    }
}
