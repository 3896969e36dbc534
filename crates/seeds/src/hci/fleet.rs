//! Rancher and fleet as far as charts go. Rancher makes a bundle of every chart; fleet rolls out bundles that are not paused, and says that
//! it has looked at them. Of what a chart is made of, only the Deployment of Harvester itself is simulated, where there is one.

use std::sync::Arc;

use afloat_core::hci::view::{Bundle, HciObject};
use afloat_core::view::Key;
use afloat_scenes::SYSTEM;

use super::world::{Look, World};
use crate::store::Writer;
use crate::time::{MINUTE, Millis};

/// Before the name of a chart, that of its bundle.
pub const PREFIX: &str = "mcc-";
const TAKES: Millis = MINUTE;

impl World {
    pub(super) fn chart(&mut self, key: &Key) {
        let Some(chart) = self.store.hci.charts.get(key).cloned() else {
            return;
        };
        let name = Key::new(&key.namespace, &format!("{PREFIX}{}", key.name));
        let rolling = (Look::Chart(key.clone()), 0);
        let Some(bundle) = self.store.hci.bundles.get(&name).cloned() else {
            let bundle = Bundle {
                paused: chart.paused,
                version: Arc::clone(&chart.version),
                observed: false,
                not_ready: None,
            };
            self.handed.insert(key.clone(), Arc::clone(&chart.update_methods));
            return self.make(
                Writer::Rancher,
                (&name.namespace, &name.name),
                bundle,
                HciObject::Bundle,
            );
        };
        let handed = self.handed.get(key) == Some(&chart.update_methods);
        if bundle.paused != chart.paused || bundle.version != chart.version || !handed {
            self.forget(&rolling);
            self.handed.insert(key.clone(), Arc::clone(&chart.update_methods));
            return self.change(Writer::Rancher, HciObject::Bundle, &bundle, |bundle| {
                bundle.paused = chart.paused;
                bundle.version = Arc::clone(&chart.version);
                bundle.observed = false;
            });
        }
        if bundle.observed {
            return;
        }
        if !bundle.paused {
            if !self.takes(&rolling, TAKES) {
                return;
            }
            self.bring(key, &chart.version);
        }
        self.change(Writer::Fleet, HciObject::Bundle, &bundle, |bundle| {
            bundle.observed = true;
        });
    }

    /// What the chart is made of.
    fn bring(&mut self, chart: &Key, version: &str) {
        let Some(server) = self.store.hci.upstream.get(&Key::new(SYSTEM, &chart.name)).cloned() else {
            return;
        };
        let image: Arc<str> = Arc::from(format!("example.org/{}:v{version}", chart.name));
        self.change(Writer::Fleet, HciObject::Upstream, &server, |upstream| {
            upstream.server.rolled_out &= upstream.server.image == image;
            upstream.server.image = image;
        });
    }
}
