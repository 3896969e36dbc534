//! kubeadm's `ClusterConfiguration` as the text that the ConfigMap `kubeadm-config` has: what of it is read, and the one thing that is written.
//! kubeadm prints it itself (keys sorted, two spaces a level), so that lines and indents are enough, and all that a person wrote stays.

/// What has an image that kubeadm chooses, unless it is named a tag.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TaggedPart {
    Etcd,
    CoreDns,
}

const TAG: &str = "imageTag:";

impl TaggedPart {
    pub const ALL: [Self; 2] = [Self::Etcd, Self::CoreDns];

    /// For people.
    pub fn word(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::CoreDns => "CoreDNS",
        }
    }

    /// The field of our objects that names its tag.
    pub fn field(self) -> &'static str {
        match self {
            Self::Etcd => "etcdVersion",
            Self::CoreDns => "coreDNSVersion",
        }
    }

    fn keys(self) -> &'static [&'static str] {
        match self {
            Self::Etcd => &["etcd", "local"],
            Self::CoreDns => &["dns"],
        }
    }
}

/// Etcd is not among the cluster's static pods.
pub fn has_external_etcd(config: &str) -> bool {
    let lines: Vec<&str> = config.lines().collect();
    within(&lines, &["etcd"]).is_some_and(|(from, to)| lines[from..to].iter().any(|line| line.trim() == "external:"))
}

/// The tag that a configuration names for a part.
pub fn image_tag(config: &str, part: TaggedPart) -> Option<&str> {
    let lines: Vec<&str> = config.lines().collect();
    let (from, to) = within(&lines, part.keys())?;
    let own = indent(part.keys().len());
    let tag = lines[from..to]
        .iter()
        .find_map(|line| line.strip_prefix(&own)?.strip_prefix(TAG))?;
    let tag = tag.trim().trim_matches(['"', '\'']);
    (!tag.is_empty()).then_some(tag)
}

/// The configuration with another tag for a part; nothing where it has no such part, as where etcd is external.
pub fn with_image_tag(config: &str, part: TaggedPart, tag: &str) -> Option<String> {
    if part == TaggedPart::Etcd && has_external_etcd(config) {
        return None;
    }
    let mut lines: Vec<String> = config.lines().map(str::to_owned).collect();
    for (depth, key) in part.keys().iter().enumerate() {
        let above: Vec<&str> = lines.iter().map(String::as_str).collect();
        let (from, to) = within(&above, &part.keys()[..depth]).unwrap_or((0, above.len()));
        let line = format!("{}{key}:", indent(depth));
        match (from..to).find(|index| is_key(&lines[*index], &line)) {
            // Where nothing is said it is a flow: `dns: {}`.
            Some(index) => lines[index] = line,
            None => lines.insert(if depth == 0 { to } else { from }, line),
        }
    }
    let there: Vec<&str> = lines.iter().map(String::as_str).collect();
    let (from, to) = within(&there, part.keys())?;
    let own = indent(part.keys().len());
    // A tag may look like a number.
    let line = format!("{own}{TAG} \"{tag}\"");
    match (from..to).find(|index| {
        lines[*index]
            .strip_prefix(&own)
            .is_some_and(|rest| rest.starts_with(TAG))
    }) {
        Some(index) => lines[index] = line,
        None => lines.insert(from, line),
    }
    Some(lines.join("\n") + "\n")
}

/// The configuration without a tag for a part, so that kubeadm has the last word.
pub fn without_image_tag(config: &str, part: TaggedPart) -> String {
    let mut lines: Vec<&str> = config.lines().collect();
    let own = indent(part.keys().len());
    let Some((from, to)) = within(&lines, part.keys()) else {
        return config.to_owned();
    };
    let is_tag = |line: &&str| line.strip_prefix(&own).is_some_and(|rest| rest.starts_with(TAG));
    let Some(at) = (from..to).find(|index| is_tag(&lines[*index])) else {
        return config.to_owned();
    };
    lines.remove(at);
    // A key with nothing below it is nothing, where kubeadm writes an empty object.
    let emptied = (to - from == 1).then(|| format!("{} {{}}", lines[from - 1]));
    if let Some(line) = &emptied {
        lines[from - 1] = line;
    }
    lines.join("\n") + "\n"
}

fn indent(depth: usize) -> String {
    "  ".repeat(depth)
}

fn is_key(line: &str, key: &str) -> bool {
    let rest = line.strip_prefix(key).map(str::trim);
    rest.is_some_and(|rest| rest.is_empty() || rest == "{}" || rest == "null")
}

/// The lines below a key.
fn within(lines: &[&str], keys: &[&str]) -> Option<(usize, usize)> {
    let (mut from, mut to) = (0, lines.len());
    for (depth, key) in keys.iter().enumerate() {
        let line = format!("{}{key}:", indent(depth));
        from = (from..to).find(|index| is_key(lines[*index], &line))? + 1;
        let below = indent(depth + 1);
        to = (from..to)
            .find(|index| !lines[*index].starts_with(&below))
            .unwrap_or(to);
    }
    Some((from, to))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by failing")]

    use super::*;
    use serde_json::Value;

    const PLAIN: &str = "apiServer: {}\napiVersion: kubeadm.k8s.io/v1beta4\ndns: {}\netcd:\n  local:\n    dataDir: /var/lib/etcd\n\
                         imageRepository: registry.k8s.io\nkind: ClusterConfiguration\n";
    const PINNED: &str = "dns:\n  imageRepository: mirror/coredns\n  imageTag: v1.13.1\netcd:\n  local:\n    dataDir: /data\n    \
                          extraArgs:\n    - name: imageTag\n      value: x\n    imageTag: \"3.6\"\nkind: ClusterConfiguration\n";

    fn parsed(text: &str) -> Value {
        serde_saphyr::from_str(text).unwrap()
    }

    #[test]
    fn tags_are_read_where_they_stand() {
        for (config, etcd, dns) in [
            (PLAIN, None, None),
            (PINNED, Some("3.6"), Some("v1.13.1")),
            ("etcd:\n  external:\n    imageTag: x\n", None, None),
            ("networking:\n  dns:\n    imageTag: x\n", None, None),
            ("", None, None),
        ] {
            assert_eq!(image_tag(config, TaggedPart::Etcd), etcd, "{config}");
            assert_eq!(image_tag(config, TaggedPart::CoreDns), dns, "{config}");
        }
    }

    #[test]
    fn p42_a_tag_is_written_and_nothing_else_changes() {
        for (config, part, pointer) in [
            (PLAIN, TaggedPart::Etcd, "/etcd/local"),
            (PLAIN, TaggedPart::CoreDns, "/dns"),
            (PINNED, TaggedPart::Etcd, "/etcd/local"),
            (PINNED, TaggedPart::CoreDns, "/dns"),
        ] {
            let written = with_image_tag(config, part, "3.10").unwrap();
            assert_eq!(image_tag(&written, part), Some("3.10"), "{written}");
            let (mut before, after) = (parsed(config), parsed(&written));
            before.pointer_mut(pointer).unwrap()["imageTag"] = "3.10".into();
            assert_eq!(after, before, "{written}");
            assert_eq!(with_image_tag(&written, part, "3.10").unwrap(), written);
        }
        // kubeadm leaves out what it has nothing to say of.
        let written = with_image_tag("kind: ClusterConfiguration\n", TaggedPart::CoreDns, "v1").unwrap();
        assert_eq!(parsed(&written)["dns"]["imageTag"], "v1", "{written}");
    }

    #[test]
    fn p46_a_tag_is_taken_out_and_nothing_else_changes() {
        for config in [PLAIN, PINNED] {
            for (part, pointer) in [(TaggedPart::Etcd, "/etcd/local"), (TaggedPart::CoreDns, "/dns")] {
                let without = without_image_tag(config, part);
                assert_eq!(image_tag(&without, part), None, "{without}");
                let (mut before, after) = (parsed(config), parsed(&without));
                before
                    .pointer_mut(pointer)
                    .unwrap()
                    .as_object_mut()
                    .unwrap()
                    .remove("imageTag");
                assert_eq!(after, before, "{without}");
                let named = with_image_tag(&without, part, "3.10").unwrap();
                assert_eq!(without_image_tag(&named, part), without);
            }
        }
        assert_eq!(without_image_tag("kind: x\n", TaggedPart::Etcd), "kind: x\n");
    }

    #[test]
    fn p4_external_etcd_has_no_tag_of_ours() {
        let external = "etcd:\n  external:\n    endpoints:\n    - https://etcd:2379\n";
        assert!(has_external_etcd(external) && !has_external_etcd(PLAIN));
        assert_eq!(with_image_tag(external, TaggedPart::Etcd, "3.6.8-0"), None);
        assert!(!has_external_etcd(
            "apiServer:\n  external: x\netcd:\n  local:\n    dataDir: /d\nnetworking:\n  external:\n"
        ));
    }
}
