//! What the preflight found, in words: severity, object, fact and consequence, and a command that helps. What is found is
//! for the core to say.

use crate::table::{Tone, paint, wrap};
use afloat_api::clusterupgrade::{Finding, Severity};
use afloat_core::preflight::{accept_key, passes};
use afloat_core::words;

/// Where messages begin at the latest, for objects with long names.
const OBJECT: usize = 44;
/// "  warning "
const INDENT: usize = 10;

/// The findings, each with its object and its remedy.
pub fn finding_lines(findings: &[Finding], width: usize, colour: bool) -> Vec<String> {
    let longest = findings.iter().map(|finding| object(finding).chars().count()).max();
    let column = longest.unwrap_or(0).min(OBJECT).min(width / 3);
    findings
        .iter()
        .flat_map(|finding| one(finding, column, width, colour))
        .collect()
}

fn one(finding: &Finding, column: usize, width: usize, colour: bool) -> Vec<String> {
    let (word, tone) = match finding.severity {
        Severity::Error => ("error", Tone::Bad),
        Severity::Warning => ("warning", Tone::Careful),
        Severity::Info => ("info", Tone::Plain),
    };
    let head = format!(
        "  {} {:column$}",
        paint(&format!("{word:<7}"), tone, colour),
        object(finding)
    );
    let accepted = if finding.accepted { " (accepted)" } else { "" };
    let message = format!("{}{accepted}", finding.message);
    let begin = INDENT + object(finding).chars().count().max(column) + 2;
    let mut lines = Vec::new();
    if let Some(room) = width.checked_sub(begin).filter(|room| *room >= 30) {
        let mut broken = wrap(&message, room).into_iter();
        lines.extend(broken.next().map(|line| format!("{head}  {line}")));
        lines.extend(broken.map(|line| format!("{:begin$}{line}", "")));
    } else {
        // Too narrow for columns.
        lines.push(head);
        let broken = wrap(&message, width.saturating_sub(INDENT).max(20));
        lines.extend(broken.into_iter().map(|line| format!("{:INDENT$}{line}", "")));
    }
    // A command is never broken: it is there to be copied.
    let remedy = finding.remedy.as_ref().filter(|_| !finding.accepted);
    lines.extend(remedy.map(|remedy| format!("{:INDENT$}help: {remedy}", "")));
    lines
}

/// `pdb/shop/checkout`
fn object(finding: &Finding) -> String {
    let key = accept_key(finding);
    key.rsplit_once(':')
        .map_or(key.clone(), |(object, _)| object.to_owned())
}

/// `2 errors, 1 warning.`
pub fn counted(findings: &[Finding]) -> String {
    let count = |severity: Severity| findings.iter().filter(|finding| finding.severity == severity).count();
    let accepted = findings.iter().filter(|finding| finding.accepted).count();
    let accepted = if accepted > 0 {
        format!(", {accepted} accepted")
    } else {
        String::new()
    };
    let errors = words::count(count(Severity::Error), "error", "errors");
    let warnings = words::count(count(Severity::Warning), "warning", "warnings");
    format!("{errors}, {warnings}{accepted}.")
}

/// What to do about findings that stop an upgrade.
pub fn advice(findings: &[Finding]) -> Vec<String> {
    let errors = findings.iter().any(|finding| finding.severity == Severity::Error);
    let mut open = findings
        .iter()
        .filter(|finding| finding.severity == Severity::Warning && !finding.accepted);
    match (errors, open.next().is_some()) {
        (true, false) => vec!["Fix the errors and run it again.".to_owned()],
        (true, true) => vec![
            "Fix the errors and run it again; accept the warnings by adding:".to_owned(),
            format!(" {}", accepted_by(findings)),
        ],
        (false, _) => vec![
            "Accept the warnings by running it again with:".to_owned(),
            format!(" {}", accepted_by(findings)),
        ],
    }
}

/// The command that accepts every warning of an upgrade that is there: it adds to its settings.
pub fn accepting(to: &str, findings: &[Finding]) -> String {
    format!("afloat upgrade --to {to}{}", accepted_by(findings))
}

/// The flags that accept every warning.
fn accepted_by(findings: &[Finding]) -> String {
    let warnings = findings.iter().filter(|finding| finding.severity == Severity::Warning);
    let words = warnings.flat_map(|finding| [" --accept ".to_owned(), accept_key(finding)]);
    words.collect()
}

/// The whole report: findings, count, and what follows.
pub fn report(findings: &[Finding], width: usize, colour: bool) -> Vec<String> {
    let mut lines = finding_lines(findings, width, colour);
    if !findings.is_empty() {
        lines.push(String::new());
    }
    if passes(findings) {
        lines.push(format!("  {} Nothing stops it.", counted(findings)));
    } else {
        lines.push(format!("  {} Nothing was changed.", counted(findings)));
        lines.extend(advice(findings).into_iter().map(|line| format!("  {line}")));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use afloat_api::ObjectRef;

    fn finding(severity: Severity, kind: &str, at: (Option<&str>, &str), text: (&str, &str, Option<&str>)) -> Finding {
        Finding {
            severity,
            reason: text.0.to_owned(),
            object: ObjectRef {
                kind: kind.to_owned(),
                namespace: at.0.map(str::to_owned),
                name: at.1.to_owned(),
                ..ObjectRef::default()
            },
            message: text.1.to_owned(),
            remedy: text.2.map(str::to_owned),
            accepted: false,
        }
    }

    fn some() -> Vec<Finding> {
        let scale = Some("kubectl -n shop scale deploy/checkout --replicas=3");
        let blocked = "allows 0 disruptions: 2 of 2 pods must stay, both on worker-2; it can never be drained";
        vec![
            finding(
                Severity::Error,
                "PodDisruptionBudget",
                (Some("shop"), "checkout"),
                ("BudgetBlocksDrain", blocked, scale),
            ),
            finding(
                Severity::Warning,
                "Node",
                (None, "worker-5"),
                (
                    "Cordoned",
                    "cordoned by someone: it is upgraded but stays cordoned",
                    None,
                ),
            ),
        ]
    }

    #[test]
    fn every_finding_names_object_fact_and_remedy_and_the_count_comes_last() {
        let text = report(&some(), usize::MAX, false).join("\n");
        let wanted = "  error   pdb/shop/checkout  allows 0 disruptions: 2 of 2 pods must stay, both on worker-2; it can never be drained
          help: kubectl -n shop scale deploy/checkout --replicas=3
  warning node/worker-5      cordoned by someone: it is upgraded but stays cordoned

  1 error, 1 warning. Nothing was changed.
  Fix the errors and run it again; accept the warnings by adding:
    --accept node/worker-5:Cordoned";
        assert_eq!(text, wanted);
    }

    #[test]
    fn narrow_terminals_break_the_sentence_and_never_the_command() {
        let lines = finding_lines(&some(), 60, false);
        assert!(
            lines
                .iter()
                .all(|line| line.chars().count() <= 60 || line.contains("help:")),
            "{lines:#?}"
        );
        assert!(lines.iter().any(|line| line.ends_with("--replicas=3")));
        assert!(!finding_lines(&some(), 30, false).is_empty());
    }

    #[test]
    fn an_accepted_warning_stops_nothing() {
        let mut found = some();
        found.remove(0);
        found[0].accepted = true;
        let text = report(&found, usize::MAX, false).join("\n");
        assert!(text.contains("stays cordoned (accepted)"), "{text}");
        assert!(
            text.ends_with("0 errors, 1 warning, 1 accepted. Nothing stops it."),
            "{text}"
        );
    }
}
