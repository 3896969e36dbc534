//! The form of a case: a name and steps, each a request with what the real server is expected to say, so that a case which does not do what it
//! was written for is found out even where both servers agree. Cases of one file make one theme.

use std::{collections::BTreeMap, fs, path::Path};

use serde::Deserialize;
use serde_json::Value;

use crate::Error;

/// A file of cases.
#[derive(Debug, Clone)]
pub struct Theme {
    pub name: String,
    pub cases: Vec<Case>,
}

/// Requests that belong together, in a namespace of their own.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Also the name of its namespace (`$ns`) and the prefix for what it makes outside of it.
    pub name: String,
    /// Whether to make the namespace before the first step.
    #[serde(default = "yes")]
    pub namespace: bool,
    pub steps: Vec<Step>,
}

/// One request.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// `METHOD path`, or one of the words of [`Verb`].
    #[serde(rename = "do")]
    pub action: String,
    /// Keeps the answer's body under this name for `${name.path}` in later steps.
    #[serde(rename = "as")]
    pub keep: Option<String>,
    /// The status code of the real server; any 2xx when absent.
    pub expect: Option<u16>,
    /// The `reason` of the Status that the real server answers.
    pub reason: Option<String>,
    /// What must be in the real server's answer: dotted path → value.
    #[serde(default)]
    pub has: BTreeMap<String, Value>,
    pub body: Option<Value>,
    pub raw: Option<String>,
    pub merge: Option<Value>,
    pub json: Option<Value>,
    pub strategic: Option<Value>,
    pub apply: Option<Value>,
    #[serde(rename = "type")]
    pub content_type: Option<String>,
    pub accept: Option<String>,
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// For watches: how many events are due.
    pub events: Option<usize>,
    /// For watches: the name of the object whose event is the last one to read.
    pub until: Option<String>,
    #[serde(default)]
    pub compare: Compare,
}

/// How much of an answer is compared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Compare {
    #[default]
    Full,
    /// Status code and content type only: the body is text that only one of them can give.
    Status,
    /// A discovery document: whatever the simulator serves must be served by the real one in the same words.
    Served,
}

/// What a step does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// An ordinary request.
    Request,
    /// Opens a watch, reads the events that are due, and closes it.
    Watch,
    /// Opens a watch and leaves it open under the step's name.
    Open,
    /// Reads the events that are due from a watch that was left open.
    Events,
    /// Waits until a CustomResourceDefinition serves; not compared.
    Establish,
    /// Makes the storage forget all older revisions.
    Compact,
    /// Repeats a GET until `has` holds; the last answer is compared.
    Await,
}

impl Step {
    pub fn verb(&self) -> Verb {
        match self.word() {
            "WATCH" => Verb::Watch,
            "OPEN" => Verb::Open,
            "EVENTS" => Verb::Events,
            "ESTABLISH" => Verb::Establish,
            "COMPACT" => Verb::Compact,
            "AWAIT" => Verb::Await,
            _ => Verb::Request,
        }
    }

    /// The method, or the word in its place.
    pub fn word(&self) -> &str {
        self.action.split(' ').next().unwrap_or_default()
    }

    /// The path, or the name in its place.
    pub fn operand(&self) -> &str {
        self.action.split_once(' ').map_or("", |(_, rest)| rest.trim())
    }

    /// The request on one line, for people.
    pub fn shown(&self) -> String {
        match self.payload() {
            None => self.action.clone(),
            Some((Payload::Json(body), kind)) => format!("{} ({kind}) {body}", self.action),
            Some((Payload::Text(body), kind)) => format!("{} ({kind}) {body}", self.action),
        }
    }

    /// The body to send with its content type.
    pub fn payload(&self) -> Option<(Payload<'_>, &str)> {
        let json = |value, kind| Some((Payload::Json(value), kind));
        let given = None
            .or_else(|| self.body.as_ref().and_then(|value| json(value, "application/json")))
            .or_else(|| {
                self.merge
                    .as_ref()
                    .and_then(|value| json(value, "application/merge-patch+json"))
            })
            .or_else(|| {
                self.json
                    .as_ref()
                    .and_then(|value| json(value, "application/json-patch+json"))
            })
            .or_else(|| {
                self.strategic
                    .as_ref()
                    .and_then(|value| json(value, "application/strategic-merge-patch+json"))
            })
            .or_else(|| {
                self.apply
                    .as_ref()
                    .and_then(|value| json(value, "application/apply-patch+yaml"))
            })
            .or_else(|| self.raw.as_ref().map(|text| (Payload::Text(text), "application/json")))?;
        Some((given.0, self.content_type.as_deref().unwrap_or(given.1)))
    }
}

/// A body before its placeholders are filled in.
#[derive(Debug, Clone, Copy)]
pub enum Payload<'a> {
    Json(&'a Value),
    Text(&'a str),
}

fn yes() -> bool {
    true
}

/// All themes of a folder, by name.
pub fn load(folder: &Path) -> Result<Vec<Theme>, Error> {
    let failed = |path: &Path, message: String| Error::File {
        path: path.display().to_string(),
        message,
    };
    let entries = fs::read_dir(folder).map_err(|error| failed(folder, error.to_string()))?;
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let mut themes = Vec::new();
    for path in paths
        .iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
    {
        let text = fs::read_to_string(path).map_err(|error| failed(path, error.to_string()))?;
        // `y` and `on` are names here, not truths; and a theme may be as long as it likes.
        let options = serde_saphyr::options! { strict_booleans: true, budget: None };
        let cases =
            serde_saphyr::from_str_with_options(&text, options).map_err(|error| failed(path, error.to_string()))?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        themes.push(Theme { name, cases });
    }
    Ok(themes)
}
