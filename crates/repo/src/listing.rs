//! What a folder holds, as a page for people and as JSON for programs.

use std::fmt::Write as _;

use serde::Serialize;

use crate::path::encode;
use crate::source::{Entries, Entry};

#[derive(Serialize)]
struct Listing<'a> {
    path: &'a str,
    entries: Vec<Line<'a>>,
    /// There are more than are listed.
    more: bool,
}

#[derive(Serialize)]
struct Line<'a> {
    name: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    modified: Option<String>,
}

/// Times to the second: nobody lists files by nanoseconds.
fn modified(entry: &Entry) -> Option<String> {
    let time = entry.modified?;
    let whole = jiff::Timestamp::from_second(time.as_second()).ok()?;
    Some(whole.to_string())
}

pub fn json(path: &str, entries: &Entries) -> String {
    let lines = entries.list.iter().map(|entry| Line {
        name: &entry.name,
        kind: if entry.size.is_some() { "file" } else { "folder" },
        size: entry.size,
        modified: modified(entry),
    });
    let listing = Listing {
        path,
        entries: lines.collect(),
        more: entries.more,
    };
    // Strings and numbers can always be written.
    serde_json::to_string(&listing).unwrap_or_default() + "\n"
}

pub fn html(path: &str, entries: &Entries) -> String {
    let title = escaped(path);
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>{title}</title>\n\
         <style>body{{font-family:sans-serif;margin:2em}}td{{padding-right:2em}}td+td{{text-align:right}}</style>\n\
         </head>\n<body>\n<h1>{title}</h1>\n<table>\n"
    );
    if path != "/" {
        page.push_str("<tr><td><a href=\"../\">../</a></td><td></td><td></td></tr>\n");
    }
    for entry in &entries.list {
        let slash = if entry.size.is_some() { "" } else { "/" };
        let (name, link) = (escaped(&entry.name), encode(&entry.name));
        let size = entry.size.map(|size| size.to_string()).unwrap_or_default();
        let time = modified(entry).unwrap_or_default();
        // "./" before it: a name with a colon in it would pass for a scheme.
        let _infallible = writeln!(
            page,
            "<tr><td><a href=\"./{link}{slash}\">{name}{slash}</a></td><td>{size}</td><td>{time}</td></tr>"
        );
    }
    page.push_str("</table>\n");
    if entries.more {
        page.push_str("<p>There are more files than are listed here.</p>\n");
    }
    page.push_str("</body>\n</html>\n");
    page
}

fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            _ => safe.push(letter),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries() -> Entries {
        let modified = jiff::Timestamp::new(784_111_777, 5).ok();
        let file = |name: &str| Entry {
            name: name.to_owned(),
            size: Some(7),
            modified,
        };
        let folder = Entry {
            name: "bundle".to_owned(),
            size: None,
            modified: None,
        };
        Entries {
            list: vec![folder, file("<b> & \"c\".txt")],
            more: true,
        }
    }

    #[test]
    fn a_page_holds_no_markup_of_strangers() {
        let page = html("/<x>/", &entries());
        assert!(page.contains("<h1>/&lt;x&gt;/</h1>"), "{page}");
        assert!(page.contains("<a href=\"./bundle/\">bundle/</a>"), "{page}");
        assert!(page.contains(
            "<a href=\"./%3Cb%3E%20%26%20%22c%22.txt\">&lt;b&gt; &amp; &quot;c&quot;.txt</a></td><td>7</td>"
        ));
        assert!(page.contains("1994-11-06T08:49:37Z") && page.contains("more files") && page.contains("href=\"../\""));
        assert!(!html("/", &Entries::default()).contains("href"));
    }

    #[test]
    fn json_says_the_same() {
        let expected = concat!(
            r#"{"path":"/x/","entries":[{"name":"bundle","type":"folder"},"#,
            r#"{"name":"<b> & \"c\".txt","type":"file","size":7,"modified":"1994-11-06T08:49:37Z"}],"more":true}"#,
            "\n"
        );
        assert_eq!(json("/x/", &entries()), expected);
    }
}
