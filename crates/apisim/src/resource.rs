//! What the server knows of one resource in one version: its names, scope, verbs, subresources and schema. Built-in
//! and custom resources have the same form; where they differ, [`Origin`] says so.

use afloat_apischema::schema::TypeSchema;

/// `group` and `version`; the core group is the empty string.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupVersion {
    pub group: String,
    pub version: String,
}

impl GroupVersion {
    pub fn new(group: impl Into<String>, version: impl Into<String>) -> Self {
        Self {
            group: group.into(),
            version: version.into(),
        }
    }

    /// As in an object's `apiVersion`: `v1`, `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Reads an object's `apiVersion`.
    pub fn parse(api_version: &str) -> Self {
        match api_version.split_once('/') {
            Some((group, version)) => Self::new(group, version),
            None => Self::new("", api_version),
        }
    }
}

/// A subresource such as `status`, `scale`, `eviction`, `log`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subresource {
    pub name: String,
    /// The kind that its body has, where it is not the parent's (`Scale`, `Eviction`).
    pub group_version: Option<GroupVersion>,
    pub kind: String,
    pub verbs: Vec<String>,
}

/// A printer column of a custom resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrinterColumn {
    pub name: String,
    pub column_type: String,
    pub format: String,
    pub description: String,
    pub priority: i64,
    pub json_path: String,
}

/// Paths of the scale subresource of a custom resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScalePaths {
    pub spec_replicas: String,
    pub status_replicas: String,
    pub label_selector: Option<String>,
}

/// Where a resource comes from, and what only that origin has.
#[derive(Clone, Debug)]
pub enum Origin {
    BuiltIn,
    Custom(CustomOrigin),
}

/// What a CustomResourceDefinition says beyond names and schema.
#[derive(Clone, Debug, Default)]
pub struct CustomOrigin {
    /// Name of the CustomResourceDefinition.
    pub definition: String,
    pub printer_columns: Vec<PrinterColumn>,
    pub scale: Option<ScalePaths>,
    pub selectable_fields: Vec<String>,
    pub deprecation_warning: Option<String>,
}

/// One resource in one version.
#[derive(Clone, Debug)]
pub struct ResourceType {
    pub gv: GroupVersion,
    pub kind: String,
    pub list_kind: String,
    pub plural: String,
    pub singular: String,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub namespaced: bool,
    pub verbs: Vec<String>,
    pub subresources: Vec<Subresource>,
    pub schema: TypeSchema,
    /// Hash that discovery shows for the stored form (`storageVersionHash`); empty when unknown.
    pub storage_hash: String,
    pub origin: Origin,
}

impl ResourceType {
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|subresource| subresource.name == name)
    }

    pub fn has_status(&self) -> bool {
        self.subresource("status").is_some()
    }

    pub fn is_custom(&self) -> bool {
        matches!(self.origin, Origin::Custom(_))
    }

    pub fn custom(&self) -> Option<&CustomOrigin> {
        match &self.origin {
            Origin::Custom(custom) => Some(custom),
            Origin::BuiltIn => None,
        }
    }

    /// `deployments.apps`, as error messages name a resource.
    pub fn qualified_plural(&self) -> String {
        if self.gv.group.is_empty() {
            self.plural.clone()
        } else {
            format!("{}.{}", self.plural, self.gv.group)
        }
    }

    /// `Deployment.apps`, as validation messages name a kind.
    pub fn qualified_kind(&self) -> String {
        if self.gv.group.is_empty() {
            self.kind.clone()
        } else {
            format!("{}.{}", self.kind, self.gv.group)
        }
    }
}
