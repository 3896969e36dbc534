//! What happens on this machine alone: create, inspect, verify, keygen.

use super::telling::{Telling, size};
use super::{LISTED, problem};
use crate::args::bundle::{Create, Inspect, InspectOutput, Keygen, Verify};
use crate::problem::{Code, Problem};
use crate::screen::Screen;
use crate::table::{Cell, Tone, plain, table, toned};
use afloat_bundle::create::Wish;
use afloat_bundle::input::{self, Sources};
use afloat_bundle::inspect::Summary;
use afloat_bundle::key::{self, PrivateKey};
use afloat_bundle::layout::Layout;
use afloat_bundle::progress::News;
use afloat_bundle::verify::{Signature, Verdict};
use std::fs;
use std::path::{Path, PathBuf};

pub fn create(arguments: &Create, screen: &mut Screen) -> Result<Code, Problem> {
    let sources = sources(arguments)?;
    let key = arguments
        .key
        .as_deref()
        .map(PrivateKey::read)
        .transpose()
        .map_err(|error| problem(&error))?;
    let telling = Telling::new("Packing");
    let tell = |news: News<'_>| telling.hear(news);
    let checked = input::check(&sources, &input::run).map_err(|error| problem(&error))?;
    for note in &checked.notes {
        tell(News::Note(note));
    }
    let newest = checked.versions.last().map_or("operator", String::as_str);
    let tag = arguments.tag.as_deref().unwrap_or(newest);
    let layout = Layout::open_or_create(&arguments.directory).map_err(|error| problem(&error))?;
    let wish = Wish { tag, key: key.as_ref() };
    let made = afloat_bundle::create::create(&layout, &checked, &wish, &tell).map_err(|error| problem(&error))?;
    let bytes: u64 = made.manifest.layers.iter().map(|layer| layer.size).sum();
    screen.say(&format!(
        "Bundle {tag} is in {}: {} in {} layers\n{}",
        arguments.directory.display(),
        size(bytes),
        made.manifest.layers.len(),
        made.descriptor.digest,
    ));
    match &key {
        Some(key) => screen.say(&format!("Signed by the key {}", key.public().name())),
        None => screen.say("Not signed: nodes and people cannot tell who made it. help: afloat bundle keygen NAME, then --key NAME.key"),
    }
    Ok(Code::Done)
}

fn sources(arguments: &Create) -> Result<Sources, Problem> {
    let mut sources = Sources {
        kubernetes: arguments.kubernetes.clone(),
        runtime: arguments.containerd.clone(),
        cni: arguments.cni.clone(),
        images: arguments.images.clone(),
        afloat: PathBuf::new(),
    };
    let mut program = arguments.afloat.clone();
    if let Some(folder) = &arguments.from {
        let there = |name: &str| Some(folder.join(name)).filter(|path| path.exists());
        sources.kubernetes = versions(&folder.join("kubernetes"))?;
        sources.runtime = there("containerd").into_iter().collect();
        sources.cni = there("cni").into_iter().collect();
        sources.images = there("images").into_iter().collect();
        program = program.or_else(|| there("afloat"));
    }
    if sources.kubernetes.is_empty() && !arguments.operator {
        return Err(Problem::new(Code::BadUsage, "no version of Kubernetes is named")
            .help("--kubernetes VERSION=DIR, or --from DIR with kubernetes/VERSION/ in it")
            .help("the image of the operator alone: --operator"));
    }
    sources.afloat = match program {
        Some(program) => program,
        None => std::env::current_exe().map_err(|error| {
            Problem::new(Code::Failed, "this program does not find itself")
                .source(&error)
                .help("--afloat FILE")
        })?,
    };
    Ok(sources)
}

/// The folders of a folder, each a version.
fn versions(folder: &Path) -> Result<Vec<(String, PathBuf)>, Problem> {
    let cannot = |error: &std::io::Error| {
        Problem::new(Code::BadUsage, format!("cannot read {}", folder.display()))
            .source(error)
            .help("--from DIR needs DIR/kubernetes/VERSION/")
    };
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(|error| cannot(&error))? {
        let entry = entry.map_err(|error| cannot(&error))?;
        found.push((entry.file_name().to_string_lossy().into_owned(), entry.path()));
    }
    found.sort();
    Ok(found)
}

pub fn keygen(arguments: &Keygen, screen: &mut Screen) -> Result<Code, Problem> {
    let made = key::generate(&arguments.name).map_err(|error| problem(&error))?;
    let (private, public) = (made.private.display(), made.public.display());
    screen.say(&format!("Key {}", made.key.name()));
    screen.say(&format!(
        "  {private}  signs: keep it where only you and your backup are"
    ));
    screen.say(&format!("  {public}  checks: give it to everybody"));
    screen.say("So that nodes refuse what it did not sign:");
    screen.say(&format!(
        "  kubectl -n afloat-system create configmap afloat-bundle-key --from-file=key={public}"
    ));
    Ok(Code::Done)
}

pub fn verify(arguments: &Verify, screen: &mut Screen) -> Result<Code, Problem> {
    let layout = Layout::open(&arguments.which.folder).map_err(|error| problem(&error))?;
    let verdict = look(&layout, arguments.which.tag.as_deref(), arguments.key.as_deref())?;
    for bundle in &verdict.bundles {
        let signed = match bundle.signature {
            Signature::Good(key) => format!("signed by the key {}", key.name()),
            Signature::Unchecked => "signed by somebody: --key FILE tells whether by whom you trust".to_owned(),
            _ => "not signed".to_owned(),
        };
        screen.say(&format!(
            "Bundle {} is whole: {} files, {}; {signed}\n{}",
            bundle.name,
            bundle.files,
            size(bundle.bytes),
            bundle.digest
        ));
    }
    Ok(Code::Done)
}

/// Looks at a layout; with complaints it is refused.
pub fn look(layout: &Layout, tag: Option<&str>, key: Option<&Path>) -> Result<Verdict, Problem> {
    let keys = key.map(key::read_public).transpose().map_err(|error| problem(&error))?;
    let telling = Telling::new("Checking");
    let tell = |news: News<'_>| telling.hear(news);
    let verdict = afloat_bundle::verify::verify(layout, tag, keys.as_ref(), &tell).map_err(|error| problem(&error))?;
    if verdict.complaints.is_empty() {
        return Ok(verdict);
    }
    let names: Vec<&str> = verdict.bundles.iter().map(|bundle| bundle.name.as_str()).collect();
    let what = match names.as_slice() {
        [name] => format!("bundle {name} is refused"),
        _ => format!("the bundles in {} are refused", layout.folder().display()),
    };
    let mut refused = Problem::new(Code::Failed, what);
    for complaint in verdict.complaints.iter().take(LISTED) {
        refused = refused.because(complaint.to_string());
    }
    if let Some(more) = verdict.complaints.len().checked_sub(LISTED).filter(|more| *more > 0) {
        refused = refused.because(format!("and {more} more"));
    }
    let first = verdict.complaints.iter().find_map(|complaint| complaint.help.clone());
    Err(refused.help(first.unwrap_or_else(|| "bring it anew from where it was made".to_owned())))
}

pub fn inspect(arguments: &Inspect, screen: &mut Screen) -> Result<Code, Problem> {
    let layout = Layout::open(&arguments.which.folder).map_err(|error| problem(&error))?;
    let found =
        afloat_bundle::inspect::inspect(&layout, arguments.which.tag.as_deref()).map_err(|error| problem(&error))?;
    let cannot = |fact: String| Problem::new(Code::Failed, "cannot print the bundle").because(fact);
    match arguments.output {
        InspectOutput::Json => {
            let text = serde_json::to_string_pretty(&found).map_err(|error| cannot(error.to_string()))?;
            screen.say(&text);
        }
        InspectOutput::Yaml => {
            let text = serde_saphyr::to_string(&found).map_err(|error| cannot(error.to_string()))?;
            screen.say(text.trim_end());
        }
        InspectOutput::Text => {
            for bundle in &found {
                say(bundle, screen);
            }
        }
    }
    Ok(Code::Done)
}

fn say(bundle: &Summary, screen: &mut Screen) {
    let signed = if bundle.signed { "signed" } else { "not signed" };
    let layers = bundle.layers.len();
    let bytes = size(bundle.bytes);
    screen.say(&format!(
        "Bundle {}  {}  {bytes} in {layers} layers, {signed}",
        bundle.name, bundle.platform
    ));
    screen.say(&format!("{}\n", bundle.digest));
    let heading = |text: &str| toned(text, Tone::Heading);
    let mut rows: Vec<Vec<Cell>> = vec![["PART", "VERSION", "FILES", "SIZE", "IMAGES"].map(heading).into()];
    for part in &bundle.parts {
        rows.push(vec![
            plain(part.name.clone()),
            plain(part.version.clone().unwrap_or_default()),
            plain(part.files.len().to_string()),
            plain(size(part.bytes)),
            plain(part.images.join(", ")),
        ]);
    }
    let layout = screen.layout(false);
    for line in table(&rows, layout.width, layout.colour) {
        screen.say(&line);
    }
}
