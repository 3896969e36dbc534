//! The map of upgrader images: which image upgrades a node to which version. Written by server-side apply, one field manager a
//! version, so that a bundle that comes takes nothing away from those that are there; always by digest, so that no later push
//! changes what a node gets.

use super::problem;
use crate::args::bundle::{Manner, Publish};
use crate::args::people::Form;
use crate::cluster::{Cluster, because_of};
use crate::problem::{Code, Problem};
use crate::screen::Screen;
use afloat_api::names;
use afloat_bundle::key;
use afloat_bundle::registry::{self, Repository};
use afloat_operator::clients::{CallError, bounded};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

pub async fn run(arguments: &Publish, screen: &mut Screen) -> Result<Code, Problem> {
    let repository = Repository::new(&arguments.image, &arguments.reach.access()).map_err(|error| problem(&error))?;
    // Asked of the registry, never assumed: the map leads nodes to what is there.
    let keys = arguments
        .key
        .as_deref()
        .map(key::read_public)
        .transpose()
        .map_err(|error| problem(&error))?;
    let there = registry::look(&repository, keys.as_ref())
        .await
        .map_err(|error| problem(&error))?;
    let (image, versions) = (there.image, there.kubernetes_versions);
    if let Some(keys) = keys.filter(|_| there.signer.is_none()) {
        return Err(Problem::new(Code::Failed, format!("{image} is refused"))
            .because(format!("it has no signature by the key {}", keys.names()))
            .help("afloat bundle push DIR REFERENCE --key FILE sends it with its signature"));
    }
    if let Some(form) = arguments.output {
        screen.say(&printed(&arguments.place.namespace, &image, &versions, form)?);
        return Ok(Code::Done);
    }
    let cluster = Cluster::connect(&arguments.place).await?;
    publish(&cluster, &image, &versions, arguments.manner, screen).await
}

/// Writes the image of each version into the map.
pub async fn publish(
    cluster: &Cluster,
    image: &str,
    versions: &[String],
    manner: Manner,
    screen: &mut Screen,
) -> Result<Code, Problem> {
    if versions.is_empty() {
        return Err(
            Problem::new(Code::Failed, format!("{image} has no version of Kubernetes in it"))
                .because("it is the image of the operator alone: no node can be upgraded with it"),
        );
    }
    let api: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), &cluster.home);
    let cannot = |error: &CallError| {
        let problem = Problem::new(
            Code::Failed,
            format!("cannot write configmap/{} in {}", names::IMAGES, cluster.home),
        );
        because_of(problem, error)
    };
    let before = bounded(api.get_opt(names::IMAGES))
        .await
        .map_err(|error| cannot(&error))?;
    let before = before.and_then(|map| map.data).unwrap_or_default();
    let would = if manner.dry_run { "would be" } else { "is" };
    for version in versions {
        if before.get(version).is_some_and(|there| there == image) {
            screen.say(&format!("{version} is upgraded with {image} already"));
            continue;
        }
        let mut params = PatchParams::apply(&format!("afloat-bundle-{version}"));
        params.dry_run = manner.dry_run;
        params.force = manner.force;
        let map = Patch::Apply(map(&cluster.home, image, [version.as_str()]));
        bounded(api.patch(names::IMAGES, &params, &map))
            .await
            .map_err(|error| match &error {
                CallError::Refused(kube::Error::Api(status)) if status.code == 409 => cannot(&error)
                    .because(format!(
                        "{version} leads to {} there",
                        before.get(version).map_or("nothing", String::as_str)
                    ))
                    .help("--force takes its place"),
                _ => cannot(&error),
            })?;
        let instead = before
            .get(version)
            .map(|there| format!(" instead of {there}"))
            .unwrap_or_default();
        screen.say(&format!("{version} {would} upgraded with {image}{instead}"));
    }
    Ok(Code::Done)
}

fn map<'a>(home: &str, image: &str, versions: impl IntoIterator<Item = &'a str>) -> Value {
    let data: Value = versions
        .into_iter()
        .map(|version| (version.to_owned(), json!(image)))
        .collect::<serde_json::Map<_, _>>()
        .into();
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": names::IMAGES, "namespace": home },
        "data": data,
    })
}

fn printed(home: &str, image: &str, versions: &[String], form: Form) -> Result<String, Problem> {
    let map = map(home, image, versions.iter().map(String::as_str));
    let text = match form {
        Form::Json => serde_json::to_string_pretty(&map).map_err(|error| error.to_string()),
        Form::Yaml => serde_saphyr::to_string(&map).map_err(|error| error.to_string()),
    };
    let text = text.map_err(|error| Problem::new(Code::Failed, "cannot print the map").because(error))?;
    Ok(text.trim_end().to_owned())
}
