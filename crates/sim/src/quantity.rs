//! Resource quantities as numbers, as far as placing pods needs them: thousandths, saturating, never negative.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use std::collections::BTreeMap;

/// A quantity in thousandths of its unit; what cannot be read counts as nothing.
pub fn milli(quantity: &str) -> u64 {
    let digits = quantity
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(quantity.len());
    let (number, suffix) = quantity.split_at(digits);
    let factor: f64 = match suffix {
        "n" => 1e-6,
        "u" => 1e-3,
        "m" => 1.0,
        "" => 1e3,
        "k" => 1e6,
        "M" => 1e9,
        "G" => 1e12,
        "T" => 1e15,
        "P" => 1e18,
        "Ki" => 1024.0 * 1e3,
        "Mi" => 1_048_576.0 * 1e3,
        "Gi" => 1_073_741_824.0 * 1e3,
        "Ti" => 1_099_511_627_776.0 * 1e3,
        exponent if exponent.starts_with(['e', 'E']) => exponent
            .get(1..)
            .and_then(|e| e.parse::<i32>().ok())
            .map_or(0.0, |e| 1e3 * 10f64.powi(e)),
        _ => 0.0,
    };
    // Rounded up: upstream never lets a fraction of a unit disappear either.
    saturating((number.parse::<f64>().unwrap_or(0.0) * factor).ceil())
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "float to integer casts saturate"
)]
fn saturating(value: f64) -> u64 {
    value as u64
}

/// CPU in millicores and memory in thousandths of a byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    pub cpu: u64,
    pub memory: u64,
}

impl Amount {
    pub fn of(list: Option<&BTreeMap<String, Quantity>>) -> Self {
        let read = |name: &str| {
            list.and_then(|list| list.get(name))
                .map_or(0, |quantity| milli(&quantity.0))
        };
        Self {
            cpu: read("cpu"),
            memory: read("memory"),
        }
    }

    pub fn add(&mut self, other: Self) {
        self.cpu = self.cpu.saturating_add(other.cpu);
        self.memory = self.memory.saturating_add(other.memory);
    }

    pub fn subtract(&mut self, other: Self) {
        self.cpu = self.cpu.saturating_sub(other.cpu);
        self.memory = self.memory.saturating_sub(other.memory);
    }

    fn max(self, other: Self) -> Self {
        Self {
            cpu: self.cpu.max(other.cpu),
            memory: self.memory.max(other.memory),
        }
    }
}

/// What a pod asks for: its containers together, or its greediest init container when that is more.
pub fn requested(pod: &Pod) -> Amount {
    let Some(spec) = &pod.spec else {
        return Amount::default();
    };
    let ask = |resources: &Option<k8s_openapi::api::core::v1::ResourceRequirements>| {
        Amount::of(resources.as_ref().and_then(|resources| resources.requests.as_ref()))
    };
    let mut sum = Amount::default();
    for container in &spec.containers {
        sum.add(ask(&container.resources));
    }
    let greediest = spec
        .init_containers
        .iter()
        .flatten()
        .map(|c| ask(&c.resources))
        .fold(Amount::default(), Amount::max);
    let mut total = sum.max(greediest);
    total.add(Amount::of(spec.overhead.as_ref()));
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_in_all_their_forms() {
        let cases = [
            ("100m", 100),
            ("2", 2000),
            ("0.5", 500),
            ("1Ki", 1_024_000),
            ("64Mi", 64 * 1_048_576 * 1000),
            ("1e3", 1_000_000),
            ("5G", 5_000_000_000_000),
            ("1n", 1),
            ("", 0),
            ("much", 0),
        ];
        for (text, expected) in cases {
            assert_eq!(milli(text), expected, "{text}");
        }
    }
}
