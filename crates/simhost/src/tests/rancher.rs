//! What is done on hosts of Harvester before they are drained, each twice.

use afloat_node::host::{Host as _, UnitOrder, UnitState};
use afloat_node::rancher;

use super::*;

const AGENT: &str = "rancher-system-agent.service";
const DROP_IN: &str = "/run/systemd/system/rancher-system-agent.service.d/override.conf";
const CANAL: &str = "/var/lib/rancher/rke2/server/manifests/rke2-canal-config.yaml";
const CHARTS: &str = "/etc/rancher/rke2/config.yaml.d/40-disable-charts.yaml";

#[test]
fn h46_ranchers_agent_is_taken_out_of_what_an_earlier_upgrade_left_it_in() {
    let mut host = Attempt::new(WORKER).host;
    host.order(AGENT, UnitOrder::Enable).unwrap();
    host.write(DROP_IN, b"[Service]\n", 0o644).unwrap();
    for _ in 0..2 {
        rancher::recover_agent(&mut host).unwrap();
        assert_eq!(host.read(DROP_IN).unwrap(), None);
        assert_eq!(host.unit(AGENT).unwrap(), UnitState::Active);
    }
}

#[test]
fn h46_a_machine_that_is_not_ranchers_is_left_alone() {
    let mut host = Attempt::new(WORKER).host;
    let before = host.tree().clone();
    let said = rancher::recover_agent(&mut host).unwrap_err().to_string();
    assert_eq!(
        said,
        "cannot restart rancher-system-agent.service: there is no such unit: this machine is not Rancher's"
    );
    assert_eq!(host.tree(), &before);
}

#[test]
fn h46_files_that_the_new_release_brings_are_taken_away_and_its_charts_kept_out() {
    let mut host = Attempt::new(WORKER).host;
    host.write(CANAL, b"kind: HelmChartConfig\n", 0o600).unwrap();
    for _ in 0..2 {
        rancher::remove_canal_config(&mut host).unwrap();
        rancher::disable_charts(&mut host).unwrap();
        assert_eq!(host.read(CANAL).unwrap(), None);
        let charts = String::from_utf8(host.read(CHARTS).unwrap().unwrap()).unwrap();
        assert!(charts.starts_with("disable:\n- rke2-snapshot-controller\n"), "{charts}");
    }
}
