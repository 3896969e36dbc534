//! Recorded answers of kube-apiserver v1.36.3 to objects and rules.

use serde_json::{Value, json};

use super::*;
use crate::field_error::Path;

fn evaluate(schema: &Value, value: &Value, old: Option<&Value>) -> Vec<String> {
    let schema = TypeSchema::from_inline(schema);
    let evaluation = CelRules::compile(&schema).evaluate(&schema, value, old);
    evaluation.errors.iter().map(ToString::to_string).collect()
}

fn foo() -> Value {
    let crd: Value = serde_json::from_str(include_str!("../crd/testdata/foo.json")).expect("test data");
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}

#[test]
fn compiled_rules_can_be_shared() {
    fn shared<T: Send + Sync>() {}
    shared::<CelRules>();
}

#[test]
fn failures_read_as_recorded() {
    for (ce, expected) in [
        (json!({"a": 5, "b": 3}), "spec.ce.a: Forbidden: a 5 > b 3"),
        (
            json!({"a": 1, "b": 300}),
            "spec.ce: Invalid value: failed rule: !has(self.b) || self.b < 100",
        ),
        (
            json!({"a": 1}),
            "spec.ce: Invalid value: \"object\": no such key: b evaluating rule: self.a <= self.b",
        ),
    ] {
        assert_eq!(evaluate(&foo(), &json!({"spec": {"ce": ce}}), None), [expected]);
    }
    assert!(evaluate(&foo(), &json!({"spec": {"ce": {"a": 1, "b": 2}}}), None).is_empty());
}

#[test]
fn transition_rules_follow_fields_and_keyed_items() {
    let old = json!({"spec": {"m": [{"k": "z", "v": 9}, {"k": "a", "v": 5}], "ce": {"a": 1, "b": 2, "imm": "x"}}});
    let new = json!({"spec": {"m": [{"k": "a", "v": 4}, {"k": "new", "v": 1}], "ce": {"a": 1, "b": 2, "imm": "y"}}});
    let mut found = evaluate(&foo(), &new, Some(&old));
    found.sort();
    assert_eq!(
        found,
        [
            "spec.ce.imm: Invalid value: \"y\": immutable",
            "spec.m[0].v: Invalid value: 4: no down"
        ]
    );
    assert!(evaluate(&foo(), &new, None).is_empty());
}

#[test]
fn unchanged_parts_only_warn() {
    let schema = TypeSchema::from_inline(&foo());
    let rules = CelRules::compile(&schema);
    let old = json!({"spec": {"req": "ab", "ce": {"a": 5, "b": 3}}});
    let mut new = old.clone();
    new["spec"]["req"] = json!("ac");
    let evaluation = rules.evaluate(&schema, &new, Some(&old));
    assert_eq!(evaluation.errors, []);
    assert_eq!(evaluation.warnings, ["spec.ce.a: Forbidden: a 5 > b 3"]);
    new["spec"]["ce"]["a"] = json!(6);
    assert_eq!(rules.evaluate(&schema, &new, Some(&old)).errors.len(), 1);
}

#[test]
fn rules_see_what_upstream_lets_them_see() {
    let text = |rule: &str| {
        json!({"type": "object", "properties": {
        "a-b": {"type": "string"}, "namespace": {"type": "string"}, "n": {"type": "number"}, "t": {"type": "string", "format": "date-time"},
        "d": {"type": "string", "format": "duration"}, "raw": {"type": "string", "format": "byte"},
        "m": {"type": "object", "additionalProperties": {"type": "integer"}},
        "l": {"type": "array", "items": {"type": "string"}},
        "ios": {"x-kubernetes-int-or-string": true},
        "metadata": {"type": "object"}}, "x-kubernetes-validations": [{"rule": rule, "message": "no"}]})
    };
    let value = json!({"apiVersion": "g/v1", "kind": "K", "metadata": {"name": "x", "labels": {"a": "b"}}, "a-b": "y",
        "namespace": "ns", "n": 2, "t": "2024-01-02T03:04:05Z", "d": "1h", "raw": "aGk=", "m": {"a-b": 1}, "l": ["a", "b"],
        "ios": "50%"});
    for rule in [
        "self.a__dash__b == 'y'",
        "self.__namespace__ == 'ns'",
        "self.n == 2.0",
        "self.t < timestamp('2025-01-01T00:00:00Z')",
        "self.d == duration('60m')",
        "size(self.raw) == 2",
        "self.m['a-b'] == 1",
        "self.l.all(x, x.size() == 1) && self.l.exists(x, x == 'a')",
        "self.metadata.name == 'x' && !has(self.metadata.labels)",
        "self.kind == 'K'",
        "type(self.ios) == string && self.ios.endsWith('%')",
        "self.a__dash__b.matches('^[a-z]$')",
        "quantity('1Gi').isGreaterThan(quantity('1Mi'))",
        "isURL('https://example.com')",
        "'b' in self.l",
        "self.l.map(x, x + 'z') == ['az', 'bz']",
        "self.l.filter(x, x != 'a').size() == 1",
        "has(self.m) && 'a-b' in self.m",
        "self.l.isSorted() && self.l.indexOf('b') == 1",
        "'a,b'.split(',').size() == 2",
    ] {
        assert_eq!(evaluate(&text(rule), &value, None), Vec::<String>::new(), "{rule}");
    }
    assert_eq!(
        evaluate(&text("self.n > 5.0"), &value, None),
        ["<nil>: Invalid value: no"]
    );
}

#[test]
fn a_missing_argument_is_named() {
    let schema = json!({"type": "object", "properties": {"l": {"type": "array", "items": {"type": "string"}}},
        "x-kubernetes-validations": [{"rule": "size(self.l) > 0", "message": "no"}]});
    assert_eq!(
        evaluate(&schema, &json!({}), None),
        ["<nil>: Invalid value: \"object\": no such key: l evaluating rule: no"]
    );
}

#[test]
fn optional_old_self_rules_run_on_create() {
    let schema = json!({"type": "integer", "x-kubernetes-validations": [
        {"rule": "!oldSelf.hasValue() || self >= oldSelf.value()", "optionalOldSelf": true, "message": "no down"}]});
    let schema = json!({"type": "object", "properties": {"a": schema}});
    assert!(evaluate(&schema, &json!({"a": 1}), None).is_empty());
    assert!(evaluate(&schema, &json!({"a": 2}), Some(&json!({"a": 1}))).is_empty());
    assert_eq!(
        evaluate(&schema, &json!({"a": 1}), Some(&json!({"a": 2}))),
        ["a: Invalid value: 1: no down"]
    );
}

fn check(rule: &Value) -> Vec<String> {
    let schema = TypeSchema::from_inline(&json!({"type": "object", "properties": {"a": {"type": "integer"}}}));
    let errors = check_rules(std::slice::from_ref(rule), schema.root(), false, None, &Path::new("x"));
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn bad_rules_are_refused_as_recorded() {
    let about = |rule: &str| {
        format!(
            "x.x-kubernetes-validations[0].rule: Invalid value: {{\"Rule\":\"{rule}\",\"Message\":\"\",\
             \"MessageExpression\":\"\",\"Reason\":null,\"FieldPath\":\"\",\"OptionalOldSelf\":null}}: "
        )
    };
    for (rule, shown, text) in [
        (
            "self.b > 1",
            "self.b \\u003e 1",
            "compilation failed: ERROR: <input>:1:5: undefined field 'b'\n | self.b > 1\n | ....^",
        ),
        (
            "foo > 1",
            "foo \\u003e 1",
            "compilation failed: ERROR: <input>:1:1: undeclared reference to 'foo' (in container '')\n | foo > 1\n | ^",
        ),
        ("self.a", "self.a", "cel expression must evaluate to a bool"),
        (
            "self.a == 'x'",
            "self.a == 'x'",
            "compilation failed: ERROR: <input>:1:8: found no matching overload for '_==_' applied to '(int, string)'\n \
             | self.a == 'x'\n | .......^",
        ),
    ] {
        assert_eq!(
            check(&json!({"rule": rule})),
            [format!("{}{text}", about(shown))],
            "{rule}"
        );
    }
    assert!(check(&json!({"rule": "self.a >"}))[0].contains("compilation failed: ERROR: <input>:1:"));
}

#[test]
fn words_beside_a_rule_are_checked_as_recorded() {
    let at = "x.x-kubernetes-validations[0]";
    for (rule, expected) in [
        (
            json!({"rule": ""}),
            format!("{at}.rule: Required value: rule is not specified"),
        ),
        (
            json!({"rule": "self.a > 1", "message": "a\nb"}),
            format!("{at}.message: Invalid value: \"a\\nb\": must not contain line breaks"),
        ),
        (
            json!({"rule": "self.a > 1", "message": "  "}),
            format!("{at}.message: Invalid value: \"  \": must be non-empty if specified"),
        ),
        (
            json!({"rule": "self.a > 1", "reason": "Foo"}),
            format!(
                "{at}.reason: Unsupported value: \"Foo\": supported values: \"FieldValueDuplicate\", \
                 \"FieldValueForbidden\", \"FieldValueInvalid\", \"FieldValueRequired\""
            ),
        ),
        (
            json!({"rule": "self.a > 1", "fieldPath": ".zz"}),
            format!("{at}.fieldPath: Invalid value: \".zz\": must be a valid path"),
        ),
        (
            json!({"rule": "self.a > 1", "optionalOldSelf": true}),
            format!("{at}.optionalOldSelf: Invalid value: true: may not be set if oldSelf is not used in rule"),
        ),
    ] {
        assert_eq!(check(&rule), [expected]);
    }
    for good in [
        "self.a > 1",
        "has(self.a)",
        "self == oldSelf",
        "[1,2].all(x, x > 0 && self.a > x)",
    ] {
        assert_eq!(check(&json!({"rule": good})), Vec::<String>::new(), "{good}");
    }
}
