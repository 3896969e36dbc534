//! The macro that makes a kind of somebody else out of a spec and a status. Kinds of our own derive `CustomResource`.

/// Defines a kind whose CRD is not ours.
///
/// `spec` and `status` may be absent: one object without them must not break the list it is in.
/// There is deliberately no `Serialize`: the types hold only what we read, so writing one back whole (`Api::replace`) would
/// drop every other field. Such objects are patched; the compiler refuses anything else.
macro_rules! foreign_kind {
    (
        $(#[$doc:meta])*
        $kind:ident in $group:literal / $version:literal, $plural:literal, $scope:ident, spec: $spec:ty, status: $status:ty
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, serde::Deserialize, PartialEq)]
        pub struct $kind {
            /// Name, namespace, labels and so on.
            #[serde(default)]
            pub metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
            /// What is asked for.
            #[serde(default)]
            pub spec: $spec,
            /// What is true.
            #[serde(default)]
            pub status: $status,
        }

        $crate::resource::resource_metadata!($kind in $group / $version, $plural, $scope);
    };
}

/// Gives a struct with `metadata` its group, version, kind and scope.
macro_rules! resource_metadata {
    ($kind:ident in $group:literal / $version:literal, $plural:literal, $scope:ident) => {
        impl kube_core::Resource for $kind {
            type DynamicType = ();
            type Scope = kube_core::$scope;

            fn kind((): &()) -> std::borrow::Cow<'_, str> {
                stringify!($kind).into()
            }
            fn group((): &()) -> std::borrow::Cow<'_, str> {
                $group.into()
            }
            fn version((): &()) -> std::borrow::Cow<'_, str> {
                $version.into()
            }
            fn plural((): &()) -> std::borrow::Cow<'_, str> {
                $plural.into()
            }
            fn meta(&self) -> &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

pub(crate) use {foreign_kind, resource_metadata};
