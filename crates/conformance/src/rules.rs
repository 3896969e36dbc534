//! The validation rules of our own custom resources: every object of `crates/api/cases/cel.json` goes to both servers with the CRDs of `deploy/crds`
//! installed, so that what the generated rules say is what a real server says.

use std::{collections::BTreeMap, fs, path::Path};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    Error,
    case::{Case, Step, Theme},
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleCase {
    kind: String,
    name: String,
    object: Value,
    old: Option<Value>,
    /// `ok`, or what the refusal says.
    expect: String,
}

/// All of them as cases, after one that installs the definitions. `house` is the root of the workspace.
pub(crate) fn theme(house: &Path) -> Result<Theme, Error> {
    let definitions = definitions(&house.join("deploy/crds"))?;
    let path = house.join("crates/api/cases/cel.json");
    let failed = |message: String| Error::File {
        path: path.display().to_string(),
        message,
    };
    let text = fs::read_to_string(&path).map_err(|error| failed(error.to_string()))?;
    let rules: Vec<RuleCase> = serde_json::from_str(&text).map_err(|error| failed(error.to_string()))?;
    let mut cases = vec![install(&definitions)];
    for (index, rule) in rules.iter().enumerate() {
        let definition = definitions
            .get(&rule.kind)
            .ok_or_else(|| failed(format!("no CRD for {}", rule.kind)))?;
        cases.push(case(index, rule, definition));
    }
    Ok(Theme {
        name: "rules".to_owned(),
        cases,
    })
}

fn definitions(folder: &Path) -> Result<BTreeMap<String, Value>, Error> {
    let failed = |path: &Path, message: String| Error::File {
        path: path.display().to_string(),
        message,
    };
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder)
        .map_err(|error| failed(folder, error.to_string()))?
        .flatten()
    {
        let path = entry.path();
        let text = fs::read_to_string(&path).map_err(|error| failed(&path, error.to_string()))?;
        let options = serde_saphyr::options! { strict_booleans: true, budget: None };
        let definition: Value =
            serde_saphyr::from_str_with_options(&text, options).map_err(|error| failed(&path, error.to_string()))?;
        let kind = definition["spec"]["names"]["kind"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        found.insert(kind, definition);
    }
    Ok(found)
}

fn install(definitions: &BTreeMap<String, Value>) -> Case {
    let mut steps = Vec::new();
    for definition in definitions.values() {
        let name = definition["metadata"]["name"].as_str().unwrap_or_default();
        steps.push(Step {
            action: "POST $crds".to_owned(),
            body: Some(definition.clone()),
            ..Step::default()
        });
        steps.push(Step {
            action: format!("ESTABLISH {name}"),
            ..Step::default()
        });
    }
    Case {
        name: "install".to_owned(),
        namespace: false,
        steps,
    }
}

/// A name that can be a namespace's and still says what the case is about.
fn label(index: usize, name: &str) -> String {
    let words = name
        .to_lowercase()
        .chars()
        .map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' })
        .collect::<String>();
    let label: String = format!("rule-{index}-{words}").chars().take(63).collect();
    label.trim_end_matches('-').to_owned()
}

fn case(index: usize, rule: &RuleCase, definition: &Value) -> Case {
    let text = |pointer: &str| definition.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let namespaced = text("/spec/scope") == "Namespaced";
    let scope = if namespaced { "/namespaces/$ns" } else { "" };
    let version = rule.object["apiVersion"].as_str().unwrap_or_default();
    let collection = format!("/apis/{version}{scope}/{}", text("/spec/names/plural"));
    let placed = |object: &Value| {
        let mut object = object.clone();
        if namespaced {
            object["metadata"]["namespace"] = json!("$ns");
        }
        object
    };
    let mut step = Step {
        body: Some(placed(&rule.object)),
        ..Step::default()
    };
    if rule.expect != "ok" {
        step.expect = Some(422);
        step.has = [("message".to_owned(), Value::from(format!("~{}", rule.expect)))].into();
    }
    let Some(old) = &rule.old else {
        let post = Step {
            action: format!("POST {collection}"),
            ..step
        };
        return Case {
            name: label(index, &rule.name),
            namespace: namespaced,
            steps: vec![post],
        };
    };
    let create = Step {
        action: format!("POST {collection}"),
        body: Some(placed(old)),
        keep: Some("old".to_owned()),
        ..Step::default()
    };
    if let Some(body) = &mut step.body {
        body["metadata"]["resourceVersion"] = json!("${old.metadata.resourceVersion}");
    }
    step.action = format!(
        "PUT {collection}/{}",
        rule.object["metadata"]["name"].as_str().unwrap_or_default()
    );
    Case {
        name: label(index, &rule.name),
        namespace: namespaced,
        steps: vec![create, step],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_case_becomes_a_case() {
        let theme = theme(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).unwrap();
        assert!(theme.cases.len() > 150, "{}", theme.cases.len());
        let updates = theme
            .cases
            .iter()
            .filter(|case| case.steps.iter().any(|step| step.word() == "PUT"))
            .count();
        assert!(updates > 50, "{updates}");
    }
}
