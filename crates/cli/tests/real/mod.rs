//! What tests on a real API server share.

use afloat_realparts::ControlPlane;
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};

pub async fn client(plane: &ControlPlane) -> Client {
    let config = Kubeconfig::read_from(plane.kubeconfig_path()).unwrap();
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(config, &options).await.unwrap();
    Client::try_from(config).unwrap()
}
