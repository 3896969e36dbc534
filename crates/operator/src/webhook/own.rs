//! The certificate that the operator makes for itself, so that admission works where nobody runs a certificate manager: an authority and a
//! certificate in a Secret at home, made by whichever replica is first and read by the others, renewed long before it ends. Whoever leads
//! puts the authority into the webhook configuration, and a mark on its own pod by which the Service finds it: only who leads can answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use afloat_api::{annotations, labels};
use jiff::{SignedDuration, Timestamp, ToSpan as _, tz::TimeZone};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::sign::CertifiedKey;
use serde_json::json;
use tokio::sync::watch;

use super::tls::{self, Shown};
use crate::clients::{CallError, Clients, bounded};
use crate::clock::Clock;

/// The Secret at home that holds authority, certificate and key; the Service in front of the operators is called the same.
pub const SECRET: &str = "afloat-webhook";
/// The webhook configuration by which the API server asks.
pub const CONFIGURATION: &str = "afloat-harvester";
/// How long a certificate is valid, and how old it is when the next is made: three months in which a failure to renew can be seen.
const VALID_DAYS: i64 = 365;
const RENEW_DAYS: i64 = 270;
/// How often Secret and configuration are looked at. A person may install the configuration later, or delete the Secret.
const LOOK_EVERY: Duration = Duration::from_secs(20);
/// More authorities than the new one and the one before are not trusted.
const AUTHORITIES: usize = 2;

/// Why admission is not served as it should be; it is tried again.
#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error("no certificate can be made ({0})")]
    Making(#[from] rcgen::Error),
    #[error("{what}: {cause}")]
    Call { what: String, cause: CallError },
}

fn calling(what: String) -> impl FnOnce(CallError) -> Problem {
    move |cause| Problem::Call { what, cause }
}

/// Authority, certificate and key, as PEM.
struct Made {
    authority: String,
    certificate: String,
    key: String,
}

/// A new authority that signs one certificate; its own key is forgotten, so that nobody can sign another.
fn make(names: Vec<String>, now: Timestamp) -> Result<Made, rcgen::Error> {
    let day = |days: i64| {
        let day = now.to_zoned(TimeZone::UTC).date().saturating_add(days.days());
        let part = |number: i8| u8::try_from(number).unwrap_or(1);
        rcgen::date_time_ymd(i32::from(day.year()), part(day.month()), part(day.day()))
    };
    // Clocks differ: valid since yesterday.
    let (from, until) = (day(-1), day(VALID_DAYS));
    let authority_key = KeyPair::generate()?;
    let mut authority = CertificateParams::new(Vec::<String>::new())?;
    let name = format!("afloat webhook authority {}", now.as_second());
    authority.distinguished_name.push(DnType::CommonName, name);
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    (authority.not_before, authority.not_after) = (from, until);
    let authority_pem = authority.self_signed(&authority_key)?.pem();
    let issuer = Issuer::new(authority, authority_key);
    let key = KeyPair::generate()?;
    let mut serving = CertificateParams::new(names)?;
    serving.distinguished_name.push(DnType::CommonName, "afloat webhook");
    (serving.not_before, serving.not_after) = (from, until);
    Ok(Made {
        authority: authority_pem,
        certificate: serving.signed_by(&key, &issuer)?.pem(),
        key: key.serialize_pem(),
    })
}

/// What a Secret holds, where all of it can be used.
struct Kept {
    authorities: Vec<u8>,
    pair: CertifiedKey,
}

fn part<'a>(secret: &'a Secret, key: &str) -> &'a [u8] {
    let data = secret.data.as_ref().and_then(|data| data.get(key));
    data.map_or(&[], |bytes| bytes.0.as_slice())
}

/// Nothing where it is damaged, or as old as to be renewed.
fn kept(secret: &Secret, now: Timestamp) -> Option<Kept> {
    let renew: Timestamp = secret.annotations().get(annotations::RENEW_AFTER)?.parse().ok()?;
    let authorities = part(secret, "ca.crt").to_vec();
    let pair = tls::pair(part(secret, "tls.crt"), part(secret, "tls.key")).ok()?;
    (now < renew && !authorities.is_empty()).then_some(Kept { authorities, pair })
}

/// The new authority, and the one before it: a replica that has not looked again yet shows a certificate of that one.
fn authorities(new: &str, before: &[u8]) -> String {
    const END: &str = "-----END CERTIFICATE-----";
    let before = String::from_utf8_lossy(before);
    let before = before.split_inclusive(END).filter(|block| block.contains("BEGIN"));
    let before = before
        .map(|block| format!("{}\n", block.trim_start()))
        .take(AUTHORITIES - 1);
    std::iter::once(new.to_owned()).chain(before).collect()
}

/// Keeps the certificate, the configuration and the mark of one operator.
pub(super) struct Keeper {
    secrets: Api<Secret>,
    configurations: Api<ValidatingWebhookConfiguration>,
    pods: Api<Pod>,
    home: String,
    /// Its own pod, where it is in one.
    pod: Option<String>,
    clock: Arc<dyn Clock>,
    shown: Shown,
    marked: Option<bool>,
}

impl Keeper {
    pub fn new(clients: &Clients, home: &str, pod: Option<String>, clock: Arc<dyn Clock>, shown: Shown) -> Self {
        Self {
            secrets: Api::namespaced(clients.api.clone(), home),
            configurations: Api::all(clients.api.clone()),
            pods: Api::namespaced(clients.api.clone(), home),
            home: home.to_owned(),
            pod,
            clock,
            shown,
            marked: None,
        }
    }

    /// Looks again and again, and at once when this process comes to lead; ends with the sender of that word.
    pub async fn keep(mut self, mut leads: watch::Receiver<bool>) {
        let mut told = String::new();
        loop {
            let leading = *leads.borrow_and_update();
            let problem = self.round(leading).await.err().map(|problem| problem.to_string());
            // A failure that lasts is told once, not three times a minute.
            match problem {
                Some(problem) if problem != told => {
                    tracing::warn!(
                        problem,
                        "admission is not served, tried again; checks are made when an Upgrade starts"
                    );
                    told = problem;
                }
                Some(_) => {}
                None => told.clear(),
            }
            tokio::select! {
                changed = leads.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
        }
    }

    async fn round(&mut self, leading: bool) -> Result<(), Problem> {
        let Some(configuration) = self.configuration().await? else {
            return Ok(());
        };
        if !leading {
            // A process that ended without a word, and begins again in the same pod, still has the mark.
            self.mark(false).await?;
        }
        let kept = self.certificate().await?;
        if leading {
            // First trusted, then shown.
            self.trust(&configuration, &kept.authorities).await?;
        }
        let is_shown = self.shown.now().is_some_and(|shown| shown.cert == kept.pair.cert);
        if !is_shown {
            self.shown.show(kept.pair);
        }
        if leading {
            self.mark(true).await?;
        }
        Ok(())
    }

    /// Where it is not installed, or not ours to read, this cluster is no Harvester: nobody asks, and nothing is made.
    async fn configuration(&self) -> Result<Option<ValidatingWebhookConfiguration>, Problem> {
        match bounded(self.configurations.get_opt(CONFIGURATION)).await {
            Ok(found) => Ok(found),
            Err(CallError::Refused(kube::Error::Api(status))) if status.code == 403 => Ok(None),
            Err(error) => Err(calling(format!(
                "validatingwebhookconfiguration/{CONFIGURATION} cannot be read"
            ))(error)),
        }
    }

    /// What the Secret holds; made where there is none, or no good one.
    async fn certificate(&self) -> Result<Kept, Problem> {
        let name = format!("secret/{SECRET} in {}", self.home);
        // Whoever is second reads what the first one made.
        for _ in 0..3 {
            let found = bounded(self.secrets.get_opt(SECRET)).await;
            let found = found.map_err(calling(format!("{name} cannot be read")))?;
            let now = self.clock.now();
            if let Some(kept) = found.as_ref().and_then(|secret| kept(secret, now)) {
                return Ok(kept);
            }
            let secret = self.made(found.as_ref(), now)?;
            let parameters = PostParams::default();
            let written = match found {
                // It carries the revision it was read with.
                Some(_) => bounded(self.secrets.replace(SECRET, &parameters, &secret)).await,
                None => bounded(self.secrets.create(&parameters, &secret)).await,
            };
            match written {
                Ok(_) => tracing::info!(secret = SECRET, "made a certificate for admission"),
                Err(CallError::Refused(kube::Error::Api(status))) if status.code == 409 => {}
                Err(error) => return Err(calling(format!("{name} cannot be written"))(error)),
            }
        }
        let cause = CallError::TimedOut { limit: LOOK_EVERY };
        Err(calling(format!("{name} is being written by others"))(cause))
    }

    fn made(&self, before: Option<&Secret>, now: Timestamp) -> Result<Secret, rcgen::Error> {
        let service = format!("{SECRET}.{}.svc", self.home);
        let made = make(vec![service.clone(), format!("{service}.cluster.local")], now)?;
        let trusted = before.map(|secret| part(secret, "ca.crt")).unwrap_or_default();
        let renew = now.saturating_add(SignedDuration::from_hours(24 * RENEW_DAYS));
        let renew = renew.unwrap_or(Timestamp::MAX).to_string();
        let bytes = |text: String| ByteString(text.into_bytes());
        Ok(Secret {
            metadata: ObjectMeta {
                name: Some(SECRET.to_owned()),
                resource_version: before.and_then(|secret| secret.metadata.resource_version.clone()),
                uid: before.and_then(|secret| secret.metadata.uid.clone()),
                annotations: Some(BTreeMap::from([(annotations::RENEW_AFTER.to_owned(), renew)])),
                ..ObjectMeta::default()
            },
            type_: Some(
                before
                    .and_then(|secret| secret.type_.clone())
                    .unwrap_or("kubernetes.io/tls".to_owned()),
            ),
            data: Some(BTreeMap::from([
                ("ca.crt".to_owned(), bytes(authorities(&made.authority, trusted))),
                ("tls.crt".to_owned(), bytes(made.certificate)),
                ("tls.key".to_owned(), bytes(made.key)),
            ])),
            ..Secret::default()
        })
    }

    /// Lets the API server trust the certificate.
    async fn trust(&self, there: &ValidatingWebhookConfiguration, authorities: &[u8]) -> Result<(), Problem> {
        let hooks = there.webhooks.iter().flatten();
        let stale = hooks.filter(|hook| {
            let bundle = hook.client_config.ca_bundle.as_ref();
            bundle.is_none_or(|bundle| bundle.0 != authorities)
        });
        let bundle = ByteString(authorities.to_vec());
        let stale: Vec<_> = stale
            .map(|hook| json!({ "name": hook.name, "clientConfig": { "caBundle": bundle } }))
            .collect();
        if stale.is_empty() {
            return Ok(());
        }
        let patch = json!({
            "metadata": { "uid": there.metadata.uid, "resourceVersion": there.metadata.resource_version },
            "webhooks": stale,
        });
        let what = format!("caBundle of validatingwebhookconfiguration/{CONFIGURATION} cannot be written");
        let (parameters, patch) = (PatchParams::default(), Patch::Strategic(patch));
        let written = bounded(self.configurations.patch(CONFIGURATION, &parameters, &patch)).await;
        written.map_err(calling(what))?;
        tracing::info!(
            configuration = CONFIGURATION,
            "the API server asks before it takes an Upgrade"
        );
        Ok(())
    }

    /// Says on its own pod whether this process leads.
    async fn mark(&mut self, leads: bool) -> Result<(), Problem> {
        let Some(pod) = self.pod.as_deref().filter(|_| self.marked != Some(leads)) else {
            return Ok(());
        };
        let patch = json!({ "metadata": { "labels": { labels::LEADS: leads.then_some("true") } } });
        let what = format!("pod/{pod} in {} cannot be marked as the one to ask", self.home);
        let (parameters, patch) = (PatchParams::default(), Patch::Merge(patch));
        let written = bounded(self.pods.patch(pod, &parameters, &patch)).await;
        written.map_err(calling(what))?;
        self.marked = Some(leads);
        Ok(())
    }
}

#[cfg(test)]
#[path = "own_tests.rs"]
mod tests;
