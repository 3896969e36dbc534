//! Bodies that a real kube-apiserver v1.36.3 wrote, each in both encodings.

use afloat_apischema::builtin;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{Unreadable, decode};
use crate::resource::GroupVersion;

fn normal(mut object: Value) -> Value {
    let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
    let (gv, kind) = (GroupVersion::parse(&text("apiVersion")), text("kind"));
    let unknown = builtin::normalise(&gv.group, &gv.version, &kind, &mut object).expect("the object decodes");
    assert_eq!(unknown, Vec::<String>::new(), "{kind}");
    object
}

fn message(fields: &[(u8, &[u8])]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (number, content) in fields {
        bytes.push(number << 3 | 2);
        bytes.push(u8::try_from(content.len()).expect("a short field"));
        bytes.extend_from_slice(content);
    }
    bytes
}

fn body(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let type_meta = message(&[(1, api_version.as_bytes()), (2, kind.as_bytes())]);
    [b"k8s\0".as_slice(), &message(&[(1, &type_meta), (2, raw)])].concat()
}

#[test]
fn both_encodings_of_an_object_are_the_same_object() {
    let recorded: Vec<Value> = serde_json::from_str(include_str!("testdata.json")).unwrap();
    assert!(recorded.len() > 60);
    for pair in recorded {
        let bytes = STANDARD.decode(pair["protobuf"].as_str().unwrap()).unwrap();
        let decoded = decode(&bytes).expect("a recorded body is well formed");
        let name = &pair["json"]["metadata"]["name"];
        assert_eq!(
            normal(decoded),
            normal(pair["json"].clone()),
            "{} {name}",
            pair["json"]["kind"]
        );
    }
}

#[test]
fn namespace_as_kubectl_creates_it() {
    let metadata = message(&[(1, b"test")]);
    let decoded = decode(&body(
        "v1",
        "Namespace",
        &message(&[(1, &metadata), (2, b""), (3, b"")]),
    ));
    let expected =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "test"}, "spec": {}, "status": {}});
    assert_eq!(decoded, Ok(expected));
}

#[test]
fn body_that_is_not_what_it_says_is_refused() {
    assert_eq!(decode(b"{}"), Err(Unreadable::NotKubernetes));
    assert_eq!(decode(b"k8s\0\xff"), Err(Unreadable::Malformed));
    assert_eq!(
        decode(&body("v1", "Namespace", b"\x0a\x7f")),
        Err(Unreadable::Malformed)
    );
    assert_eq!(
        decode(&body("v1", "Namespace", b"\x0a\x02\x0a\x05")),
        Err(Unreadable::Malformed)
    );
    let unknown = Unreadable::UnknownKind {
        api_version: "example.com/v1".to_owned(),
        kind: "Widget".to_owned(),
    };
    assert_eq!(decode(&body("example.com/v1", "Widget", b"")), Err(unknown));
    assert!(decode(b"k8s\0").is_err());
}

#[test]
fn every_beginning_of_a_body_is_read_or_refused() {
    let recorded: Vec<Value> = serde_json::from_str(include_str!("testdata.json")).unwrap();
    let bytes = STANDARD.decode(recorded[0]["protobuf"].as_str().unwrap()).unwrap();
    let whole = decode(&bytes).unwrap();
    // The last four bytes are the two empty fields that end the envelope.
    for length in 0..bytes.len() - 4 {
        assert_ne!(decode(&bytes[..length]).ok(), Some(whole.clone()), "{length} bytes");
    }
}
