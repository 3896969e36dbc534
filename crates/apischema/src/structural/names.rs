//! The rules for names, labels and finalizers that every kind shares, with the words in which the API server refuses
//! them. Each rule gives the list of complaints about a text; what field it is about is the caller's to say.

const DNS_LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const DNS_SUBDOMAIN: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const DNS_1035_LABEL: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
const LABEL_KEY: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const LABEL_VALUE: &str = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?";

/// Which names a kind accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRule {
    /// Lowercase RFC 1123 subdomain: most kinds, and every custom resource.
    DnsSubdomain,
    /// Lowercase RFC 1123 label: namespaces.
    DnsLabel,
    /// RFC 1035 label: services of old.
    Dns1035Label,
    /// Anything that fits into a URL path: RBAC.
    PathSegment,
}

impl NameRule {
    /// Complaints about a name; `prefix` for `generateName`, whose last dash will be followed by more.
    pub fn complaints(self, name: &str, prefix: bool) -> Vec<String> {
        if self == Self::PathSegment {
            return path_segment(name, prefix);
        }
        let masked = if prefix {
            mask_trailing_dash(name)
        } else {
            name.to_owned()
        };
        match self {
            Self::DnsLabel => dns_label(&masked),
            Self::Dns1035Label => dns_1035_label(&masked),
            Self::DnsSubdomain | Self::PathSegment => dns_subdomain(&masked),
        }
    }
}

/// Upstream replaces the last *two* characters by one letter, which is what makes `a.-` pass as a prefix.
fn mask_trailing_dash(name: &str) -> String {
    match name.strip_suffix('-') {
        Some(rest) if !rest.is_empty() => {
            let mut rest = rest.to_owned();
            rest.pop();
            rest.push('a');
            rest
        }
        _ => name.to_owned(),
    }
}

pub fn dns_subdomain(value: &str) -> Vec<String> {
    let mut complaints = too_long(value, 253, "characters");
    if !is_dns_subdomain(value) {
        complaints.push(regex_complaint(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
             start and end with an alphanumeric character",
            DNS_SUBDOMAIN,
            &["example.com"],
        ));
    }
    complaints
}

pub fn dns_label(value: &str) -> Vec<String> {
    let mut complaints = too_long(value, 63, "characters");
    if !is_dns_label(value) {
        complaints.push(if is_dns_subdomain(value) {
            "must not contain dots".to_owned()
        } else {
            regex_complaint(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
                 and end with an alphanumeric character",
                DNS_LABEL,
                &["my-name", "123-abc"],
            )
        });
    }
    complaints
}

pub fn dns_1035_label(value: &str) -> Vec<String> {
    let mut complaints = too_long(value, 63, "characters");
    if !(is_dns_label(value) && value.starts_with(|first: char| first.is_ascii_lowercase())) {
        complaints.push(regex_complaint(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
             character, and end with an alphanumeric character",
            DNS_1035_LABEL,
            &["my-name", "abc-123"],
        ));
    }
    complaints
}

/// Label and annotation keys, finalizers: an optional subdomain and a name.
pub fn qualified_name(value: &str) -> Vec<String> {
    const WORDS: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                         alphanumeric character";
    const EXAMPLES: &[&str] = &["MyName", "my.name", "123-abc"];
    // Nearly all are fine, and every write checks many.
    let (prefix, name) = value
        .split_once('/')
        .map_or((None, value), |(prefix, name)| (Some(prefix), name));
    if name.len() <= 63
        && is_label_name(name)
        && prefix.is_none_or(|prefix| prefix.len() <= 253 && is_dns_subdomain(prefix))
    {
        return Vec::new();
    }
    let mut complaints = Vec::new();
    let parts: Vec<&str> = value.split('/').collect();
    let name = match parts.as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                complaints.push("prefix part must be non-empty".to_owned());
            } else {
                complaints.extend(
                    dns_subdomain(prefix)
                        .into_iter()
                        .map(|complaint| format!("prefix part {complaint}")),
                );
            }
            *name
        }
        _ => {
            return vec![format!(
                "a valid label key {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                regex_complaint(WORDS, LABEL_KEY, EXAMPLES)
            )];
        }
    };
    if name.is_empty() {
        complaints.push("name part must be non-empty".to_owned());
    }
    complaints.extend(
        too_long(name, 63, "bytes")
            .into_iter()
            .map(|complaint| format!("name part {complaint}")),
    );
    if !is_label_name(name) {
        complaints.push(format!("name part {}", regex_complaint(WORDS, LABEL_KEY, EXAMPLES)));
    }
    complaints
}

pub fn label_value(value: &str) -> Vec<String> {
    let mut complaints = too_long(value, 63, "bytes");
    if !value.is_empty() && !is_label_name(value) {
        complaints.push(regex_complaint(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
             start and end with an alphanumeric character",
            LABEL_VALUE,
            &["MyValue", "my_value", "12345"],
        ));
    }
    complaints
}

pub fn path_segment(name: &str, prefix: bool) -> Vec<String> {
    if !prefix && matches!(name, "." | "..") {
        return vec![format!("may not be '{name}'")];
    }
    ["/", "%"]
        .iter()
        .filter(|part| name.contains(**part))
        .map(|part| format!("may not contain '{part}'"))
        .collect()
}

/// `words (e.g. 'a',  or 'b', regex used for validation is '…')`, commas as upstream places them.
pub fn regex_complaint(words: &str, regex: &str, examples: &[&str]) -> String {
    if examples.is_empty() {
        return format!("{words} (regex used for validation is '{regex}')");
    }
    let examples: Vec<String> = examples.iter().map(|example| format!("'{example}', ")).collect();
    format!(
        "{words} (e.g. {}regex used for validation is '{regex}')",
        examples.join(" or ")
    )
}

/// Names of objects are measured in characters, label keys and values in bytes: upstream has two packages for it.
fn too_long(value: &str, max: usize, unit: &str) -> Vec<String> {
    if value.len() > max {
        vec![format!("must be no more than {max} {unit}")]
    } else {
        Vec::new()
    }
}

fn is_dns_label(value: &str) -> bool {
    let alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    match value.as_bytes() {
        [] => false,
        bytes => {
            bytes.iter().all(|byte| alphanumeric(*byte) || *byte == b'-')
                && bytes.first().is_some_and(|byte| alphanumeric(*byte))
                && bytes.last().is_some_and(|byte| alphanumeric(*byte))
        }
    }
}

fn is_dns_subdomain(value: &str) -> bool {
    value.split('.').all(is_dns_label)
}

fn is_label_name(value: &str) -> bool {
    let bytes = value.as_bytes();
    bytes
        .iter()
        .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
        && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_refused_in_upstream_words() {
        assert_eq!(
            dns_subdomain("A"),
            [
                "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
                 start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
                 '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
            ]
        );
        assert_eq!(dns_label("a.b"), ["must not contain dots"]);
        assert_eq!(dns_label(&"a".repeat(64)), ["must be no more than 63 characters"]);
        assert_eq!(qualified_name("/x"), ["prefix part must be non-empty"]);
        assert_eq!(
            qualified_name("a/")[..],
            [
                "name part must be non-empty",
                "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                 alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
                 '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
            ]
        );
        assert_eq!(
            path_segment("a/b%", false),
            ["may not contain '/'", "may not contain '%'"]
        );
        assert_eq!(path_segment("..", false), ["may not be '..'"]);
    }

    #[test]
    fn good_names_pass() {
        for name in ["a", "a-b", "a.b", "0"] {
            assert!(NameRule::DnsSubdomain.complaints(name, false).is_empty(), "{name}");
        }
        assert!(NameRule::DnsSubdomain.complaints("abc-", true).is_empty());
        assert!(!NameRule::DnsSubdomain.complaints("abc-", false).is_empty());
        assert!(!NameRule::Dns1035Label.complaints("0a", false).is_empty());
        for value in ["", "a", "A_b.c-d", "x1"] {
            assert!(label_value(value).is_empty(), "{value}");
        }
        assert!(!label_value("-a").is_empty());
        assert!(!label_value("a b").is_empty());
    }
}
