//! Rancher, charts and addons of a release: which version each is to have, in which order they are rolled out, and what is waited for
//! meanwhile (H23, H25, H40). Versions are changed and nothing else: the values that people gave stay. Fleet and Harvester's addon
//! controller do the work; Rancher itself is brought by its own chart, on the host, before anything that counts on it.

use std::sync::Arc;

use afloat_api::foreign::rancher::LOCAL_NAMESPACE;
use jiff::Timestamp;
use semver::Version;

use super::{Errand, HostDone, HostWork, Look, first_open, is_ending, release_of, waits};
use crate::hci::action::TaskWrite;
use crate::hci::release::Release;
use crate::hci::view::{Chart, Seen};
use crate::view::{Key, View};

/// Where Rancher and the server of its charts run.
pub const RANCHER_NAMESPACE: &str = "cattle-system";
const RANCHER: &str = "rancher";
const CHART_SERVER: &str = "harvester-cluster-repo";
/// The chart that has KubeVirt in it.
const HARVESTER: &str = "harvester";
/// Charts in the order in which they are rolled out, each with the line of the release that says its version.
const CHARTS: [(&str, &str); 4] = [
    ("harvester-crd", "harvesterChart"),
    (HARVESTER, "harvesterChart"),
    ("rancher-monitoring-crd", "monitoringChart"),
    ("rancher-logging-crd", "loggingChart"),
];
/// Addons whose version a release says. The others keep theirs until somebody changes it.
const ADDONS: [(&str, &str); 2] = [
    ("rancher-monitoring", "monitoringChart"),
    ("rancher-logging", "loggingChart"),
];

/// One look.
pub fn apply_manifests(view: &View, errand: &Errand, host: &HostDone, _: Timestamp) -> Look {
    if is_ending(view, errand) {
        return Look::Done {
            says: format!("upgrade {} is being ended: nothing more is begun", errand.upgrade),
        };
    }
    let release = match release_of(view, errand) {
        Ok(release) => release,
        Err(look) => return look,
    };
    rancher(view, &release, host)
        .or_else(|| chart_server(view, &release))
        .or_else(|| charts(view, errand, &release))
        .or_else(|| addons(view, &release))
        .unwrap_or_else(|| done(view, &release))
}

/// Rancher and charts that are at a release, each with its version.
pub fn at_release(view: &View, release: &Release) -> Vec<String> {
    let rancher = view.hci.servers.get(&Key::new(RANCHER_NAMESPACE, RANCHER));
    let rancher = rancher.filter(|server| !release.rancher.is_empty() && reaches(server.tag(), &release.rancher));
    let rancher = rancher.map(|server| format!("Rancher {}", server.tag()));
    let charts = CHARTS.into_iter().filter_map(|(name, line)| {
        let chart = view.hci.charts.get(&Key::new(LOCAL_NAMESPACE, name))?;
        let wanted = release.line(line)?;
        (*chart.version == *wanted).then(|| titled(name, Some(wanted)))
    });
    rancher.into_iter().chain(charts).collect()
}

/// Charts of the release count on its Rancher.
fn rancher(view: &View, release: &Release, host: &HostDone) -> Option<Look> {
    let wanted = release.rancher.as_str();
    if wanted.is_empty() {
        return None;
    }
    let Some(server) = view.hci.servers.get(&Key::new(RANCHER_NAMESPACE, RANCHER)) else {
        return Some(Look::Failed {
            says: format!(
                "deployment {RANCHER_NAMESPACE}/{RANCHER} is not there: nobody would roll out the charts of the release"
            ),
        });
    };
    let broken_off = is_broken_off(view);
    if broken_off || !reaches(server.tag(), wanted) {
        let brought = || {
            let still = if broken_off {
                ", and what helm says of it is not over"
            } else {
                ""
            };
            waits(format!("waits to see Rancher {wanted}, {} runs{still}", server.tag()))
        };
        return Some(first_open(&[HostWork::UpgradeRancher], host).unwrap_or_else(brought));
    }
    (!server.rolled_out).then(|| waits(format!("waits until every replica of Rancher runs {}", server.tag())))
}

/// Whether a helm that was killed has left Rancher's chart half applied. Its Deployment may be the release's by then, and the rest is not;
/// nor does any other helm begin before that is undone.
fn is_broken_off(view: &View) -> bool {
    let newest = view.hci.helm_releases.values().max_by_key(|release| release.revision);
    newest.is_some_and(|release| release.status.starts_with("pending-"))
}

/// Whether a version is the one wanted, or a later one that somebody has brought.
fn reaches(runs: &str, wanted: &str) -> bool {
    let read = |text: &str| Version::parse(text.trim_start_matches('v')).ok();
    match (read(runs), read(wanted)) {
        (Some(runs), Some(wanted)) => runs >= wanted,
        _ => runs == wanted,
    }
}

/// Fleet takes the charts of a release from here. A cluster without it has them elsewhere.
fn chart_server(view: &View, release: &Release) -> Option<Look> {
    let server = view.hci.servers.get(&Key::new(RANCHER_NAMESPACE, CHART_SERVER))?;
    if server.tag() != release.harvester {
        return Some(Look::Write {
            says: format!("serves the charts of {}", release.harvester),
            what: vec![TaskWrite::SetImage {
                server: server.target.clone(),
                container: Arc::clone(&server.container),
                image: Arc::from(server.image_at(&release.harvester)),
            }],
        });
    }
    (!server.rolled_out).then(|| waits(format!("waits until the charts of {} are served", release.harvester)))
}

/// One after the other: what comes later counts on the kinds that come before.
fn charts(view: &View, errand: &Errand, release: &Release) -> Option<Look> {
    let upgrade = view.hci.upgrades.get(&errand.upgrade)?;
    for (name, line) in CHARTS {
        let Some(chart) = view.hci.charts.get(&Key::new(LOCAL_NAMESPACE, name)) else {
            continue;
        };
        let wanted = release.line(line);
        let keeps_machines = name == HARVESTER && chart.update_methods_before.is_none();
        let elsewhere = wanted.is_some_and(|wanted| *chart.version != *wanted);
        let paused_by_us = chart.paused_by.as_ref() == Some(&upgrade.target.uid);
        if chart.paused && !paused_by_us {
            return Some(Look::Failed {
                says: format!(
                    "managedchart {LOCAL_NAMESPACE}/{name} is paused, and not by this upgrade: fleet would not bring it to the release. Let it go on: \
                     kubectl -n {LOCAL_NAMESPACE} patch managedchart {name} --type merge -p '{{\"spec\":{{\"paused\":false}}}}'"
                ),
            });
        }
        if chart.paused || elsewhere || keeps_machines {
            return Some(Look::Write {
                says: format!("lets fleet roll out {}", titled(name, wanted)),
                what: vec![TaskWrite::RollOutChart {
                    chart: chart.target.clone(),
                    version: wanted.filter(|_| elsewhere).map(Arc::from),
                    update_methods_before: keeps_machines.then(|| Arc::clone(&chart.update_methods)),
                }],
            });
        }
        if let Some(why) = not_there_yet(view, name, chart, release) {
            return Some(waits(format!(
                "waits until {} is rolled out: {why}",
                titled(name, wanted)
            )));
        }
    }
    None
}

fn titled(name: &str, version: Option<&str>) -> String {
    version.map_or_else(|| format!("chart {name}"), |version| format!("chart {name} {version}"))
}

/// The name that Rancher gives to the bundle of a chart; it would cut a longer one than any of these.
fn bundle_of(chart: &str) -> String {
    format!("mcc-{chart}")
}

/// Why a chart is not rolled out. A chart says that it is ready before its Deployments are changed: Harvester's own has to run the release.
fn not_there_yet(view: &View, name: &str, chart: &Seen<Chart>, release: &Release) -> Option<String> {
    let bundle = view.hci.bundles.get(&Key::new(LOCAL_NAMESPACE, &bundle_of(name)));
    let Some(bundle) = bundle.filter(|bundle| !bundle.paused && bundle.version == chart.version) else {
        return Some("Rancher has not handed it to fleet yet".to_owned());
    };
    if !bundle.observed {
        return Some("fleet has not looked at it yet".to_owned());
    }
    if let Some(why) = &bundle.not_ready {
        return Some(if why.is_empty() {
            "it is not ready".to_owned()
        } else {
            why.to_string()
        });
    }
    let server = view.hci.upstream.values().next().filter(|_| name == HARVESTER)?;
    if server.server.tag() != release.harvester {
        return Some(format!("Harvester runs {}", server.server.tag()));
    }
    (!server.server.rolled_out).then(|| format!("not every replica of Harvester runs {}", release.harvester))
}

fn addons(view: &View, release: &Release) -> Option<Look> {
    let mut what = Vec::new();
    for (name, line) in ADDONS {
        let Some(wanted) = release.line(line) else { continue };
        let of_name = view.hci.addons.values().filter(|addon| *addon.target.key.name == *name);
        let old = of_name.filter(|addon| *addon.version != *wanted);
        what.extend(old.map(|addon| TaskWrite::UpdateAddon {
            addon: addon.target.clone(),
            version: Arc::from(wanted),
        }));
    }
    (!what.is_empty()).then(|| Look::Write {
        says: "brings addons to the release".to_owned(),
        what,
    })
}

/// Addons are not waited for: no node needs one to be upgraded, and one that does not come up is no reason to stop here.
fn done(view: &View, release: &Release) -> Look {
    let busy = view.hci.addons.values().filter(|addon| addon.enabled && addon.busy());
    let busy: Vec<&str> = busy.map(|addon| &*addon.target.key.name).collect();
    let still = if busy.is_empty() {
        String::new()
    } else {
        format!("; addons that are still being rolled out: {}", busy.join(", "))
    };
    Look::Done {
        says: format!("Rancher and charts are at those of {}{still}", release.harvester),
    }
}

#[cfg(test)]
mod tests;
