//! Patches that were sent to a real kube-apiserver v1.36.3 as dry runs, with its answers. Answers that come after the
//! patch (validation of the patched object) are not in the table.

use serde_json::{Value, json};

use crate::builtin;
use crate::patch::{PatchError, json_patch, merge_patch, strategic_merge};
use crate::schema::TypeSchema;

const RECORDED: &str = include_str!("recorded.json");

fn patched(schema: &TypeSchema, base: &Value, case: &Value) -> Result<Value, PatchError> {
    let text = case["patch"].as_str().unwrap();
    let patch = if text == "TOOMANY" {
        Value::from(vec![json!({"op": "test", "path": "/data/k", "value": "v"}); 10_001]).to_string()
    } else {
        text.to_owned()
    };
    match case["type"].as_str().unwrap() {
        "json" => json_patch(base, patch.as_bytes()),
        "merge" => merge_patch(base, patch.as_bytes()),
        _ => strategic_merge(schema.root(), base, patch.as_bytes()),
    }
}

/// What the server does with a patched object before it answers.
fn finished(group: &str, kind: &str, mut object: Value) -> Value {
    builtin::normalise(group, "v1", kind, &mut object).unwrap();
    builtin::defaults::apply(group, kind, &mut object);
    object
}

#[test]
fn patches_give_what_the_real_server_gave() {
    let tables: Vec<Value> = serde_json::from_str(RECORDED).unwrap();
    let mut wrong = Vec::new();
    for table in &tables {
        let kind = table["kind"].as_str().unwrap();
        let group = if kind == "Deployment" { "apps" } else { "" };
        let schema = builtin::schema_of(group, "v1", kind).unwrap();
        for case in table["cases"].as_array().unwrap() {
            let real = case.get("object").or(case.get("status")).unwrap();
            let found = match patched(&schema, &table["base"], case) {
                Ok(object) => finished(group, kind, object),
                Err(error) => status(&error),
            };
            if found != *real {
                let (kind, patch) = (&case["type"], &case["patch"]);
                wrong.push(format!("{kind} {patch}\n  found {found}\n  real  {real}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ\n{}", wrong.len(), wrong.join("\n"));
}

fn status(error: &PatchError) -> Value {
    let mut status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": error.to_string(), "code": error.code(),
    });
    let reason = match error {
        PatchError::BadRequest(_) => Some("BadRequest"),
        PatchError::TooLarge(_) => Some("RequestEntityTooLarge"),
        PatchError::Unprocessable => Some("Invalid"),
        PatchError::Internal(_) => None,
    };
    if let Some(reason) = reason {
        status["reason"] = json!(reason);
    }
    if *error == PatchError::Unprocessable {
        status["details"] = json!({});
    }
    status
}
