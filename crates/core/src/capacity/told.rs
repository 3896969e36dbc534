//! Room and the lack of it, in a sentence.

use std::fmt::{Display, Formatter, Result};

use super::{Blocker, CounterExample, Fit};

const UNITS: [(&str, i64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

/// Processors: `2`, `1.5`, `0.1`.
fn cpu(milli: i64) -> String {
    tenths(milli, 1000)
}

/// Whole units, with a tenth where that says more: `16`, `1.5`.
fn tenths(amount: i64, unit: i64) -> String {
    let tenths = (i128::from(amount) * 10 + i128::from(unit) / 2) / i128::from(unit);
    match tenths % 10 {
        0 => (tenths / 10).to_string(),
        rest => format!("{}.{rest}", tenths / 10),
    }
}

fn bytes(amount: i64) -> String {
    let unit = UNITS.iter().find(|(_, size)| amount >= *size);
    unit.map_or_else(
        || format!("{amount} bytes"),
        |(word, size)| format!("{} {word}", tenths(amount, *size)),
    )
}

impl Display for Fit {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        match &self.away[..] {
            [] => {}
            [one] => write!(formatter, "with {one} away ")?,
            [first, second] => write!(formatter, "with {first} and {second} away ")?,
            all => write!(formatter, "with {} nodes away ", all.len())?,
        }
        write!(
            formatter,
            "{} of {} CPU and {} of {} GiB are asked for: ",
            cpu(self.asked.cpu_milli),
            cpu(self.there.cpu_milli),
            tenths(self.asked.memory, 1 << 30),
            tenths(self.there.memory, 1 << 30)
        )?;
        match self.waiting.len() {
            0 => write!(formatter, "fits")?,
            1 => write!(formatter, "fits, and 1 pod waits for its node")?,
            more => write!(formatter, "fits, and {more} pods wait for their nodes")?,
        }
        if let Some(tightest) = &self.tightest {
            write!(
                formatter,
                " (tightest: {} on {}, {}%)",
                tightest.resource, tightest.node, tightest.percent
            )?;
        }
        Ok(())
    }
}

impl Display for CounterExample {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        let (pod, node) = (&self.pod, &self.node);
        write!(
            formatter,
            "pod {pod} of {node} ({} CPU, {})",
            cpu(self.asks.cpu_milli),
            bytes(self.asks.memory)
        )?;
        match self.beside.len() {
            0 => {}
            1 => write!(formatter, ", beside 1 other that moves,")?,
            more => write!(formatter, ", beside {more} others that move,")?,
        }
        match self.nodes {
            0 => write!(formatter, " has no other node to go to")?,
            1 => write!(formatter, " does not fit on the 1 other node: ")?,
            more => write!(formatter, " fits on none of {more} other nodes: ")?,
        }
        for (index, (blocker, nodes)) in self.blockers.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(formatter, "{comma}{blocker} on {nodes}")?;
        }
        Ok(())
    }
}

impl Display for Blocker {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        match self {
            Self::NodeSelector => formatter.write_str("its node selector or affinity"),
            Self::Taint => formatter.write_str("a taint it does not tolerate"),
            Self::Volume => formatter.write_str("a volume out of reach"),
            Self::Cpu => formatter.write_str("too little CPU"),
            Self::Memory => formatter.write_str("too little memory"),
            Self::Pods => formatter.write_str("too many pods"),
            Self::Other(name) => write!(formatter, "too little {name}"),
            Self::HostPort => formatter.write_str("a host port in use"),
            Self::AntiAffinity => formatter.write_str("anti-affinity"),
            Self::Affinity => formatter.write_str("nobody it must be near"),
            Self::Spread => formatter.write_str("its topology spread"),
        }
    }
}
