//! Discovery and status writing against the embedded API server, with Harvester's definitions in both forms.

use afloat_apisim::{ApiServer, Options};
use afloat_operator::clients::CallError;
use afloat_operator::discovery::{Surroundings, look_around};
use afloat_operator::status::{StatusForm, write_status};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceSubresourceStatus, CustomResourceSubresources,
};
use kube::api::PostParams;
use kube::core::DynamicObject;
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;

async fn cluster_with(definitions: Vec<CustomResourceDefinition>) -> Result<Client, kube::Error> {
    let client = ApiServer::new(Options::default()).client();
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for definition in definitions {
        api.create(&PostParams::default(), &definition).await?;
    }
    Ok(client)
}

/// Harvester's definitions, the upgrade with a status subresource as a later version may have it.
fn harvester(with_subresource: bool) -> Vec<CustomResourceDefinition> {
    let mut definitions = afloat_api::crds::harvester();
    for version in definitions
        .iter_mut()
        .flat_map(|definition| &mut definition.spec.versions)
    {
        version.subresources = with_subresource.then(|| CustomResourceSubresources {
            status: Some(CustomResourceSubresourceStatus(json!({}))),
            scale: None,
        });
    }
    definitions
}

#[tokio::test]
async fn a_plain_cluster_has_nothing_optional() {
    let found = look_around(cluster_with(Vec::new()).await.unwrap()).await.unwrap();
    assert_eq!(found, Surroundings::default());
}

#[tokio::test]
async fn both_forms_of_the_upgrade_are_found_and_written() {
    for (with_subresource, form) in [(false, StatusForm::Whole), (true, StatusForm::Subresource)] {
        let client = cluster_with(harvester(with_subresource)).await.unwrap();
        let found = look_around(client.clone()).await.unwrap().harvester.unwrap();
        assert_eq!((found.resource.plural.as_str(), found.status), ("upgrades", form));

        let api: Api<DynamicObject> = Api::namespaced_with(client, "default", &found.resource);
        let mut upgrade = DynamicObject::new("hvst-1", &found.resource);
        upgrade.data = json!({ "spec": { "version": "v1.6.0" } });
        let made = api.create(&PostParams::default(), &upgrade).await.unwrap();

        let status = json!({ "previousVersion": "v1.5.0" });
        let written = write_status(&api, form, &made, &status).await.unwrap();
        assert_eq!(written.data["status"]["previousVersion"], "v1.5.0", "{form:?}");
        assert_eq!(written.data["spec"]["version"], "v1.6.0");
        assert_ne!(written.resource_version(), made.resource_version());

        let stale = write_status(&api, form, &made, &json!({ "previousVersion": "v1.4.0" })).await;
        assert!(
            matches!(&stale, Err(CallError::Refused(kube::Error::Api(status))) if status.code == 409),
            "{stale:?}"
        );
    }
}
