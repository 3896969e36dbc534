//! Certificates of a control plane that stand in the way of its upgrade, by what kubeadm itself says of them. One that has time left is
//! renewed on the way; with one that is over or gone, kubeadm cannot reach the API server or gives up half-way.

use afloat_api::Reason;
use serde::Deserialize;

use crate::host::Answer;
use crate::instruction::{Context, command, failed, wait_for_step};
use crate::paths;
use crate::steps::stage::Asked;

/// For emergencies: nothing of an upgrade uses it, kubeadm makes it on one control plane alone, and people are told to keep it elsewhere.
const SUPER_ADMIN: &str = "super-admin.conf";
/// Where it is gone, the server's own certificate does instead (`real/etcd`), and kubeadm is not let near etcd.
const ETCD_HEALTH: &str = "etcd-healthcheck-client";

/// What `kubeadm certs check-expiration -o json` prints (`output.kubeadm.k8s.io/v1alpha3`). Nothing of it has a default: a form that
/// is another one must not pass for certificates that are well.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Expirations {
    certificates: Vec<Certificate>,
    certificate_authorities: Vec<Certificate>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Certificate {
    name: String,
    /// Seconds; 0 where it is missing.
    residual_time: i64,
    missing: bool,
    /// Its authority's key is not here: kubeadm cannot renew it.
    externally_managed: bool,
}

/// Asks kubeadm.
pub(super) fn check(c: &mut Context<'_>) -> Answer<Asked> {
    let ask = command(paths::KUBEADM, &["certs", "check-expiration", "-o", "json"], 60);
    let Some((code, said, error)) = c.job("-certificates", &ask)? else {
        return Ok(Asked::Running(wait_for_step(&ask)));
    };
    let findings = if code == 0 {
        findings(&said)
    } else {
        vec![failed(&ask, code, &error)]
    };
    let findings = findings.into_iter().map(|message| (Reason::StepFailed, message));
    Ok(Asked::Answer(findings.collect()))
}

/// What of kubeadm's answer stands in the way, in words.
fn findings(said: &str) -> Vec<String> {
    let read: Expirations = match serde_json::from_str(said) {
        Ok(read) => read,
        Err(error) => {
            return vec![format!(
                "whether certificates have expired is not known: kubeadm's answer cannot be read: {error}: \
                 help: kubeadm certs check-expiration -o json"
            )];
        }
    };
    let certificates = read.certificates.iter().filter_map(of_certificate);
    let authorities = read.certificate_authorities.iter().filter_map(of_authority);
    certificates.chain(authorities).collect()
}

fn of_certificate(certificate: &Certificate) -> Option<String> {
    let name = certificate.name.as_str();
    if name == SUPER_ADMIN {
        return None;
    }
    if certificate.missing {
        let phase = match name.strip_suffix(".conf") {
            Some(name) => format!("kubeconfig {name}"),
            None => format!("certs {name}"),
        };
        return (name != ETCD_HEALTH)
            .then(|| format!("the certificate {name} is missing: help: kubeadm init phase {phase}"));
    }
    let help = if certificate.externally_managed {
        "its authority's key is not on this machine: have it signed anew where that is".to_owned()
    } else {
        format!("kubeadm certs renew {name}")
    };
    (certificate.residual_time <= 0).then(|| format!("the certificate {name} has expired: help: {help}"))
}

fn of_authority(authority: &Certificate) -> Option<String> {
    let name = authority.name.as_str();
    if authority.missing {
        return Some(format!(
            "the certificate of the authority {name} is missing: help: copy it from another control plane"
        ));
    }
    // kubeadm renews no authority: all that it signed has to be made anew, on every machine.
    (authority.residual_time <= 0).then(|| {
        format!(
            "the authority {name} has expired, and nothing that it signed is trusted any more: help: replace it, \
             https://kubernetes.io/docs/tasks/tls/manual-rotation-of-ca-certificates/"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As kubeadm v1.36.3 printed it on a control plane with a year before it, which has no `super-admin.conf`.
    const WELL: &str = include_str!("certificates/well.json");
    /// The same where certificates and authorities had been made for seconds, and `scheduler.conf` was removed.
    const OVER: &str = include_str!("certificates/over.json");

    #[test]
    fn certificates_with_time_left_stand_in_nobodys_way() {
        assert_eq!(findings(WELL), [""; 0]);
    }

    #[test]
    fn what_is_over_or_gone_is_found_as_kubeadm_tells_of_it() {
        let found = findings(OVER);
        let expected = [
            "the certificate admin.conf has expired: help: kubeadm certs renew admin.conf",
            "the certificate apiserver has expired: help: kubeadm certs renew apiserver",
            "the certificate scheduler.conf is missing: help: kubeadm init phase kubeconfig scheduler",
            "the authority etcd-ca has expired, and nothing that it signed is trusted any more",
        ];
        for expected in expected {
            assert!(
                found.iter().any(|found| found.starts_with(expected)),
                "{expected}: {found:#?}"
            );
        }
        // Ten certificates without the one for emergencies, and three authorities.
        assert_eq!(found.len(), 13, "{found:#?}");
    }

    #[test]
    fn whose_authority_is_elsewhere_is_not_sent_to_kubeadm() {
        let elsewhere = OVER.replace("\"externallyManaged\": false", "\"externallyManaged\": true");
        let found = findings(&elsewhere);
        assert!(
            found.iter().any(|found| found.contains("have it signed anew")),
            "{found:#?}"
        );
        assert!(!found.iter().any(|found| found.contains("certs renew")), "{found:#?}");
    }

    #[test]
    fn an_answer_in_another_form_does_not_pass_for_certificates_that_are_well() {
        for answer in [
            "",
            "{}",
            &WELL.replace("residualTime", "residualTimeSeconds"),
            &WELL.replace("certificateAuthorities", "authorities"),
        ] {
            let found = findings(answer);
            assert!(
                matches!(found.as_slice(), [one] if one.contains("cannot be read")),
                "{answer}: {found:?}"
            );
        }
    }
}
