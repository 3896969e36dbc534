//! Content types by the names of files, and which form of a listing a client would rather have.

/// The type of a file. What is not known is bytes: nothing is guessed from the content.
pub fn of(name: &str) -> &'static str {
    let ending = name.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase());
    match ending.as_deref() {
        Some("yaml" | "yml") => "application/yaml",
        Some("json") => "application/json",
        Some("txt" | "log" | "md" | "list" | "cfg" | "conf" | "sha256" | "sha512") => "text/plain; charset=utf-8",
        Some("html" | "htm") => "text/html; charset=utf-8",
        Some("xml") => "application/xml",
        Some("pdf") => "application/pdf",
        Some("png") => "image/png",
        Some("svg") => "image/svg+xml",
        Some("tar") => "application/x-tar",
        Some("gz" | "tgz") => "application/gzip",
        Some("zst" | "tzst") => "application/zstd",
        Some("xz") => "application/x-xz",
        Some("iso") => "application/x-iso9660-image",
        Some("squashfs") => "application/vnd.squashfs",
        _ => "application/octet-stream",
    }
}

/// Whether an `Accept` header prefers JSON to HTML. Whoever takes either gets the page for people.
pub fn prefers_json(accept: &str) -> bool {
    let wish = |wanted: &str| {
        let (family, _) = wanted.split_once('/').unwrap_or((wanted, ""));
        let mut best: Option<(u8, f32)> = None;
        for range in accept.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let range = parts.next().unwrap_or_default().to_ascii_lowercase();
            let close = match range.as_str() {
                range if range == wanted => 3,
                range if range.strip_suffix("/*") == Some(family) => 2,
                "*/*" => 1,
                _ => continue,
            };
            let weight = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
            let weight = weight.map_or(1.0, |weight| weight.parse().unwrap_or(0.0));
            if best.is_none_or(|(closest, _)| close > closest) {
                best = Some((close, weight));
            }
        }
        best.map_or(0.0, |(_, weight)| weight)
    };
    wish("application/json") > wish("text/html")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_by_names() {
        for (name, media) in [
            ("harvester-release.yaml", "application/yaml"),
            ("README.TXT", "text/plain; charset=utf-8"),
            ("a.tar.gz", "application/gzip"),
            ("images.tar.zst", "application/zstd"),
            ("rootfs.squashfs", "application/vnd.squashfs"),
            ("vmlinuz", "application/octet-stream"),
            ("strange.", "application/octet-stream"),
        ] {
            assert_eq!(of(name), media, "{name}");
        }
    }

    #[test]
    fn who_asks_for_json_gets_it() {
        for (accept, json) in [
            ("", false),
            ("*/*", false),
            ("text/html,application/xhtml+xml,*/*;q=0.8", false),
            ("application/json", true),
            ("application/json, */*;q=0.1", true),
            ("APPLICATION/JSON", true),
            ("application/*", true),
            ("text/html;q=0.5, application/json", true),
            ("text/html, application/json;q=0.9", false),
            ("application/json;q=0", false),
            ("application/json;q=x", false),
        ] {
            assert_eq!(prefers_json(accept), json, "{accept:?}");
        }
    }
}
