//! Named clusters and what happens to them: each a start, an upgrade or several, and what people do meanwhile. Faults come
//! on top, by seed.

mod alone;
mod beside;
mod edits;
mod faulty;
mod moments;
mod people;
mod setup;
mod shapes;
mod words;

pub use setup::Setup;

use std::sync::OnceLock;

use super::faults::Class;
use super::time::Millis;

/// A scenario.
#[derive(Debug)]
pub struct Scenario {
    pub name: &'static str,
    pub summary: &'static str,
    pub build: fn(&mut Setup<'_>),
    /// How a run without faults ends: in one word all upgrades of it, or with commas one each.
    pub ends: &'static str,
    /// Everything people do in it is done by then.
    pub calm_after: Millis,
    /// Classes of faults that make sense here.
    pub allows: fn(Class) -> bool,
}

impl PartialEq for Scenario {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

/// All of them.
pub fn all() -> &'static [&'static Scenario] {
    static ALL: OnceLock<Vec<&'static Scenario>> = OnceLock::new();
    ALL.get_or_init(|| {
        let lists = [
            faulty::FAULTY,
            people::PEOPLE,
            shapes::SHAPES,
            beside::BESIDE,
            moments::MOMENTS,
            edits::EDITS,
        ];
        lists.into_iter().flatten().collect()
    })
}

/// The scenario of this name.
pub fn named(name: &str) -> Option<&'static Scenario> {
    all().iter().copied().find(|scenario| scenario.name == name)
}
