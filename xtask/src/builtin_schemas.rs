//! Writes `crates/apischema/data/`: which built-in kinds a real kube-apiserver serves and what their fields are. Facts
//! come from a running server (discovery, OpenAPI v3) and from the Go types it was built from (which fields vanish when
//! empty). No prose is taken over: descriptions are left out.

mod go_types;
mod wanted;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Map, Value, json};

use go_types::GoTypes;
use wanted::{EXTRA_COMPONENTS, GO_PACKAGES, WANTED};

/// `cargo xtask builtin-schemas`
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Kubeconfig of a running kube-apiserver of the version whose facts are wanted.
    #[arg(long)]
    kubeconfig: PathBuf,
    /// The kubectl to ask it with.
    #[arg(long, default_value = "kubectl")]
    kubectl: PathBuf,
    /// Go module that requires the Kubernetes modules of the same version.
    #[arg(long, default_value = "components/kubernetes-1.36")]
    go_module: PathBuf,
    /// Where the data files are written.
    #[arg(long, default_value = "crates/apischema/data")]
    out: PathBuf,
}

pub fn run(args: &Args) -> Result<()> {
    let server = Server {
        kubectl: &args.kubectl,
        kubeconfig: &args.kubeconfig,
    };
    let mut go = GoTypes::default();
    for (import_path, module, folder) in GO_PACKAGES {
        go.read_package(import_path, &module_dir(&args.go_module, module)?.join(folder))?;
    }
    let mut kinds = Vec::new();
    let mut components = Map::new();
    let mut roots: BTreeSet<String> = EXTRA_COMPONENTS.iter().map(|&name| name.to_owned()).collect();
    for (group_version, wanted_kinds) in WANTED {
        let prefix = if group_version.contains('/') { "apis" } else { "api" };
        let discovery = server.get(&format!("/{prefix}/{group_version}"))?;
        let document = server.get(&format!("/openapi/v3/{prefix}/{group_version}"))?;
        let Some(Value::Object(schemas)) = document.pointer("/components/schemas").cloned() else {
            bail!("no components in the OpenAPI document of {group_version}");
        };
        let found = kinds_of(group_version, wanted_kinds, &discovery, &schemas)?;
        roots.extend(
            found
                .iter()
                .filter_map(|kind| kind["schema"].as_str().map(str::to_owned)),
        );
        kinds.extend(found);
        components.extend(schemas);
    }
    for kind in &kinds {
        for subresource in kind["subresources"].as_array().into_iter().flatten() {
            roots.extend(component_of(&components, subresource));
        }
    }
    let schemas = trimmed(&components, roots, &go)?;
    write_lines(&args.out.join("kinds.json"), &kinds)?;
    write_components(&args.out.join("schemas.json"), &schemas)
}

struct Server<'a> {
    kubectl: &'a Path,
    kubeconfig: &'a Path,
}

impl Server<'_> {
    fn get(&self, path: &str) -> Result<Value> {
        let output = Command::new(self.kubectl)
            .arg("--kubeconfig")
            .arg(self.kubeconfig)
            .args(["get", "--raw", path])
            .output()
            .with_context(|| format!("cannot start {}", self.kubectl.display()))?;
        ensure!(
            output.status.success(),
            "GET {path}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
        serde_json::from_slice(&output.stdout).with_context(|| format!("GET {path} is not JSON"))
    }
}

fn module_dir(go_module: &Path, module: &str) -> Result<PathBuf> {
    let output = Command::new("go")
        .current_dir(go_module)
        .args(["list", "-m", "-f", "{{.Dir}}", module])
        .output()
        .context("cannot start go")?;
    ensure!(
        output.status.success(),
        "go list {module}: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(PathBuf::from(String::from_utf8(output.stdout)?.trim()))
}

/// The wanted kinds of one group version, with their subresources.
fn kinds_of(group_version: &str, wanted: &[&str], list: &Value, schemas: &Map<String, Value>) -> Result<Vec<Value>> {
    let (group, version) = group_version.split_once('/').unwrap_or(("", group_version));
    let resources: Vec<&Value> = list["resources"].as_array().into_iter().flatten().collect();
    let named = |name: &str| resources.iter().find(|resource| resource["name"] == name);
    let mut kinds = Vec::new();
    for &kind in wanted {
        let main = resources
            .iter()
            .find(|resource| resource["kind"] == kind && resource["name"].as_str().is_some_and(|n| !n.contains('/')))
            .with_context(|| format!("{group_version} does not serve {kind}"))?;
        let plural = main["name"].as_str().unwrap_or_default();
        let mut subresources = Vec::new();
        for resource in &resources {
            let Some(subresource) = resource["name"]
                .as_str()
                .and_then(|n| n.strip_prefix(&format!("{plural}/")))
            else {
                continue;
            };
            subresources.push(json!({
                "name": subresource,
                "group": resource.get("group").and_then(Value::as_str).unwrap_or(group),
                "version": resource.get("version").and_then(Value::as_str).unwrap_or(version),
                "kind": resource["kind"],
                "verbs": resource["verbs"],
            }));
        }
        let list_or_empty = |key: &str| main.get(key).cloned().unwrap_or_else(|| json!([]));
        let mut entry = json!({
            "group": group, "version": version, "kind": kind, "plural": plural,
            "singular": named(plural).map(|found| found["singularName"].clone()),
            "shortNames": list_or_empty("shortNames"), "categories": list_or_empty("categories"),
            "namespaced": main["namespaced"], "verbs": main["verbs"],
            "storageVersionHash": main.get("storageVersionHash").cloned().unwrap_or_default(),
            "subresources": subresources,
        });
        entry["schema"] = component_of(schemas, &entry).map_or(Value::Null, Value::String);
        kinds.push(entry);
    }
    Ok(kinds)
}

/// The component that says it is this group, version and kind.
fn component_of(schemas: &Map<String, Value>, wanted: &Value) -> Option<String> {
    let is_wanted = |schema: &Value| {
        let identities = schema.get("x-kubernetes-group-version-kind").and_then(Value::as_array);
        identities.into_iter().flatten().any(|identity| {
            ["group", "version", "kind"]
                .iter()
                .all(|part| identity[part].as_str() == wanted[part].as_str())
        })
    };
    schemas
        .iter()
        .find(|(_, schema)| is_wanted(schema))
        .map(|(name, _)| name.clone())
}

/// Everything reachable from the roots, without prose and with the facts of the Go types.
fn trimmed(components: &Map<String, Value>, roots: BTreeSet<String>, go: &GoTypes) -> Result<BTreeMap<String, Value>> {
    let keyed_fields = list_map_keys(components);
    let mut todo: Vec<String> = roots.into_iter().collect();
    let mut done = BTreeMap::new();
    while let Some(name) = todo.pop() {
        if done.contains_key(&name) {
            continue;
        }
        let schema = components.get(&name).with_context(|| format!("no component {name}"))?;
        let mut slim = slim(schema, keyed_fields.get(&name).unwrap_or(&BTreeSet::new()));
        identity_only_where_unique(&mut slim);
        if let Some(facts) = go.facts(&name, &slim)?
            && let Some(fields) = slim.as_object_mut()
        {
            fields.extend(facts);
        }
        collect_references(&slim, &mut todo);
        done.insert(name, slim);
    }
    Ok(done)
}

/// Options types (DeleteOptions) are registered in every group; the long list says nothing.
fn identity_only_where_unique(schema: &mut Value) {
    let many = schema["x-kubernetes-group-version-kind"]
        .as_array()
        .is_some_and(|list| list.len() > 1);
    if many && let Some(fields) = schema.as_object_mut() {
        fields.remove("x-kubernetes-group-version-kind");
    }
}

/// Component → its fields that are keys of some associative list. Server-side apply fills a missing key from the
/// field's default, so those defaults matter even when they are a zero value.
fn list_map_keys(components: &Map<String, Value>) -> BTreeMap<String, BTreeSet<String>> {
    let mut keys: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut visit = |list: &Value| {
        let Some(item) = list.get("items").and_then(reference) else {
            return;
        };
        for key in list
            .get("x-kubernetes-list-map-keys")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            if let Some(key) = key.as_str() {
                keys.entry(item.to_owned()).or_default().insert(key.to_owned());
            }
        }
    };
    for schema in components.values() {
        schema
            .get("properties")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
            .for_each(|(_, list)| visit(list));
    }
    keys
}

fn reference(schema: &Value) -> Option<&str> {
    let direct = schema.get("$ref").and_then(Value::as_str);
    let wrapped = || schema.pointer("/allOf/0/$ref").and_then(Value::as_str);
    direct.or_else(wrapped).and_then(|target| target.rsplit('/').next())
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

fn slim(schema: &Value, keyed: &BTreeSet<String>) -> Value {
    let Some(fields) = schema.as_object() else {
        return schema.clone();
    };
    if let Some(target) = reference(schema) {
        let mut slim = json!({"$ref": format!("#/components/schemas/{target}")});
        for (key, value) in fields {
            if key.starts_with("x-kubernetes") || (key == "default" && !is_zero(value)) {
                slim[key] = value.clone();
            }
        }
        return slim;
    }
    let mut out = Map::new();
    for (key, value) in fields {
        match key.as_str() {
            "description" | "title" | "x-kubernetes-unions" | "example" | "externalDocs" => {}
            "default" if is_zero(value) => {}
            "properties" => {
                let properties = value.as_object().into_iter().flatten();
                let slimmed = properties.map(|(name, child)| {
                    let mut slimmed = slim(child, &BTreeSet::new());
                    if keyed.contains(name)
                        && let Some(default) = child.get("default")
                    {
                        slimmed["default"] = default.clone();
                    }
                    (name.clone(), slimmed)
                });
                out.insert(key.clone(), Value::Object(slimmed.collect()));
            }
            "items" | "additionalProperties" | "not" => {
                out.insert(key.clone(), slim(value, &BTreeSet::new()));
            }
            _ => {
                out.insert(key.clone(), value.clone());
            }
        }
    }
    Value::Object(out)
}

fn collect_references(schema: &Value, found: &mut Vec<String>) {
    match schema {
        Value::Object(fields) => {
            found.extend(reference(schema).map(str::to_owned));
            fields.values().for_each(|child| collect_references(child, found));
        }
        Value::Array(items) => items.iter().for_each(|child| collect_references(child, found)),
        _ => {}
    }
}

fn write_lines(path: &Path, entries: &[Value]) -> Result<()> {
    let lines: Result<Vec<String>, _> = entries.iter().map(serde_json::to_string).collect();
    std::fs::write(path, format!("[\n{}\n]\n", lines?.join(",\n"))).with_context(|| path.display().to_string())
}

fn write_components(path: &Path, components: &BTreeMap<String, Value>) -> Result<()> {
    let mut lines = Vec::new();
    for (name, schema) in components {
        lines.push(format!(
            "{}:{}",
            serde_json::to_string(name)?,
            serde_json::to_string(schema)?
        ));
    }
    std::fs::write(path, format!("{{\n{}\n}}\n", lines.join(",\n"))).with_context(|| path.display().to_string())
}
