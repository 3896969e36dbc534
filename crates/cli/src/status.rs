//! `afloat status` and `afloat explain`: where an upgrade is, and why it does not move. Both only look.

use crate::args::people::{Explain, ExplainOutput, Form, Status, StatusOutput};
use crate::board::{Board, text};
use crate::cluster::{Cluster, Scope};
use crate::follow::{self, Manner, WhenHeld};
use crate::hci;
use crate::problem::{Code, Problem};
use crate::screen::{Screen, interrupted};
use crate::upgrade::printed;
use crate::which;
use afloat_core::explain::Explanation;
use afloat_core::objects::key_of;
use afloat_core::view::Key;
use jiff::Timestamp;
use serde_json::json;
use std::future::Future;

pub async fn run(arguments: Status) -> Result<Code, Problem> {
    let form = matches!(arguments.output, StatusOutput::Json | StatusOutput::Yaml);
    if form && arguments.watch {
        return Err(Problem::new(
            Code::BadUsage,
            "-o json and -o yaml print one state and do not go with --watch",
        )
        .help("for a stream: kubectl get clusterupgrade -w -o json"));
    }
    let cluster = Cluster::connect(&arguments.place).await?;
    status(&cluster, &arguments, &mut Screen::stdout(), interrupted()).await
}

pub async fn status(
    cluster: &Cluster,
    arguments: &Status,
    screen: &mut Screen,
    stop: impl Future<Output = ()>,
) -> Result<Code, Problem> {
    let mut live = cluster.look(Scope::Upgrades).await?;
    if let Some(upgrade) = hci::to_look_at(live.view(), arguments.name.as_deref()) {
        let key = key_of(&upgrade.metadata);
        return hci::status(&mut live, &key, arguments, screen, stop).await;
    }
    let key = key_of(&which::to_look_at(live.view(), arguments.name.as_deref())?.metadata);
    let wide = arguments.output == StatusOutput::Wide;
    if arguments.watch {
        let manner = Manner {
            limit: None,
            when_held: WhenHeld::Stays,
            wide,
            silent: false,
        };
        return follow::follow(&mut live, &key, screen, manner, stop).await;
    }
    let Some(board) = Board::of(live.view(), &key, Timestamp::now()) else {
        return Err(Problem::new(
            Code::Failed,
            format!("clusterupgrade/{} was deleted", key.name),
        ));
    };
    match arguments.output {
        StatusOutput::Json => screen.say(printed(&board, Form::Json)?.trim_end()),
        StatusOutput::Yaml => screen.say(printed(&board, Form::Yaml)?.trim_end()),
        StatusOutput::Text | StatusOutput::Wide => {
            screen.say(&text::lines(&board, screen.layout(wide)).join("\n"));
        }
    }
    Ok(Code::Done)
}

pub async fn run_explain(arguments: Explain) -> Result<Code, Problem> {
    let cluster = Cluster::connect(&arguments.place).await?;
    explain(&cluster, &arguments, &mut Screen::stdout()).await
}

pub async fn explain(cluster: &Cluster, arguments: &Explain, screen: &mut Screen) -> Result<Code, Problem> {
    let live = cluster.look(Scope::Everything).await?;
    if let Some(upgrade) = hci::to_look_at(live.view(), arguments.name.as_deref()) {
        let key = key_of(&upgrade.metadata);
        return hci::explain(&live, &key, arguments, screen);
    }
    let key = key_of(&which::to_look_at(live.view(), arguments.name.as_deref())?.metadata);
    let explanation = afloat_core::explain::explain(live.view(), &key, Timestamp::now()).unwrap_or_default();
    tell(&explanation, &key, arguments.output, screen)
}

/// An explanation in the form that was asked for.
pub fn tell(explanation: &Explanation, key: &Key, output: ExplainOutput, screen: &mut Screen) -> Result<Code, Problem> {
    match output {
        ExplainOutput::Text => screen.say(explanation.to_string().trim_end()),
        ExplainOutput::Json => {
            let remedies = explanation.remedies.iter();
            let remedies = remedies.map(|remedy| json!({ "command": remedy.command, "effect": remedy.effect }));
            let value = json!({
                "upgrade": &*key.name,
                "because": explanation.because,
                "remedies": remedies.collect::<Vec<_>>(),
            });
            screen.say(printed(&value, Form::Json)?.trim_end());
        }
    }
    Ok(Code::Done)
}
