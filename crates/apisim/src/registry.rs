//! The resources that the server serves now: the built-in ones, and those that CustomResourceDefinitions add and
//! take away. Discovery, OpenAPI and request routing all read this one table.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::resource::{GroupVersion, Origin, ResourceType};

/// All served resources by group, version and plural.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    resources: BTreeMap<GroupVersion, BTreeMap<String, Arc<ResourceType>>>,
    /// Raised by every change, so that documents built from the table can be cached.
    generation: u64,
}

impl Registry {
    pub fn add(&mut self, resource: ResourceType) {
        let group = self.resources.entry(resource.gv.clone()).or_default();
        group.insert(resource.plural.clone(), Arc::new(resource));
        self.generation += 1;
    }

    /// Takes away everything that a CustomResourceDefinition brought.
    pub fn remove_definition(&mut self, definition: &str) {
        for group in self.resources.values_mut() {
            group.retain(|_, resource| match &resource.origin {
                Origin::Custom(custom) => custom.definition != definition,
                Origin::BuiltIn => true,
            });
        }
        self.resources.retain(|_, group| !group.is_empty());
        self.generation += 1;
    }

    pub fn find(&self, gv: &GroupVersion, plural: &str) -> Option<&Arc<ResourceType>> {
        self.resources.get(gv)?.get(plural)
    }

    pub fn find_kind(&self, gv: &GroupVersion, kind: &str) -> Option<&Arc<ResourceType>> {
        self.resources.get(gv)?.values().find(|resource| resource.kind == kind)
    }

    pub fn group_versions(&self) -> impl Iterator<Item = &GroupVersion> {
        self.resources.keys()
    }

    pub fn resources_of(&self, gv: &GroupVersion) -> impl Iterator<Item = &Arc<ResourceType>> {
        self.resources.get(gv).into_iter().flat_map(BTreeMap::values)
    }

    pub fn all(&self) -> impl Iterator<Item = &Arc<ResourceType>> {
        self.resources.values().flat_map(BTreeMap::values)
    }

    pub fn generation(&self) -> u64 {
        self.generation
    }
}
