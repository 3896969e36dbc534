//! What goes over a network: push, pull, serve.

use super::make::look;
use super::telling::{Telling, size};
use super::{problem, publish};
use crate::args::bundle::{Manner, Pull, Push, Serve};
use crate::cluster::Cluster;
use crate::problem::{Code, Problem};
use crate::screen::{Screen, interrupted};
use afloat_bundle::layout::Layout;
use afloat_bundle::progress::News;
use afloat_bundle::registry::{self, Repository};
use tokio::net::TcpListener;

/// Sends a bundle, then tells the cluster's operator of it: never of one that is not there.
pub async fn push(arguments: &Push, cluster: Option<&Cluster>, screen: &mut Screen) -> Result<Code, Problem> {
    let layout = Layout::open(&arguments.which.folder).map_err(|error| problem(&error))?;
    let tag = arguments.which.tag.as_deref();
    // What is damaged or not signed by whom it should be does not travel.
    if arguments.key.is_some() {
        look(&layout, tag, arguments.key.as_deref())?;
    }
    let repository = Repository::new(&arguments.to, &arguments.reach.access()).map_err(|error| problem(&error))?;
    let telling = Telling::new("Pushing");
    let tell = |news: News<'_>| telling.hear(news);
    let pushed = registry::push(&layout, tag, &repository, &tell)
        .await
        .map_err(|error| problem(&error))?;
    let (sent, there) = (size(pushed.sent_bytes), size(pushed.there_bytes));
    screen.say(&format!("Pushed {}\n{sent} sent, {there} there already", pushed.image));
    if let Some(cluster) = cluster {
        let manner = Manner {
            dry_run: false,
            force: arguments.force,
        };
        publish::publish(cluster, &pushed.image, &pushed.kubernetes_versions, manner, screen).await?;
    } else {
        screen.say(&format!("To upgrade with it: afloat bundle publish {}", pushed.image));
    }
    Ok(Code::Done)
}

pub async fn pull(arguments: &Pull, screen: &mut Screen) -> Result<Code, Problem> {
    let layout = Layout::open_or_create(&arguments.folder).map_err(|error| problem(&error))?;
    let repository = Repository::new(&arguments.from, &arguments.reach.access()).map_err(|error| problem(&error))?;
    let telling = Telling::new("Pulling");
    let tell = |news: News<'_>| telling.hear(news);
    let pulled = registry::pull(&repository, &layout, &tell)
        .await
        .map_err(|error| problem(&error))?;
    let (brought, there) = (size(pulled.brought_bytes), size(pulled.there_bytes));
    let folder = arguments.folder.display();
    screen.say(&format!(
        "Bundle {} is in {folder}: {brought} brought, {there} there already\n{}",
        pulled.tag, pulled.image
    ));
    look(&layout, Some(&pulled.tag), arguments.key.as_deref())?;
    Ok(Code::Done)
}

pub async fn serve(arguments: &Serve, screen: &mut Screen) -> Result<Code, Problem> {
    let layout = Layout::open(&arguments.folder).map_err(|error| problem(&error))?;
    if arguments.key.is_some() {
        look(&layout, None, arguments.key.as_deref())?;
    }
    let bundles = layout.bundles().map_err(|error| problem(&error))?;
    let cannot = |error: &std::io::Error| {
        Problem::new(Code::Failed, format!("cannot listen on {}", arguments.listen))
            .source(error)
            .help("--listen 127.0.0.1:0 takes a free port")
    };
    let listener = TcpListener::bind(arguments.listen)
        .await
        .map_err(|error| cannot(&error))?;
    let address = listener.local_addr().map_err(|error| cannot(&error))?;
    let names: Vec<String> = bundles
        .iter()
        .map(|(found, _)| afloat_bundle::layout::name(found))
        .collect();
    screen.say(&format!(
        "Serving {} on http://{address}; Ctrl-C ends it",
        names.join(", ")
    ));
    for name in &names {
        screen.say(&format!("  {address}/afloat/bundle:{name}"));
    }
    let ended = async {
        let _reason = interrupted().await;
    };
    afloat_bundle::serve::serve(layout, listener, ended)
        .await
        .map_err(|error| cannot(&error))?;
    Ok(Code::Done)
}
