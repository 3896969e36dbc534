//! Recorded answers of kube-apiserver v1.36.3 to bodies that do not decode.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn complaint(body: &str) -> String {
    parse(body.as_bytes(), Format::Json).map_or_else(|error| error.0, |decoded| format!("parsed {}", decoded.value))
}

#[test]
fn syntax_errors_read_as_go_writes_them() {
    for (body, text) in [
        ("{", "unexpected end of JSON input"),
        ("", "unexpected end of JSON input"),
        (
            r#"{"a":1,}"#,
            "invalid character '}' looking for beginning of object key string",
        ),
        (r#"{"a":1} x"#, "invalid character 'x' after top-level value"),
        (r#"{"a":"\x"}"#, "invalid character 'x' in string escape code"),
        (
            r#"{"a":"\u12x4"}"#,
            "invalid character 'x' in \\u hexadecimal character escape",
        ),
        (r#"{"a":1 "b":2}"#, "invalid character '\"' after object key:value pair"),
        (r#"{"a":01}"#, "invalid character '1' after object key:value pair"),
        (r#"{"a":tru}"#, "invalid character '}' in literal true (expecting 'e')"),
        (
            "{'a':1}",
            "invalid character '\\'' looking for beginning of object key string",
        ),
        ("hello", "invalid character 'h' looking for beginning of value"),
        ("{\"a\":\"x\ty\"}", "invalid character '\\t' in string literal"),
        ("[1 2]", "invalid character '2' after array element"),
        (r#"{"a" 1}"#, "invalid character '1' after object key"),
        ("-x", "invalid character 'x' in numeric literal"),
        ("1.x", "invalid character 'x' after decimal point in numeric literal"),
        ("1ex", "invalid character 'x' in exponent of numeric literal"),
        ("é", "invalid character 'Ã' looking for beginning of value"),
    ] {
        assert_eq!(complaint(body), text, "{body}");
    }
}

#[test]
fn numbers_and_texts_decode_as_the_api_machinery_does() {
    let body = r#"{"a":1.0,"b":1e3,"c":9223372036854775807,"d":1.5,"e":"\ud83d\ude00\ud800x\u00e9\/","f":99999999999999999999}"#;
    let decoded = parse(body.as_bytes(), Format::Json).expect("parses");
    assert_eq!(decoded.value["a"], json!(1));
    assert_eq!(decoded.value["b"], json!(1000));
    assert_eq!(decoded.value["c"], json!(i64::MAX));
    assert_eq!(decoded.value["d"], json!(1.5));
    assert_eq!(decoded.value["e"], "\u{1f600}\u{fffd}xé/");
    assert_eq!(decoded.value["f"], json!(1e20));
}

#[test]
fn deep_nesting_is_refused() {
    let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    assert!(parse(deep(400).as_bytes(), Format::Json).is_ok());
    assert_eq!(complaint(&deep(100_000)), "exceeded max depth");
}

#[test]
fn strict_problems_come_in_the_order_of_the_reporter() {
    let body =
        br#"{"foo":1,"foo":2,"metadata":{"name":"a","Labels":{},"name":"b","bar":{"x":1}},"data":{"a":"b","a":"c"}}"#;
    let decoded = parse(body, Format::Json).expect("parses");
    assert!(decoded.has_duplicates);
    let unknown = ["foo", "metadata.Labels", "metadata.bar"].map(str::to_owned);
    let problems = strict_problems(body, Format::Json, &decoded, &unknown, Reporter::Typed);
    assert_eq!(
        strict_error(&problems),
        "strict decoding error: unknown field \"foo\", unknown field \"metadata.Labels\", duplicate field \
         \"metadata.name\", unknown field \"metadata.bar\", duplicate field \"data.a\""
    );
    let body = br#"{"spec":{"foo":1,"foo":2}}"#;
    let decoded = parse(body, Format::Json).expect("parses");
    let unknown = ["spec.dd.y", "spec.foo"].map(str::to_owned);
    assert_eq!(
        strict_problems(body, Format::Json, &decoded, &unknown, Reporter::CustomResource),
        [
            "duplicate field \"spec.foo\"",
            "unknown field \"spec.dd.y\"",
            "unknown field \"spec.foo\""
        ]
    );
}

#[test]
fn bodies_of_no_kind_are_answered_as_upstream() {
    let text = |body: &str| {
        let decoded = parse(body.as_bytes(), Format::Json);
        let error = decoded
            .and_then(|decoded| type_of(&decoded.value))
            .expect_err("no kind")
            .0;
        unrecognized("ConfigMap", body.as_bytes(), Format::Json, &error)
    };
    assert_eq!(
        text("{"),
        "the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: \
         unexpected end of JSON input ({)"
    );
    assert!(text("").ends_with("unexpected end of JSON input (<empty>)"));
    assert_eq!(
        text("[]"),
        "the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: \
         json: cannot unmarshal array into Go value of type struct { APIVersion string \
         \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" } (5b5d)"
    );
    assert_eq!(
        text(r#"{"apiVersion":1,"kind":"ConfigMap"}"#),
        "the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: \
         json: cannot unmarshal number into Go struct field .apiVersion of type string \
         ({\"apiVersion\":1,\"kind\":\"Config ...)"
    );
}

#[test]
fn yaml_becomes_the_same_value() {
    let decoded = parse(b"a: 1\nb: [x, 2.5, true, null]\nc: {d: '5'}\n", Format::Yaml).expect("parses");
    assert_eq!(
        decoded.value,
        json!({"a": 1, "b": ["x", 2.5, true, null], "c": {"d": "5"}})
    );
    assert_eq!(decoded.yaml_duplicates, None);
    let body = b"apiVersion: v1\nkind: ConfigMap\nfoo: a\nfoo: b\n";
    let decoded = parse(body, Format::Yaml).expect("parses");
    assert_eq!(decoded.value["foo"], "b");
    assert_eq!(
        strict_problems(body, Format::Yaml, &decoded, &["foo".to_owned()], Reporter::Typed),
        [
            "yaml: unmarshal errors:\n  line 4: key \"foo\" already set in map",
            "unknown field \"foo\""
        ]
    );
    let words = |text: &str| {
        parse(text.as_bytes(), Format::Yaml).map_or_else(|error| error.0, |decoded| decoded.value.to_string())
    };
    for (text, expected) in [
        ("a: [", "yaml: line 1: did not find expected node content"),
        ("a: b: c", "yaml: mapping values are not allowed in this context"),
        (
            "a:\n\tb: 1",
            "yaml: line 2: found character that cannot start any token",
        ),
        ("a: 1\n---\nb: 2", "{\"a\":1}"),
        ("---\na: yes\nb: 0777\n", "{\"a\":true,\"b\":511}"),
        ("", "null"),
    ] {
        assert_eq!(words(text), expected, "{text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_make_the_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64), text in "[\\[\\]{}\":,\\\\u0-9a-fetrulns. -]{0,60}") {
        let _ = parse(&bytes, Format::Json);
        let _ = parse(text.as_bytes(), Format::Json);
        let _ = json::trace(text.as_bytes());
    }

    #[test]
    fn what_serde_reads_is_read_alike(text in "[\\[\\]{}\":,0-9a-z -]{0,40}") {
        if let Ok(value) = serde_json::from_str::<Value>(&text) {
            prop_assert_eq!(parse(text.as_bytes(), Format::Json).map(|decoded| decoded.value), Ok(json::plain_numbers(value)));
        }
    }
}
