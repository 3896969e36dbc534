//! The query of a request: a bag of words, and the typed options that lists and watches take from it.

use crate::status::{ApiError, ApiResult};

use super::{LabelSelector, decode_percent};

/// Decoded query parameters in the order they came.
#[derive(Clone, Debug, Default)]
pub struct Query(Vec<(String, String)>);

impl Query {
    pub fn parse(query: &str) -> Self {
        let pairs = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode_percent(key, true), decode_percent(value, true))
        });
        Self(pairs.collect())
    }

    pub fn get(&self, key: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(known, _)| known == key)
            .map(|(_, value)| value.as_str())
    }

    pub fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.0
            .iter()
            .filter(move |(known, _)| known == key)
            .map(|(_, value)| value.as_str())
    }

    /// A boolean as upstream converts one: present and neither `false` nor `0` is true.
    pub fn flag(&self, key: &str) -> bool {
        self.get(key).is_some_and(|value| value != "false" && value != "0")
    }

    /// A whole number; anything else is refused with the text of Go's parser.
    pub fn integer(&self, key: &str) -> ApiResult<Option<i64>> {
        match self.get(key) {
            None | Some("") => Ok(None),
            Some(text) => text.parse().map(Some).map_err(|_| {
                let quoted = afloat_apischema::field_error::go_quote(text);
                let why = if text
                    .trim_start_matches(['+', '-'])
                    .bytes()
                    .all(|byte| byte.is_ascii_digit())
                {
                    "value out of range"
                } else {
                    "invalid syntax"
                };
                ApiError::bad_request(format!("strconv.ParseInt: parsing {quoted}: {why}"))
            }),
        }
    }
}

/// `resourceVersionMatch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionMatch {
    NotOlderThan,
    Exact,
}

/// The options of a list, a watch or a collection's deletion.
#[derive(Clone, Debug, Default)]
pub struct ListOptions {
    pub labels: LabelSelector,
    pub field_text: String,
    pub resource_version: String,
    pub version_match: Option<VersionMatch>,
    pub limit: i64,
    pub continue_token: String,
    pub bookmarks: bool,
    pub send_initial_events: Option<bool>,
    pub timeout_seconds: Option<i64>,
}

impl ListOptions {
    pub fn read(query: &Query) -> ApiResult<Self> {
        let labels = query.get("labelSelector").unwrap_or_default();
        let version_match = match query.get("resourceVersionMatch").unwrap_or_default() {
            "" => None,
            "Exact" => Some(VersionMatch::Exact),
            "NotOlderThan" => Some(VersionMatch::NotOlderThan),
            other => return Err(bad_version_match(query, other)),
        };
        Ok(Self {
            labels: LabelSelector::parse(labels).map_err(ApiError::bad_request)?,
            field_text: query.get("fieldSelector").unwrap_or_default().to_owned(),
            resource_version: query.get("resourceVersion").unwrap_or_default().to_owned(),
            version_match,
            limit: query.integer("limit")?.unwrap_or_default(),
            continue_token: query.get("continue").unwrap_or_default().to_owned(),
            bookmarks: query.flag("allowWatchBookmarks"),
            send_initial_events: query.get("sendInitialEvents").map(|_| query.flag("sendInitialEvents")),
            timeout_seconds: query.integer("timeoutSeconds")?,
        })
    }

    /// Refuses options that do not go together, as upstream's `ValidateListOptions` does.
    pub fn validate(&self, watch: bool) -> ApiResult<()> {
        use afloat_apischema::field_error::{FieldError, Path};
        let mut errors = Vec::new();
        let version_match = Path::new("resourceVersionMatch");
        if watch {
            self.validate_watch(&mut errors);
        } else if self.send_initial_events.is_some() {
            let path = Path::new("sendInitialEvents");
            errors.push(FieldError::forbidden(&path, "sendInitialEvents is forbidden for list"));
        }
        if let Some(wanted) = self.version_match.filter(|_| !watch) {
            if self.resource_version.is_empty() {
                let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
                errors.push(FieldError::forbidden(&version_match, why));
            }
            if !self.continue_token.is_empty() {
                let why = "resourceVersionMatch is forbidden when continue is provided";
                errors.push(FieldError::forbidden(&version_match, why));
            }
            if wanted == VersionMatch::Exact && self.resource_version == "0" {
                let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
                errors.push(FieldError::forbidden(&version_match, why));
            }
        }
        if errors.is_empty() {
            return Ok(());
        }
        Err(ApiError::invalid("meta.k8s.io", "ListOptions", "", &errors))
    }

    fn validate_watch(&self, errors: &mut Vec<afloat_apischema::field_error::FieldError>) {
        use afloat_apischema::field_error::{FieldError, Path};
        let version_match = Path::new("resourceVersionMatch");
        match (self.send_initial_events, self.version_match) {
            (None, Some(_)) => {
                let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
                errors.push(FieldError::forbidden(&version_match, why));
            }
            (Some(_), None) => {
                let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
                errors.push(FieldError::forbidden(&version_match, why));
            }
            (Some(_), Some(VersionMatch::Exact)) => {
                let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
                errors.push(FieldError::forbidden(&version_match, why));
                errors.push(FieldError::not_supported(&version_match, "Exact", &["NotOlderThan"]));
            }
            _ => {}
        }
    }
}

fn bad_version_match(query: &Query, found: &str) -> ApiError {
    use afloat_apischema::field_error::{FieldError, Path};
    let path = Path::new("resourceVersionMatch");
    let mut errors = Vec::new();
    if query.get("resourceVersion").unwrap_or_default().is_empty() {
        let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
        errors.push(FieldError::forbidden(&path, why));
    }
    errors.push(FieldError::not_supported(&path, found, &["Exact", "NotOlderThan", ""]));
    ApiError::invalid("meta.k8s.io", "ListOptions", "", &errors)
}
